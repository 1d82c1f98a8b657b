// What if: change the chosen node and see what the model says. Nothing is kept.
import { barCell, fill, make, percent, select, table, tell, write } from "./elements.js";
import { isOther } from "./node.js";
import { ask } from "./source.js";

export class WhatIfView {
  /** @param {HTMLElement} place @param {any} scene @param {(name: string) => Promise<number | null>} findNode @param {(node: any) => any} link */
  constructor(place, scene, findNode, link) {
    this.place = place;
    this.scene = scene;
    this.findNode = findNode;
    this.link = link;
    /** @type {Map<number, {name: string, value: number}>} */ this.features = new Map();
    /** @type {Map<number, string>} */ this.added = new Map();
    /** @type {Map<number, string>} */ this.removed = new Map();
    this.draw = 0;
    place.append(make("p", { class: "muted" }, "Choose a node first."));
  }

  /** Take another node; it is asked about when the view is open. @param {any} node the answer about it */
  show(node) {
    this.node = node;
    this.isNew = true;
    if (!this.place.hidden) this.open();
  }

  /** Called when the view is opened. */
  open() {
    if (!this.isNew) return;
    this.isNew = false;
    const { node } = this;
    this.reset();
    this.result = make("div", { "aria-live": "polite" });
    this.changes = make("ul", {});
    this.place.replaceChildren(
      make("h2", {}, `What if node ${node.name} were different?`), this.featureForm(),
      !node.columns.some(isOther) ? "" : make("p", { class: "muted" }, "A value as the model gets it; the view Node lists values beside the cells of your table."), ...this.edgeForms(), this.drawForm(),
      make("h3", {}, "Changes"), this.changes, this.result,
      make("p", { class: "muted" }, "Nothing is written: the graph and the run stay as they are."));
    this.update();
  }

  reset() {
    this.features.clear();
    this.added.clear();
    this.removed.clear();
    this.draw = 0;
  }

  featureForm() {
    const names = this.scene.features;
    const name = make("input", { type: "text", list: "feature-names", autocomplete: "off" });
    const value = make("input", { type: "number", step: "any", value: 1, class: "short" });
    const listed = this.node.columns.map((/** @type {any} */ c) => c.name);
    const set = () => {
      const text = name.value.trim();
      const number = names ? names.indexOf(text) : Number(text.replace(/^feature /, "") || NaN);
      if (!Number.isInteger(number) || number < 0 || number >= this.scene.num_features) return this.refuse(`There is no feature "${text}".`);
      if (value.value === "" || !Number.isFinite(Number(value.value))) return this.refuse("A feature needs a number as its value.");
      this.features.set(number, { name: text, value: Number(value.value) });
      return this.update();
    };
    return this.form(set, make("datalist", { id: "feature-names" }, [...listed, ...(names ?? [])].slice(0, 3000).map((text) => make("option", { value: text }))),
      make("label", {}, names ? "Feature" : "Feature (its number)", name), make("label", {}, "Value", value), make("button", {}, "Set feature"));
  }

  edgeForms() {
    const neighbours = this.node.neighbours.map((/** @type {any} */ n) => [String(n.node), n.name]);
    const chosen = select(neighbours, neighbours[0]?.[0] ?? "", () => undefined);
    const remove = () => {
      const id = Number(chosen.value);
      this.removed.set(id, this.node.neighbours.find((/** @type {any} */ n) => n.node === id).name);
      this.update();
    };
    const other = make("input", { type: "text", autocomplete: "off", spellcheck: "false" });
    const add = async () => {
      const [{ node }, name] = [this, other.value.trim()];
      let [id, reason] = [/** @type {number | null} */ (null), `There is no node "${name}".`];
      try {
        id = await this.findNode(name);
      } catch (error) {
        reason = error instanceof Error ? error.message : String(error);
      }
      if (this.node !== node) return; // another one was chosen meanwhile
      if (id === null) this.refuse(reason);
      else {
        this.added.set(id, name);
        this.update();
      }
    };
    return [neighbours.length ? this.form(remove, make("label", {}, "Neighbour", chosen), make("button", {}, "Remove edge")) : null,
      this.form(add, make("label", {}, "Another node, by name", other), make("button", {}, "Add edge"))].filter((form) => form !== null);
  }

  drawForm() {
    if (!this.node.map) return make("div", {});
    const redraw = () => {
      this.draw += 1;
      this.update();
    };
    return make("p", {}, make("button", { type: "button", onclick: redraw }, "Draw other neighbours"));
  }

  /** @param {() => void} onsubmit @param {...any} children */
  form(onsubmit, ...children) {
    const submit = (/** @type {Event} */ event) => {
      event.preventDefault();
      onsubmit();
    };
    return make("form", { class: "form", onsubmit: submit }, children);
  }

  /** @param {string} reason */
  refuse(reason) {
    this.result.prepend(make("p", { class: "note", role: "note" }, reason));
    tell(reason);
  }

  /** @param {string} text @param {() => void} undo */
  item(text, undo) {
    const remove = () => {
      undo();
      this.update();
    };
    return make("li", {}, text, " ", make("button", { type: "button", "aria-label": `Undo: ${text}`, onclick: remove }, "undo"));
  }

  update() {
    const items = [
      ...[...this.features].map(([d, f]) => this.item(`${f.name} = ${write(f.value)}`, () => this.features.delete(d))),
      ...[...this.removed].map(([j, name]) => this.item(`no edge to ${name}`, () => this.removed.delete(j))),
      ...[...this.added].map(([j, name]) => this.item(`an edge to ${name}`, () => this.added.delete(j))),
      ...(this.draw ? [this.item(`other neighbours drawn for every node, draw ${this.draw}`, () => (this.draw = 0))] : []),
    ];
    this.changes.replaceChildren(...(items.length ? items : [make("li", { class: "muted" }, "none yet")]));
    return fill(this.result, () => this.compare());
  }

  async compare() {
    const features = Object.fromEntries([...this.features].map(([d, f]) => [d, f.value]));
    const answer = await ask({ ask: "what if", node: this.node.node, features, add: [...this.added.keys()], remove: [...this.removed.keys()], draw: this.draw });
    const { before, after } = answer;
    const order = before.map((/** @type {number} */ _, /** @type {number} */ c) => c).sort((/** @type {number} */ a, /** @type {number} */ b) => after[b] - after[a]);
    const rows = order.map((/** @type {number} */ c) => {
      const change = 100 * (after[c] - before[c]);
      const text = Math.abs(change) < 0.05 ? "0.0" : `${change > 0 ? "+" : "−"}${Math.abs(change).toFixed(1)}`;
      return [this.scene.classes[c], barCell(before[c], percent(before[c])), barCell(after[c], percent(after[c])), make("td", { class: `number ${text === "0.0" ? "" : change > 0 ? "plus" : "minus"}` }, text)];
    });
    const was = before.indexOf(Math.max(...before));
    const verdict = order[0] === was ? `The class stays ${this.scene.classes[was]}.` : `The class changes from ${this.scene.classes[was]} to ${this.scene.classes[order[0]]}.`;
    const others = answer.others ? `${answer.others} other node${answer.others > 1 ? "s" : ""} would change class${order[0] === was ? "" : ", too"}${answer.others > answer.first_others.length ? "; the first" : ""}:` : "No other node would change class.";
    tell(verdict);
    return [make("p", {}, make("strong", {}, verdict), ` ${others}`), answer.others ? make("ul", { class: "chips" }, answer.first_others.map((/** @type {any} */ other) => make("li", {}, this.link(other)))) : null,
      table("Probabilities before and after", ["Class", ">Before", ">After", ">Change, points"], rows),
      ...(answer.slots ? [make("p", { class: "muted" }, "In the slots of its feature map now:"), make("ul", { class: "chips" }, answer.slots.map((/** @type {any} */ s) => make("li", {}, this.link({ ...s, label: -1 }))))] : [])];
  }
}
