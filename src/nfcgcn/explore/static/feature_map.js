// A table of coloured cells: a feature map, or the weights of a filter.
import { make, write } from "./elements.js";

/**
 * @param {string} name
 * @param {{text: string, node?: any}[]} rows
 * @param {string[]} columns
 * @param {number[][]} cells
 */
export function heatTable(name, rows, columns, cells) {
  const largest = Math.max(1e-12, ...cells.flat().map(Math.abs));
  const head = make("tr", {}, make("td", {}), columns.map((text) => make("th", { scope: "col", title: text }, text)));
  const body = rows.map((row, j) =>
    make("tr", {}, make("th", { scope: "row", title: row.text }, row.node ?? row.text), cells[j].map((value, d) => cell(value, largest, `${columns[d]}, ${row.text}: ${write(value)}`))));
  return make("div", { class: "box map", tabindex: 0, role: "group", "aria-label": `${name}, scrolls sideways` },
    make("table", {}, make("caption", { class: "unseen" }, name), make("thead", {}, head), make("tbody", {}, body)));
}

/** @param {number} value @param {number} largest @param {string} title */
function cell(value, largest, title) {
  if (!value) return make("td");
  const strength = `${Math.round(15 + (85 * Math.abs(value)) / largest)}%`;
  const tone = value > 0 ? "var(--accent)" : "var(--no)";
  return make("td", { title, "--tone": tone, "--strength": strength }); // whose title a screen reader reads
}
