// The page: scene, picture, controls and views, and what happens when a node is chosen.
import { find, make, pause, tell } from "./elements.js";
import { ask, gexf, isFile, start } from "./source.js";
import { groupings, swatch } from "./colours.js";
import { Picture } from "./picture.js";
import { Search } from "./search.js";
import { NodeView } from "./node.js";
import { WhatIfView } from "./what_if.js";
import { FiltersView } from "./filters.js";
import { MistakesView } from "./mistakes.js";

const SOON = 100; // milliseconds that what is known of a node waits for the reasons

class App {
  /** @param {any} scene */
  constructor(scene) {
    this.scene = scene;
    /** @type {Set<number>} */ this.hidden = new Set();
    /** @type {Set<number>} */ this.listed = new Set();
    /** @type {(i: number) => boolean} */ this.isFound = () => false;
    this.colour = scene.model ? "prediction" : "class";
    this.show = "all";
    this.positions = "learned" in scene.positions ? "learned" : "structure";
    this.turn = 0;
    this.view = "node";
    /** @type {Record<string, {name: string, view: any}>} */ this.views = {};
    this.ways = groupings(scene);
    this.picture = new Picture(find("picture"), (id) => this.choose(id));
    this.makeViews();
    this.makeControls();
    this.search = new Search(scene, (id) => this.choose(id, { bring: true }), (isFound) => this.onSearch(isFound));
    this.draw();
  }

  makeViews() {
    const { scene } = this;
    const choose = (/** @type {number} */ id) => this.choose(id, { bring: true, open: true });
    const { views } = this;
    const add = (/** @type {string} */ key, /** @type {string} */ name, /** @type {(place: HTMLElement) => any} */ build) => {
      const place = make("div", { role: "tabpanel", id: `view-${key}`, "aria-labelledby": `tab-${key}`, tabindex: 0, hidden: true });
      find("views").append(place);
      views[key] = { name, view: build(place) };
    };
    add("node", "Node", (place) => (this.node = new NodeView(place, scene, choose)));
    const link = (/** @type {any} */ node) => /** @type {NodeView} */ (this.node).link(node);
    if (scene.model && !isFile) add("what-if", "What if", (place) => (this.whatIf = new WhatIfView(place, scene, (name) => this.findNode(name), link)));
    if (scene.has_maps) add("filters", "Filters", (place) => new FiltersView(place, link));
    if (scene.model) add("mistakes", "Mistakes", (place) => new MistakesView(place, scene, link, (name, ids) => this.onList(name, ids)));
    const keys = Object.keys(views);
    const onkeydown = (/** @type {KeyboardEvent} */ event) => {
      const by = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
      if (!by) return;
      const next = keys[(keys.indexOf(this.view) + by + keys.length) % keys.length];
      this.open(next);
      find(`tab-${next}`).focus();
    };
    find("tabs").append(...keys.map((key) => make("button", { type: "button", role: "tab", id: `tab-${key}`, "aria-controls": `view-${key}`, onclick: () => this.open(key), onkeydown }, views[key].name)));
    this.open("node");
  }

  /** Open a view. @param {string} key */
  open(key) {
    this.view = key;
    for (const other of Object.keys(this.views)) {
      find(`view-${other}`).hidden = other !== key;
      find(`tab-${other}`).setAttribute("aria-selected", String(other === key));
      find(`tab-${other}`).tabIndex = other === key ? 0 : -1;
    }
    this.views[key].view.open?.();
  }

  makeControls() {
    const { scene } = this;
    const options = (/** @type {string} */ id, /** @type {[string, string][]} */ values, /** @type {string} */ chosen, /** @type {(value: string) => void} */ then) => {
      const place = find(id);
      place.replaceChildren(...values.map(([value, text]) => make("option", { value, selected: value === chosen }, text)));
      place.onchange = () => then(place.value);
    };
    options("colour", Object.entries(groupings(scene)).map(([key, way]) => [key, way.title]), this.colour, (value) => {
      this.colour = value;
      this.hidden.clear();
      this.paint();
    });
    options("positions", Object.keys(scene.positions).map((key) => [key, key === "learned" ? "learned by the model" : "from the edges"]), this.positions, (value) => {
      this.positions = value;
      this.picture.move(value);
      this.picture.all();
    });
    const shows = [["all", "all nodes"], ...(scene.model ? [["wrong", "wrong predictions"], ["unsure", `unsure, below ${100 * scene.unsure}%`]] : []), ["test", "test nodes"], ["found", "nodes found by name"], ...(scene.model ? [["listed", "nodes listed in Mistakes"]] : [])];
    options("show", /** @type {[string, string][]} */ (shows), this.show, (value) => {
      this.show = value;
      this.paint();
    });
    find("zoom-in").onclick = () => this.picture.zoom(1 / 1.5);
    find("zoom-out").onclick = () => this.picture.zoom(1.5);
    find("zoom-all").onclick = () => this.picture.all();
    find("title").append(make("small", {}, ` · ${scene.num_nodes.toLocaleString("en")} nodes, ${scene.num_edges.toLocaleString("en")} edges`));
    if (gexf) find("export").append(make("a", { href: gexf, download: "graph.gexf" }, "Save as GEXF, for Gephi"));
  }

  /** Draw the scene anew. */
  draw() {
    this.ways = groupings(this.scene);
    this.picture.grouping = this.ways[this.colour];
    this.picture.isShown = (i) => this.isShown(i);
    this.picture.show(this.scene, this.positions in this.scene.positions ? this.positions : "structure");
    this.list();
  }

  /** Whether a node is among those that "Show" names, and not hidden by the legend. @param {number} i */
  isShown(i) {
    return !(this.hidden.size && this.hidden.has(this.ways[this.colour].of(i))) && this.isMeant(i);
  }

  /** Whether a node is among those that "Show" names. @param {number} i */
  isMeant(i) {
    const { nodes, unsure } = this.scene;
    if (this.show === "all") return true;
    if (this.show === "wrong") return nodes.label[i] >= 0 && nodes.label[i] !== nodes.predicted[i];
    if (this.show === "unsure") return nodes.confidence[i] < unsure;
    if (this.show === "test") return this.scene.parts[nodes.part[i]] === "test";
    return this.show === "found" ? this.isFound(i) : this.listed.has(nodes.id[i]);
  }

  /** Colour the nodes, and list the colours. */
  paint() {
    this.picture.grouping = this.ways[this.colour];
    this.picture.refresh();
    this.list();
  }

  /** List the colours, and say how many nodes are shown. */
  list() {
    const way = this.ways[this.colour];
    const counts = way.groups.map(() => 0);
    let shown = 0;
    for (let i = 0; i < this.scene.names.length; i++) {
      if (!this.isMeant(i)) continue;
      counts[way.of(i)] += 1;
      shown += Number(this.isShown(i));
    }
    const toggle = (/** @type {number} */ group) => () => {
      if (!this.hidden.delete(group)) this.hidden.add(group);
      this.paint();
      find(`legend-${group}`)?.focus();
    };
    find("legend").replaceChildren(...way.groups.flatMap((group, g) => counts[g] || this.hidden.has(g) ? [make("button", { type: "button", id: `legend-${g}`, "aria-pressed": String(!this.hidden.has(g)), title: "Hide or show these nodes", onclick: toggle(g) }, make("i", { "--colour": swatch(group.colour) }), `${group.name} `, make("small", { class: "muted" }, counts[g]))] : []));
    const all = this.scene.names.length;
    this.picture.enlarge(shown);
    const text = shown < all ? `${shown.toLocaleString("en")} of ${all.toLocaleString("en")} nodes shown. ` : "";
    find("note").textContent = text + (this.scene.note ? `Drawn: ${this.scene.note}.` : "");
    if (text) tell(text);
  }

  /** @param {(i: number) => boolean} isFound */
  onSearch(isFound) {
    this.isFound = isFound;
    if (this.show === "found") this.paint();
  }

  /** @param {string} name @param {number[]} ids */
  onList(name, ids) {
    this.listed = new Set(ids);
    this.show = "listed";
    find("show").value = "listed";
    this.paint();
    this.picture.all(); // they may be far from what is in sight
    tell(`${ids.length} nodes: ${name}`);
  }

  /** The number of a node, also of one that is not in the picture. @param {string} name @returns {Promise<number | null>} */
  async findNode(name) {
    const i = this.scene.names.indexOf(name);
    if (i >= 0) return this.scene.nodes.id[i];
    if (this.scene.whole || isFile) return null;
    const found = await ask({ ask: "search", text: name.slice(0, 200) });
    return found.find((/** @type {any} */ node) => node.name === name)?.node ?? null;
  }

  /** Choose a node and show what is known about it. @param {number} id */
  async choose(id, { bring = false, open = false } = {}) {
    const turn = ++this.turn;
    const target = this.scene.nodes.predicted?.[this.picture.index.get(id) ?? -1];
    try {
      const asked = ask({ ask: "node", node: id });
      const reasons = target === undefined ? null : ask({ ask: "why", node: id, target });
      reasons?.catch(() => undefined); // the view shows what went wrong
      const node = await asked;
      if (reasons) await Promise.race([reasons.catch(() => undefined), pause(SOON)]); // all at once is painted once
      if (turn !== this.turn) return;
      if (!this.scene.whole && !isFile) {
        const scene = await ask({ ask: "scene", node: id });
        if (turn !== this.turn) return;
        Object.assign(this.scene, scene);
        this.draw();
      }
      /** @type {NodeView} */ (this.node).show(node, reasons);
      this.whatIf?.show(node);
      this.picture.choose(id, node.neighbours.map((/** @type {any} */ n) => n.node), bring);
      if (open || this.view !== "what-if") this.open("node");
      if (open && find("panel").getBoundingClientRect().top < 0) find("panel").scrollIntoView(); // below the picture, on a narrow page
      history.replaceState(null, "", `#node=${encodeURIComponent(node.name)}`);
      tell(`Node ${node.name} chosen${node.predicted === null ? "" : `, predicted ${this.scene.classes[node.predicted]}`}`);
    } catch (error) {
      find("note").textContent = error instanceof Error ? error.message : String(error);
    }
  }
}

ask({ ask: "scene" }).then(async (scene) => {
  const app = new App(scene);
  const hash = new URLSearchParams(location.hash.slice(1));
  const wanted = hash.get("node") ?? start;
  if (hash.get("view") === "mistakes" && app.views.mistakes) app.open("mistakes");
  if (wanted === null) return;
  const id = await app.findNode(wanted);
  if (id !== null) app.choose(id, { bring: true });
}).catch((error) => {
  find("picture").replaceChildren(make("p", { class: "message" }, error.message));
});
