// Groups of nodes: what the legend lists, and the colour of each group.

const LOW_TO_HIGH = ["#d55e00", "#e69f00", "#b8a642", "#56a0c9", "#0072b2"];
const NOTHING = "#9aa3af";
const CONFIDENCE = [0.4, 0.6, 0.8, 0.95];
const DEGREES = [2, 4, 8, 16];
const DIMMEST = 95; // of 255, on a dark ground

/**
 * @typedef {{name: string, colour: string}} Group
 * @typedef {{title: string, groups: Group[], of: (i: number) => number}} Grouping
 */

/** The ways to colour a scene. @param {any} scene @returns {Record<string, Grouping>} */
export function groupings(scene) {
  const { label, predicted, confidence, degree, part } = scene.nodes;
  const classes = scene.classes.map((/** @type {string} */ name, /** @type {number} */ i) => ({ name, colour: scene.colours[i] }));
  /** @param {number} number @param {number[]} limits */
  const bin = (number, limits) => limits.filter((limit) => number >= limit).length;
  /** @type {Record<string, Grouping>} */
  const ways = {
    class: { title: "class", groups: [...classes, { name: "no label", colour: NOTHING }], of: (i) => (label[i] < 0 ? classes.length : label[i]) },
    degree: {
      title: "number of neighbours",
      groups: ["0 or 1", "2 or 3", "4 to 7", "8 to 15", "16 or more"].map((name, i) => ({ name, colour: LOW_TO_HIGH[4 - i] })),
      of: (i) => bin(degree[i], DEGREES),
    },
    part: { title: "part of the split", groups: scene.parts.map((/** @type {string} */ name, /** @type {number} */ i) => ({ name, colour: ["#0072b2", "#e69f00", "#009e73", NOTHING][i] })), of: (i) => part[i] },
  };
  if (!predicted) return ways;
  return {
    class: ways.class,
    prediction: { title: "predicted class", groups: classes, of: (i) => predicted[i] },
    error: {
      title: "right or wrong",
      groups: [{ name: "right", colour: "#56b4e9" }, { name: "wrong", colour: "#d55e00" }, { name: "no label", colour: NOTHING }],
      of: (i) => (label[i] < 0 ? 2 : Number(label[i] !== predicted[i])),
    },
    confidence: {
      title: "confidence",
      groups: ["below 40%", "40 to 60%", "60 to 80%", "80 to 95%", "95% or more"].map((name, i) => ({ name, colour: LOW_TO_HIGH[i] })),
      of: (i) => bin(confidence[i], CONFIDENCE),
    },
    part: ways.part,
    degree: ways.degree,
  };
}

/** A colour that can be seen on the page's ground: on a dark one, black is light grey and dark colours are paler. @param {string} colour @param {boolean} isDark */
export function seen(colour, isDark) {
  if (!isDark) return colour;
  if (colour === "#000000") return "#c9d1da";
  const parts = [1, 3, 5].map((i) => parseInt(colour.slice(i, i + 2), 16));
  const bright = 0.2126 * parts[0] + 0.7152 * parts[1] + 0.0722 * parts[2];
  const white = Math.max(0, (DIMMEST - bright) / (255 - bright));
  return `#${parts.map((part) => Math.round(part + white * (255 - part)).toString(16).padStart(2, "0")).join("")}`;
}

/** The colour of a group beside its name; it follows the page from light to dark. @param {string} colour */
export function swatch(colour) {
  return `light-dark(${colour}, ${seen(colour, true)})`;
}
