// Elements of the page. Text from the graph only ever becomes text: there is no innerHTML anywhere.

/** @typedef {string | number | Node | null | undefined} Child */

/**
 * Make an element; keys that start with "on" are listeners, "--" style variables, others attributes.
 * @param {string} tag
 * @param {Record<string, any>} attributes
 * @param {...(Child | Child[])} children
 * @returns {any}
 */
export function make(tag, attributes = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (name.startsWith("--")) element.style.setProperty(name, String(value));
    else element.setAttribute(name, value === true ? "" : String(value));
  }
  for (const child of children.flat()) {
    if (child !== null && child !== undefined) element.append(child instanceof Node ? child : String(child));
  }
  return element;
}

/** @param {string} id @returns {any} */
export function find(id) {
  return document.getElementById(id);
}

/** Write a number with four digits, as the reports do. @param {number} value */
export function write(value) {
  if (value === 0) return "0";
  const size = Math.abs(value);
  return size >= 1e-4 && size < 1e6 ? String(Number(value.toPrecision(4))) : value.toExponential(2);
}

/** Write a share in percent; one that is not certain is never written as 0 or 100. @param {number} share */
export function percent(share) {
  if (share > 0 && share < 0.0005) return "<0.1%";
  if (share >= 0.9995 && share < 1) return ">99.9%";
  return `${(100 * share).toFixed(1)}%`;
}

/** Write a number with its sign. @param {number} value */
export function signed(value) {
  return (value > 0 ? "+" : "") + write(value);
}

/**
 * Make a table in a box; a heading that starts with ">" is that of numbers.
 * @param {string} name
 * @param {string[]} headings
 * @param {any[][]} rows cells: text, elements, or whole td elements
 */
export function table(name, headings, rows) {
  const isNumber = headings.map((heading) => heading.startsWith(">"));
  const head = headings.map((heading, i) => make("th", { scope: "col", class: isNumber[i] ? "number" : null }, heading.replace(/^>/, "")));
  const body = rows.map((cells) =>
    make("tr", {}, cells.map((cell, i) =>
      cell instanceof HTMLTableCellElement ? cell : i === 0 ? make("th", { scope: "row" }, cell) : make("td", { class: isNumber[i] ? "number" : "wide" }, cell))));
  return make("div", { class: "box", tabindex: 0, role: "group", "aria-label": name },
    make("table", {}, make("thead", {}, make("tr", {}, head)), make("tbody", {}, body)));
}

/** A cell with a number and a bar below it. @param {number} share @param {string} text */
export function barCell(share, text) {
  return make("td", { class: "number bar-cell", "--share": Math.max(0, Math.min(1, share)) }, text);
}

/** @param {any[][]} cards name, value, remark */
export function cards(cards) {
  return make("dl", { class: "cards" }, cards.map(([name, value, remark]) =>
    make("div", {}, make("dt", {}, name), make("dd", {}, value, " ", make("small", {}, remark)))));
}

/** A heading of a step of the method. @param {number} number @param {string} text */
export function step(number, text) {
  return make("h3", {}, make("span", { class: "step", "aria-hidden": "true" }, number), text);
}

/** A select. @param {[string, string][]} options value and text @param {string} chosen @param {(value: string) => void} onchange @param {Record<string, any>} attributes */
export function select(options, chosen, onchange, attributes = {}) {
  const element = make("select", { ...attributes, onchange: () => onchange(element.value) },
    options.map(([value, text]) => make("option", { value, selected: value === chosen }, text)));
  return element;
}

/** Show what a promise brings in `place`, or its error; of several only the last. @param {HTMLElement} place @param {() => Promise<Child[]>} work */
export async function fill(place, work) {
  const turn = String(Number(place.dataset.turn ?? 0) + 1);
  place.dataset.turn = turn;
  place.classList.add("busy");
  place.setAttribute("aria-busy", "true");
  /** @type {Child[]} */
  let children;
  try {
    children = await work();
  } catch (error) {
    children = [make("p", { class: "note", role: "note" }, error instanceof Error ? error.message : String(error))];
  }
  if (place.dataset.turn !== turn) return;
  place.classList.remove("busy");
  place.removeAttribute("aria-busy");
  place.replaceChildren(...children.filter((child) => child !== null && child !== undefined).map((child) => (child instanceof Node ? child : String(child))));
}

/** Wait. @param {number} milliseconds @returns {Promise<void>} */
export function pause(milliseconds) {
  return new Promise((resolve) => setTimeout(resolve, milliseconds));
}

/** Tell a screen reader. @param {string} text */
export function tell(text) {
  find("status").textContent = text;
}
