// Where answers come from: the server that sent the page, or the page itself.
import { find } from "./elements.js";

const stored = JSON.parse(find("data").textContent);
const token = new URLSearchParams(location.search).get("token") ?? "";

/** Whether the page is a file that needs no server. */
export const isFile = Boolean(stored.scene);

/** The name of the node to show first. @type {string | null} */
export const start = stored.start;

/** The address of the graph as GEXF; null in a file. @type {string | null} */
export const gexf = isFile ? null : `graph.gexf?token=${encodeURIComponent(token)}`;

/** Ask a question; a refusal is an error with the reason. @param {Record<string, any>} question @returns {Promise<any>} */
export async function ask(question) {
  if (isFile) return fromFile(question);
  let response;
  try {
    response = await fetch("ask", { method: "POST", headers: { "X-Token": token, "Content-Type": "application/json" }, body: JSON.stringify(question) });
  } catch {
    throw new Error("The server does not answer. Start `nfcgcn explore` again and open its new link.");
  }
  const answer = await response.json();
  if (!response.ok) throw new Error(answer.error);
  return answer;
}

/** @param {Record<string, any>} question */
function fromFile(question) {
  if (question.ask === "scene") return stored.scene;
  const answer = stored.answers[JSON.stringify(question)];
  if (answer) return answer;
  if (question.ask === "node" && stored.scene.nodes.id.includes(question.node)) return inShort(question.node);
  throw new Error(`This file has full answers for ${stored.full.length} nodes; \`nfcgcn explore\` answers for every node.`);
}

/** What the picture says about a node. @param {number} node */
function inShort(node) {
  const { scene } = stored;
  const place = scene.nodes.id.indexOf(node);
  /** @param {number} i */
  const brief = (i) => ({
    node: scene.nodes.id[i],
    name: scene.names[i],
    label: scene.nodes.label[i],
    predicted: scene.nodes.predicted?.[i] ?? null,
    confidence: scene.nodes.confidence?.[i] ?? null,
  });
  /** @type {any[]} */
  const neighbours = [];
  const [ones, others] = scene.edges;
  for (let e = 0; e < ones.length; e++) {
    if (ones[e] === place) neighbours.push(brief(others[e]));
    else if (others[e] === place) neighbours.push(brief(ones[e]));
  }
  return { ...brief(place), part: scene.parts[scene.nodes.part[place]], degree: scene.nodes.degree[place], neighbours, short: true, full: stored.full.length };
}
