// The learned filters: weights, and what excites them.
import { fill, make, signed, table, tell, write } from "./elements.js";
import { heatTable } from "./feature_map.js";
import { ask } from "./source.js";

export class FiltersView {
  /** @param {HTMLElement} place @param {(node: any) => any} link */
  constructor(place, link) {
    this.place = place;
    this.link = link;
    this.isLoaded = false;
  }

  /** Called when the view is opened. */
  open() {
    if (this.isLoaded) return;
    this.isLoaded = true;
    this.place.replaceChildren(make("p", { class: "muted" }, "Trying the filters on every node …"));
    fill(this.place, async () => {
      const all = await ask({ ask: "filters" });
      this.detail = make("div", {});
      const rows = all.filters.map((/** @type {any} */ f) => [make("th", { scope: "row" }, make("button", { type: "button", class: "node", onclick: () => this.bring(all, f.filter) }, `filter ${f.filter}`)), write(f.answer), write(f.size)]);
      this.choose(all, all.filters[0].filter);
      return [make("h2", {}, "What the filters look for"),
        make("p", { class: "muted" }, `Each filter reads ${all.slots === 1 ? "1 slot" : `${all.slots} slots`} (${all.slots === 1 ? "a row" : "rows"} of a feature map) and ${all.kernel_size} features at a time, and moves on by ${all.stride}${all.slots < all.bandwidth ? ` features, and by 1 of the ${all.bandwidth} slots` : ""}. The same weights are used at every place, so a filter has no features of its own: it looks for a pattern of neighbouring features. Blue weights are positive, orange ones negative.`),
        this.detail, make("h3", {}, "All filters"), table("All filters", ["Filter", ">Its largest answer, mean over nodes", ">Length of its weights"], rows)];
    });
  }

  /** Show a filter that was chosen in the list below, and bring it into sight. @param {any} all @param {number} number */
  async bring(all, number) {
    await this.choose(all, number);
    this.detail?.scrollIntoView({ block: "start" });
    tell(`Filter ${number} is shown above the list`);
  }

  /** @param {any} all @param {number} number */
  choose(all, number) {
    return fill(this.detail, async () => {
      const filter = await ask({ ask: "filter", filter: number });
      const name = (/** @type {number} */ slot) => (all.slots < all.bandwidth ? `slot +${slot}` : slot === 0 ? "slot 0 (the node)" : `slot ${slot}`);
      const rows = filter.weights.map((/** @type {any} */ _, /** @type {number} */ slot) => ({ text: name(slot) }));
      const places = filter.places.map((/** @type {any} */ p) => [make("th", { scope: "row" }, this.link(p)), `${p.first} to ${p.last}`, signed(p.answer)]);
      const features = filter.features.map((/** @type {any} */ f) => [f.name, signed(f.sum)]);
      return [make("h3", {}, `Filter ${number}: weights by slot and position`), heatTable(`Weights of filter ${number}`, rows, filter.weights[0].map((/** @type {number} */ _, /** @type {number} */ i) => `position ${i}`), filter.weights),
        make("h3", {}, "Nodes that excite it most"), table("Nodes that excite it most", ["Node", "Feature numbers", ">Answer"], places),
        make("h3", {}, "Features that excite it most"), features.length ? table("Features that excite it most", ["Feature", ">Sum"], features) : null,
        make("p", { class: "muted" }, `Value times weight, added up over the strongest place of each of the ${filter.num_places} nodes that excite it most, of ${all.num_nodes} tried.`)];
    });
  }
}
