// Mistakes: the confusion matrix as a door to nodes, and what tells two classes apart.
import { fill, make, percent, select, signed, table } from "./elements.js";
import { ask } from "./source.js";

export class MistakesView {
  /** @param {HTMLElement} place @param {any} scene @param {(node: any) => any} link @param {(name: string, ids: number[]) => void} onList */
  constructor(place, scene, link, onList) {
    this.place = place;
    this.scene = scene;
    this.link = link;
    this.onList = onList;
    this.isLoaded = false;
  }

  /** Called when the view is opened. */
  open() {
    if (this.isLoaded) return;
    this.isLoaded = true;
    const parts = this.scene.mistakes.map((/** @type {string} */ part) => [part, part === "all" ? "all labelled nodes" : `${part} nodes`]);
    this.body = make("div", {});
    this.compared = make("div", {});
    this.place.replaceChildren(make("h2", {}, "Where the model errs"), make("label", {}, "Count ", select(parts, parts[0][0], (part) => this.count(part))), this.body, ...this.comparison());
    this.count(parts[0][0]);
  }

  /** @param {string} part */
  count(part) {
    fill(/** @type {any} */ (this.body), async () => {
      const answer = await ask({ ask: "mistakes", part });
      this.listed = make("div", {});
      const brief = (/** @type {number} */ id) => answer.nodes[id];
      const right = answer.num_nodes - answer.num_wrong;
      this.list("Most confident mistakes", answer.confident.map(brief), answer.num_wrong);
      return [make("p", {}, `${right} of ${answer.num_nodes} are right${answer.num_nodes ? ` (${percent(right / answer.num_nodes)})` : ""}, ${answer.num_wrong} are wrong. Rows are labels, columns predictions; press a number to see its nodes.`),
        answer.matrix ? this.matrix(answer, brief) : make("p", { class: "muted" }, "There are too many classes for a matrix."),
        make("p", {}, make("button", { type: "button", onclick: () => this.list("Most confident mistakes", answer.confident.map(brief), answer.num_wrong) }, "Most confident mistakes")), this.listed];
    });
  }

  /** @param {any} answer @param {(id: number) => any} brief */
  matrix(answer, brief) {
    const { classes } = this.scene;
    const head = make("tr", {}, make("td", {}), classes.map((/** @type {string} */ name) => make("th", { scope: "col", title: name }, name)));
    const body = answer.matrix.map((/** @type {number[]} */ row, /** @type {number} */ t) => {
      const total = row.reduce((a, b) => a + b, 0) || 1;
      return make("tr", {}, make("th", { scope: "row", title: classes[t] }, classes[t]), row.map((count, p) => {
        if (!count) return make("td", {}, make("span", { class: "muted" }, "0"));
        const name = `${count} of class ${classes[t]} predicted as ${classes[p]}`;
        const open = () => {
          const ids = answer.cells[`${t}-${p}`];
          this.list(`${classes[t]} predicted as ${classes[p]}`, ids.map(brief).filter(Boolean), count);
          this.onList(`${classes[t]} predicted as ${classes[p]}`, ids);
        };
        return make("td", {}, make("button", { type: "button", "aria-label": name, title: name, "--tone": t === p ? "var(--accent)" : "var(--no)", "--strength": `${Math.round(12 + (33 * count) / total)}%`, onclick: open }, count));
      }));
    });
    return make("div", { class: "box", tabindex: 0, role: "group", "aria-label": "Confusion matrix" },
      make("table", { class: "matrix" }, make("caption", { class: "unseen" }, "Rows are labels, columns predictions"), make("thead", {}, head), make("tbody", {}, body)));
  }

  /** @param {string} name @param {any[]} nodes @param {number} count */
  list(name, nodes, count) {
    const { classes } = this.scene;
    const rows = nodes.map((node) => [make("th", { scope: "row" }, this.link(node)), classes[node.label], classes[node.predicted], percent(node.confidence)]);
    this.listed.replaceChildren(make("h3", {}, name), nodes.length ? table(name, ["Node", "Label", "Predicted", ">Confidence"], rows) : make("p", { class: "muted" }, "There are none."),
      nodes.length < count ? make("p", { class: "muted" }, `The most confident ${nodes.length} of ${count}.`) : "");
  }

  comparison() {
    const options = this.scene.classes.map((/** @type {string} */ name, /** @type {number} */ c) => [String(c), name]);
    if (options.length < 2) return [];
    let [one, other] = [0, 1];
    const show = () => this.separate(one, other);
    return [make("h3", {}, "What tells two classes apart"),
      make("p", {}, make("label", {}, "One class ", select(options, "0", (value) => { one = Number(value); show(); })), " ", make("label", {}, "Another ", select(options, "1", (value) => { other = Number(value); show(); })), " ",
        make("button", { type: "button", onclick: show }, "Compare")), this.compared];
  }

  /** @param {number} one @param {number} other */
  separate(one, other) {
    fill(/** @type {any} */ (this.compared), async () => {
      if (one === other) throw new Error("Choose two different classes.");
      const swapped = one > other;
      const answer = await ask({ ask: "separate", one: Math.min(one, other), other: Math.max(one, other) });
      const names = [this.scene.classes[one], this.scene.classes[other]];
      const rows = answer.features.map((/** @type {any} */ f) => {
        const [a, b] = swapped ? [f.other, f.one] : [f.one, f.other];
        return [f.name, signed(a), signed(b), signed(a - b)];
      });
      return [table("What tells two classes apart", ["Feature", `>${names[0]}`, `>${names[1]}`, ">Difference"], rows),
        make("p", { class: "muted" }, "What a feature adds to the score of a class, as a mean over the nodes that are predicted as this class; the features for which the two differ most.")];
    });
  }
}
