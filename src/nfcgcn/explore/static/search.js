// Find a node by its name: type, move with the arrows, choose with Enter.
import { find, make, tell } from "./elements.js";
import { ask, isFile } from "./source.js";

const MOST = 20;

export class Search {
  /** @param {any} scene @param {(id: number) => void} onChoose @param {(isFound: (i: number) => boolean) => void} onSearch */
  constructor(scene, onChoose, onSearch) {
    this.scene = scene;
    this.onChoose = onChoose;
    this.onSearch = onSearch;
    this.input = find("search");
    this.list = find("found");
    this.active = -1;
    this.turn = 0;
    /** @type {{id: number, name: string}[]} */ this.results = [];
    this.input.addEventListener("input", () => this.search());
    this.input.addEventListener("keydown", (/** @type {KeyboardEvent} */ event) => this.onKey(event));
    this.input.addEventListener("blur", () => this.close());
    this.list.addEventListener("mousedown", (/** @type {Event} */ event) => event.preventDefault()); // or it would end the search
  }

  async search() {
    const text = this.input.value.trim();
    const wanted = text.toLowerCase();
    const turn = ++this.turn;
    this.onSearch((i) => wanted !== "" && this.scene.names[i].toLowerCase().includes(wanted));
    if (!wanted) return this.close();
    let [found, none] = [this.local(wanted), "no node has such a name"];
    if (!this.scene.whole && isFile) none = "no node in the picture has such a name";
    else if (!this.scene.whole) {
      try {
        found = (await ask({ ask: "search", text: text.slice(0, 200) })).map((/** @type {any} */ n) => ({ id: n.node, name: n.name }));
      } catch (error) {
        [found, none] = [[], error instanceof Error ? error.message : String(error)];
      }
    }
    if (turn !== this.turn) return;
    this.results = found;
    this.active = found.length ? 0 : -1;
    this.list.replaceChildren(...(found.length ? found.map((/** @type {any} */ node, /** @type {number} */ i) => this.option(node, i)) : [make("li", {}, none)]));
    this.list.hidden = false;
    this.input.setAttribute("aria-expanded", "true");
    this.mark();
    tell(!found.length ? none : found.length === 1 ? "1 node found" : `${found.length === MOST ? "more than " : ""}${found.length} nodes found`);
  }

  /** @param {string} wanted */
  local(wanted) {
    /** @type {{id: number, name: string}[][]} */ const found = [[], [], []]; // called so, begin so, hold it
    for (let i = 0; i < this.scene.names.length; i++) {
      const name = this.scene.names[i].toLowerCase();
      if (name.includes(wanted)) found[name === wanted ? 0 : name.startsWith(wanted) ? 1 : 2].push({ id: this.scene.nodes.id[i], name: this.scene.names[i] });
    }
    return found.flat().slice(0, MOST);
  }

  /** @param {{id: number, name: string}} node @param {number} i */
  option(node, i) {
    return make("li", { role: "option", id: `found-${i}`, "aria-selected": "false", onmousedown: () => this.take(i) }, node.name);
  }

  mark() {
    for (const [i, option] of [...this.list.children].entries()) {
      option.setAttribute("aria-selected", String(i === this.active));
      if (i === this.active) option.scrollIntoView({ block: "nearest" });
    }
    if (this.active >= 0) this.input.setAttribute("aria-activedescendant", `found-${this.active}`);
    else this.input.removeAttribute("aria-activedescendant");
  }

  /** @param {KeyboardEvent} event */
  onKey(event) {
    const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    if (step && this.results.length && !this.list.hidden) {
      event.preventDefault();
      this.active = (this.active + step + this.results.length) % this.results.length;
      this.mark();
    } else if (event.key === "Enter" && this.active >= 0 && !this.list.hidden) {
      event.preventDefault();
      this.take(this.active);
    } else if (event.key === "Escape") {
      this.close();
    }
  }

  /** @param {number} i */
  take(i) {
    const { id, name } = this.results[i];
    this.input.value = name;
    this.close();
    this.onChoose(id);
  }

  close() {
    this.list.hidden = true;
    this.input.setAttribute("aria-expanded", "false");
    this.input.removeAttribute("aria-activedescendant");
  }
}
