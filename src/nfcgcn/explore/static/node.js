// One node, in the steps of the paper's pipeline.
import { barCell, cards, fill, make, percent, select, signed, step, table, tell, write } from "./elements.js";
import { swatch } from "./colours.js";
import { heatTable } from "./feature_map.js";
import { ask } from "./source.js";

const FEW = 12;
const FEW_NEIGHBOURS = 40; // the others are listed when they are asked for

/** Whether the user's table holds something else than the value that the model gets. @param {{cell?: string, value: number}} feature */
export function isOther({ cell, value }) {
  return Boolean(cell) && write(Number(cell)) !== write(value);
}

export class NodeView {
  /** @param {HTMLElement} place @param {any} scene @param {(id: number) => void} onChoose */
  constructor(place, scene, onChoose) {
    this.place = place;
    this.scene = scene;
    this.onChoose = onChoose;
    /** @type {{node: any, kind: string} | null} */ this.mapped = null;
    place.append(make("p", { class: "muted" }, "Click a node in the picture, or find one by its name, to see what the model makes of it."));
  }

  /** A node as a button that chooses it. @param {any} node */
  link(node) {
    const group = this.scene.model === null || node.predicted === undefined ? node.label : node.predicted;
    const colour = group === null || group === undefined || group < 0 ? null : this.scene.colours[group];
    const dot = colour === null ? null : make("span", { class: "dot", "--colour": swatch(colour) });
    return make("span", { class: "named" }, dot, make("button", { type: "button", class: "node", onclick: () => this.onChoose(node.node) }, node.name));
  }

  /** @param {any} node the answer about it @param {Promise<any> | null} reasons for its class, if they are on their way */
  show(node, reasons = null) {
    const maker = node.probabilities ? this.withModel(node, reasons) : this.withoutModel(node);
    this.place.replaceChildren(...maker.filter((part) => part !== null));
    this.place.scrollTop = 0;
  }

  /** @param {any} node */
  head(node) {
    const { classes } = this.scene;
    const label = node.label < 0 ? "no label" : classes[node.label];
    const facts = [["Label", label, node.part === "no part" ? "" : `${node.part} node`], ["Neighbours", String(node.degree), ""]];
    if (node.predicted !== null) {
      const verdict = node.label < 0 ? "" : node.label === node.predicted ? ", right" : ", wrong";
      facts.unshift(["Predicted class", classes[node.predicted], `${percent(node.confidence)}${verdict}`]);
    }
    return [make("h2", {}, `Node ${node.name}`), cards(facts)];
  }

  /** @param {any} node */
  withoutModel(node) {
    const note = node.short && this.scene.model !== null ? make("p", { class: "note", role: "note" }, `This file has full answers for ${node.full} nodes, and this is not one of them. \`nfcgcn explore\` answers for every node.`) : null;
    return [...this.head(node), note, node.columns ? step(1, "The node's features") : null, this.columns(node), step(node.columns ? 2 : 1, "Neighbours"), this.neighbours(node)];
  }

  /** @param {any} node @param {Promise<any> | null} asked */
  withModel(node, asked) {
    const reasons = make("div", {});
    this.reasons = reasons;
    this.mapPlace = make("div", {});
    this.mapped = null;
    const parts = [...this.head(node), step(1, "The node's features"), this.columns(node), step(2, node.map ? "Neighbours, and those drawn for the feature map" : "Neighbours"), this.neighbours(node)];
    let number = 3;
    if (node.map) {
      parts.push(this.slots(node), step(number++, "Feature map"), this.mapPlace, step(number++, "Convolution: the largest answers of the filters"), ...this.windows(node));
      this.map(node, null);
      parts.push(step(number++, "Graph convolutions"), make("p", { class: "muted" }, this.depth(node)));
    }
    parts.push(step(number++, "Class probabilities"), this.probabilities(node), step(number, "Reasons"), this.chooser(node), reasons);
    this.why(node, node.predicted, asked);
    return parts;
  }

  /** @param {any} node */
  columns(node) {
    if (!node.columns) return null;
    if (!node.columns.length) return make("p", { class: "muted" }, "All features of this node are 0.");
    const hasCells = node.columns.some(isOther);
    const rows = node.columns.map((/** @type {any} */ c) => [c.name, ...(hasCells ? [c.cell] : []), write(c.value)]);
    const headings = ["Feature", ...(hasCells ? ["Cell of the table"] : []), ">Value"];
    const more = rows.length > FEW ? make("details", {}, make("summary", {}, `${node.num_columns - FEW} more feature${node.num_columns > FEW + 1 ? "s that are" : " that is"} not 0${rows.length < node.num_columns ? `; the largest ${rows.length - FEW}` : ""}`), table("More features", headings, rows.slice(FEW))) : null;
    return make("div", {}, table("Features", headings, rows.slice(0, FEW)), more, hasCells ? make("p", { class: "muted" }, "The model gets the value; the cell is what your table of nodes holds.") : null);
  }

  /** @param {any} node */
  neighbours(node) {
    if (!node.neighbours.length) return make("p", { class: "muted" }, "This node has no neighbours.");
    const chips = (/** @type {any[]} */ nodes) => make("ul", { class: "chips" }, nodes.map((other) => make("li", {}, this.link(other))));
    const [first, rest] = [node.neighbours.slice(0, FEW_NEIGHBOURS), node.neighbours.slice(FEW_NEIGHBOURS)];
    const left = node.degree - node.neighbours.length;
    const open = (/** @type {Event} */ event) => {
      const place = /** @type {HTMLElement} */ (event.target);
      if (place.childElementCount === 1) place.append(chips(rest), left > 0 ? make("p", { class: "muted" }, `and ${left} more`) : "");
    };
    const more = rest.length ? make("details", { ontoggle: open }, make("summary", {}, `${node.degree - first.length} more neighbours`)) : null;
    return make("div", {}, chips(first), more);
  }

  /** @param {any} node */
  slots(node) {
    const drawn = node.map.slots.filter((/** @type {any} */ s) => !s.own).length;
    const copies = node.map.slots.length - 1 - drawn;
    if (!node.degree) return make("p", { class: "muted" }, `The feature map has ${node.map.slots.length} rows, called slots. All hold the node itself, because it has no neighbours.`);
    return make("p", { class: "muted" }, `The feature map has ${node.map.slots.length} rows, called slots: the node itself, ${drawn} of its ${node.degree} neighbours, drawn at random${copies ? `, and ${copies} more of the node itself` : ""}.`);
  }

  /** Draw the map, coloured by values or by contributions. @param {any} node @param {any} why */
  map(node, why) {
    const { slots, features, cells, num_features: count, kernel_size: size, stride } = node.map;
    const kinds = [["values", "values"], ...(why?.cells ? [["contributions", `contributions to ${this.scene.classes[why.target]}`]] : [])];
    const kind = kinds.length > 1 && this.mapKind === "contributions" ? "contributions" : "values";
    let shown = cells;
    if (kind === "contributions") {
      const column = new Map(features.map((/** @type {any} */ f, /** @type {number} */ d) => [f.feature, d]));
      shown = cells.map((/** @type {number[]} */ row) => row.map(() => 0));
      for (const [slot, feature, added] of why.cells) if (column.has(feature)) shown[slot][column.get(feature)] = added;
    }
    const rows = slots.map((/** @type {any} */ s, /** @type {number} */ j) => ({ text: `slot ${j}: ${s.name}`, node: make("span", {}, s.own ? `${s.name}${j ? " again" : " (itself)"}` : s.name) }));
    const less = features.length < count ? ` Of ${count} such features, the ${features.length} with the largest values are shown.` : "";
    const chooser = make("label", {}, "Colour the cells by ", select(/** @type {any} */ (kinds), kind, (/** @type {string} */ value) => { this.mapKind = value; this.map(node, why); }));
    if (this.mapped?.node === node && this.mapped?.kind === "values" && kind === "values") return this.mapPlace.firstChild.replaceWith(chooser); // the cells stay
    this.mapped = { node, kind };
    this.mapPlace.replaceChildren(chooser,
      heatTable("Feature map", rows, features.map((/** @type {any} */ f) => f.name.replace(/^feature (?=\d+$)/, "")), shown),
      make("p", { class: "muted" }, `One row per slot, one column per feature that is not 0 in any of them, in the order of the data.${less} Filters slide over this map: each reads ${size} neighbouring features at a time and moves on by ${stride}. Blue is positive, orange negative; a stronger colour is a larger number.`));
  }

  /** @param {any} node */
  windows(node) {
    const { windows, shape, activation } = node.map;
    const rows = windows.map((/** @type {any} */ w) => [
      make("button", { type: "button", class: "node", title: "Mark this window in the feature map", "aria-label": `Mark the window of filter ${w.filter} at features ${w.first} to ${w.last} in the feature map`, onclick: () => this.mark(node, w) }, `filter ${w.filter}`), `${w.first} to ${w.last}${shape[0] > 1 ? `, slots ${w.slots[0]} to ${w.slots[1]}` : ""}`, w.mostly, signed(activation === "none" ? w.answer : w.after)]);
    return [table("Windows that answered most", ["Filter", "Feature numbers", "Mostly because of", ">Answer"], rows),
      make("p", { class: "muted" }, `The part of the map that a filter reads at a time is a window. Its answer is the sum of the values in the window, each times a learned weight${activation === "none" ? "" : `, followed by ${activation}`}. ${shape[1]} filters answer at ${shape[0] * shape[2]} window${shape[0] * shape[2] === 1 ? "" : "s"} each; these are the largest answers of either sign. Press a filter to mark its window in the map.`)];
  }

  /** Mark a window in the feature map, and bring it into sight. @param {any} node @param {any} window */
  mark(node, window) {
    const { slots, features } = node.map;
    const isInside = (/** @type {number} */ j, /** @type {number} */ d) => window.slots[0] <= j && j <= window.slots[1] && window.first <= features[d].feature && features[d].feature <= window.last;
    const rows = this.mapPlace.querySelectorAll("tbody tr");
    for (let j = 0; j < slots.length; j++) {
      for (let d = 0; d < features.length; d++) rows[j].children[d + 1].classList.toggle("marked", isInside(j, d));
    }
    this.mapPlace.querySelector(".marked")?.scrollIntoView({ block: "center", inline: "center" });
    tell(`The window of filter ${window.filter} is marked in the feature map`);
  }

  /** @param {any} node */
  depth(node) {
    if (!node.depth) return "This model has none: a linear layer reads the answers of the filters.";
    const layers = node.depth === 1 ? "One layer mixes" : `${node.depth} layers mix`;
    return `${layers} what the filters said about this node with what they said about its neighbours, and nodes with many neighbours count less. So the score depends on nodes up to ${node.depth + 1} edges away.`;
  }

  /** @param {any} node */
  probabilities(node) {
    const order = node.probabilities.map((/** @type {number} */ _, /** @type {number} */ c) => c).sort((/** @type {number} */ a, /** @type {number} */ b) => node.probabilities[b] - node.probabilities[a]);
    const rows = order.map((/** @type {number} */ c) => {
      const cells = [make("th", { scope: "row" }, this.scene.classes[c], c === node.label ? make("small", { class: "muted" }, " label") : null), barCell(node.probabilities[c], percent(node.probabilities[c]))];
      if (node.draws > 1) cells.push(make("td", { class: "number" }, `${percent(node.mean[c])} ± ${(100 * node.spread[c]).toFixed(1)}`));
      return cells;
    });
    return table("Class probabilities", ["Class", ">Probability", ...(node.draws > 1 ? [`>Mean ± deviation over ${node.draws} draws of neighbours`] : [])], rows);
  }

  /** @param {any} node */
  chooser(node) {
    const options = this.scene.classes.map((/** @type {string} */ name, /** @type {number} */ c) => [String(c), c === node.predicted ? `${name} (predicted)` : name]);
    return make("label", {}, "Why, or why not, ", select(options, String(node.predicted), (value) => this.why(node, Number(value))));
  }

  /** @param {any} node @param {number} target @param {Promise<any> | null} asked the answer, if it is on its way */
  async why(node, target, asked = null) {
    await fill(/** @type {any} */ (this.reasons), async () => {
      const why = await (asked ?? ask({ ask: "why", node: node.node, target }));
      if (node.map) this.map(node, why);
      const rows = why.reasons.map((/** @type {any} */ r) => [
        make("th", { scope: "row" }, this.link({ node: r.node, name: r.name, label: -1 })), r.hops < this.scene.num_nodes ? r.hops : "no path", r.feature_name, make("td", { class: "number" }, write(r.value), isOther(r) ? make("small", { class: "muted cell" }, r.cell) : null),
        make("td", { class: `number ${r.contribution > 0 ? "plus" : "minus"}` }, signed(r.contribution))]);
      return [make("p", {}, make("strong", {}, why.title), "."), cards(why.cards), rows.length ? table("Largest contributions", ["Node", ">Edges away", "Feature", why.reasons.some(isOther) ? ">Value, cell" : ">Value", ">Contribution"], rows) : null,
        why.count > rows.length ? make("p", { class: "muted" }, `The largest ${rows.length} of ${why.count} contributions.`) : null, ...why.how.map((/** @type {string} */ text) => make("p", { class: "muted" }, text))];
    });
  }
}
