// The graph, drawn by sigma.
import { make } from "./elements.js";
import { seen } from "./colours.js";
import { drawLabel, drawMarks, shorten } from "./marks.js";

const MANY_EDGES = { cpu: 3000, gpu: 50_000 }; // by who draws: more are left out of a picture that moves
const MANY_NODES = 1000;
const REST = 120; // milliseconds without a move after which the picture is drawn anew
const MOST_RESTS = 5; // for which an answer that is on its way goes first
const DRAWN_BY_CPU = /swiftshader|llvmpipe|softpipe|software|basic render/i;

export class Picture {
  /** @param {HTMLElement} place @param {(id: number) => void} onChoose */
  constructor(place, onChoose) {
    this.place = place;
    this.onChoose = onChoose;
    /** @type {any} */ this.sigma = null;
    /** @type {any} */ this.scene = null;
    /** @type {import("./colours.js").Grouping | null} */ this.grouping = null;
    /** @type {(i: number) => boolean} */ this.isShown = () => true;
    /** @type {number | null} */ this.chosen = null;
    /** @type {number[]} */ this.near = [];
    /** @type {Map<number, number>} */ this.index = new Map();
    /** @type {any} */ this.marks = null; // a layer
    this.ink = this.card = this.line = "";
    this.drawn = 0;
    this.byCpu = false;
    this.larger = 1; // times the size of a node when all are shown
    this.dark = matchMedia("(prefers-color-scheme: dark)");
    this.dark.addEventListener("change", () => this.restyle());
    place.addEventListener("keydown", (event) => this.onKey(event));
  }

  /** Show a scene. @param {any} scene @param {string} positions */
  show(scene, positions) {
    this.sigma?.kill();
    this.sigma = null;
    this.scene = scene;
    this.place.replaceChildren();
    this.index = new Map(scene.nodes.id.map((/** @type {number} */ id, /** @type {number} */ i) => [id, i]));
    const graph = new graphology.UndirectedGraph({ allowSelfLoops: false });
    const [x, y] = scene.positions[positions];
    const scale = sizeAmong(scene.names.length);
    this.larger = 1;
    for (let i = 0; i < scene.names.length; i++) {
      graph.addNode(String(i), { x: x[i], y: y[i], size: scale * Math.min(1.6 + 0.8 * Math.sqrt(scene.nodes.degree[i]), 12), label: shorten(scene.names[i]) });
    }
    const [ones, others] = scene.edges;
    for (let e = 0; e < ones.length; e++) graph.addEdge(String(ones[e]), String(others[e]));
    this.drawn = graph.size;
    this.graph = graph;
    this.takeColours();
    try {
      this.sigma = new Sigma(graph, this.place, this.settings());
    } catch (error) {
      this.place.replaceChildren(make("p", { class: "message" }, "This browser cannot draw the picture (it needs WebGL). Search and lists work without it."));
      return;
    }
    this.marks = this.sigma.createCanvasContext("marks").getCanvases().marks;
    this.marks.style.pointerEvents = "none";
    this.sigma.on("afterRender", () => this.mark());
    this.byCpu = isDrawnByCpu(this.sigma.getCanvases().nodes);
    if (this.byCpu && graph.order > MANY_NODES) this.glide();
    if (!this.byCpu) this.sigma.setSetting("hideEdgesOnMove", this.drawn > MANY_EDGES.gpu);
    this.sigma.on("clickNode", (/** @type {any} */ { node }) => this.onChoose(scene.nodes.id[Number(node)]));
    this.sigma.on("enterNode", () => (this.place.style.cursor = "pointer"));
    this.sigma.on("leaveNode", () => (this.place.style.cursor = ""));
  }

  /** While a large picture is moved or zoomed, shift and stretch what is drawn, and draw anew when it rests: without a GPU drawing is slow, and so is each layer that is put on the page. */
  glide() {
    const { sigma } = this;
    const camera = sigma.getCamera();
    const draw = sigma.scheduleRender.bind(sigma);
    const { edges, nodes, labels, hovers, hoverNodes } = sigma.getCanvases();
    let drawn = camera.getState();
    let timer = 0;
    const shift = (/** @type {string} */ by) => {
      for (const layer of [edges, nodes, labels, hovers, hoverNodes]) layer.style.transform = by;
      for (const layer of [hovers, hoverNodes]) layer.hidden = by !== ""; // they hold the node under the pointer alone
    };
    /** @param {number} rests */
    const drawLater = (rests) => {
      if (rests && document.querySelector("[aria-busy]")) timer = setTimeout(() => drawLater(rests - 1), REST);
      else draw();
    };
    for (const layer of [edges, nodes, labels]) layer.style.transformOrigin = "0 0";
    sigma.on("afterRender", () => {
      clearTimeout(timer);
      drawn = camera.getState();
      shift("");
    });
    sigma.scheduleRender = () => {
      const now = camera.getState();
      clearTimeout(timer);
      if (now.angle !== drawn.angle || (now.ratio === drawn.ratio && now.x === drawn.x && now.y === drawn.y)) return draw();
      // Where two corners of the picture were drawn, and where they belong now.
      const at = (/** @type {any} */ cameraState) => [0, 1].map((x) => sigma.framedGraphToViewport({ x, y: x }, { cameraState }));
      const [[one, other], [toOne, toOther]] = [at(drawn), at(now)];
      const scale = (toOther.x - toOne.x) / (other.x - one.x);
      shift(`translate(${toOne.x - scale * one.x}px, ${toOne.y - scale * one.y}px) scale(${scale})`);
      this.mark();
      timer = setTimeout(() => drawLater(MOST_RESTS), REST);
      return sigma;
    };
  }

  /** Mark the chosen node on a layer of its own: the picture below need not be drawn anew. */
  mark() {
    if (this.sigma) drawMarks(this);
  }

  /** @returns {any} */
  settings() {
    const programs = Sigma.rendering;
    return {
      nodeReducer: (/** @type {string} */ node, /** @type {any} */ data) => this.reduceNode(Number(node), data),
      edgeReducer: (/** @type {string} */ edge, /** @type {any} */ data) => this.reduceEdge(edge, data),
      nodeProgramClasses: { circle: programs.NodePointProgram },
      edgeProgramClasses: { line: programs.EdgeLineProgram },
      defaultEdgeType: "line",
      defaultDrawNodeHover: (/** @type {CanvasRenderingContext2D} */ context, /** @type {any} */ data) => drawLabel(this, context, data),
      hideEdgesOnMove: this.drawn > MANY_EDGES.cpu,
      hideLabelsOnMove: this.graph.order > MANY_NODES,
      labelRenderedSizeThreshold: 9,
      labelDensity: 0.4,
      labelFont: "system-ui, sans-serif",
      labelSize: 12,
      labelColor: { color: this.ink },
      minCameraRatio: 0.005,
      maxCameraRatio: 4,
      allowInvalidContainer: true,
      stagePadding: 24,
    };
  }

  /** The colour of a node. @param {number} i */
  colour(i) {
    const group = this.grouping?.groups[this.grouping.of(i)];
    return seen(group?.colour ?? "#888888", this.dark.matches);
  }

  /** @param {number} i @param {any} data */
  reduceNode(i, data) {
    return this.isShown(i) ? { ...data, color: this.colour(i), size: data.size * this.larger } : { ...data, hidden: true };
  }

  /** @param {string} edge @param {any} data */
  reduceEdge(edge, data) {
    const [one, other] = this.graph.extremities(edge).map(Number);
    return { ...data, color: this.line, hidden: !this.isShown(one) || !this.isShown(other) };
  }

  /** Take the colours of the page, light or dark. */
  takeColours() {
    const style = getComputedStyle(document.body);
    const colour = (/** @type {string} */ name) => style.getPropertyValue(name).trim();
    [this.ink, this.card] = [colour("--ink"), colour("--card")];
    // Sigma adds colours up as they are: the parts of one that is see-through must be multiplied by its share before.
    const share = Math.min(0.5, Math.max(0.06, 700 / (this.drawn || 1)));
    const parts = (this.dark.matches ? [150, 165, 185] : [110, 125, 145]).map((part) => Math.round(part * share));
    this.line = `rgba(${parts.join(", ")}, ${share})`;
  }

  restyle() {
    this.takeColours();
    this.sigma?.setSetting("labelColor", { color: this.ink });
    this.refresh();
  }

  /** Draw nodes larger where few of them are shown. @param {number} shown */
  enlarge(shown) {
    const larger = sizeAmong(shown) / sizeAmong(this.scene.names.length);
    if (larger === this.larger) return;
    this.larger = larger;
    this.refresh();
  }

  refresh() {
    this.sigma?.scheduleRefresh();
  }

  /** Move the nodes to other positions. @param {string} positions */
  move(positions) {
    const [x, y] = this.scene.positions[positions];
    this.graph.updateEachNodeAttributes((/** @type {string} */ node, /** @type {any} */ data) => ({ ...data, x: x[Number(node)], y: y[Number(node)] }), { attributes: ["x", "y"] });
    this.refresh();
  }

  /** Mark a node, with lines to its neighbours, and bring it into sight. @param {number} id @param {number[]} neighbours @param {boolean} bring */
  choose(id, neighbours, bring) {
    this.chosen = this.index.get(id) ?? null;
    this.near = neighbours.flatMap((other) => this.index.get(other) ?? []);
    this.mark();
    const at = this.chosen === null ? null : this.sigma?.getNodeDisplayData(String(this.chosen));
    if (bring && at) this.go({ x: at.x, y: at.y, ratio: Math.min(this.sigma.getCamera().ratio, 0.35) });
  }

  /** @param {Record<string, number>} state */
  go(state) {
    const still = matchMedia("(prefers-reduced-motion: reduce)").matches || (this.byCpu && this.graph.order > MANY_NODES);
    const camera = this.sigma?.getCamera();
    if (still) camera?.setState(state);
    else camera?.animate(state, { duration: 250 });
  }

  /** @param {number} factor */
  zoom(factor) {
    if (this.sigma) this.go({ ratio: this.sigma.getCamera().getBoundedRatio(this.sigma.getCamera().ratio * factor) });
  }

  all() {
    this.go({ x: 0.5, y: 0.5, ratio: 1, angle: 0 });
  }

  /** @param {KeyboardEvent} event */
  onKey(event) {
    const camera = this.sigma?.getCamera();
    if (!camera || event.ctrlKey || event.metaKey || event.altKey) return;
    const by = camera.ratio * 0.12;
    /** @type {Record<string, () => void>} */
    const keys = {
      ArrowLeft: () => this.go({ x: camera.x - by }),
      ArrowRight: () => this.go({ x: camera.x + by }),
      ArrowUp: () => this.go({ y: camera.y + by }),
      ArrowDown: () => this.go({ y: camera.y - by }),
      "+": () => this.zoom(1 / 1.5),
      "=": () => this.zoom(1 / 1.5),
      "-": () => this.zoom(1.5),
      0: () => this.all(),
    };
    const action = keys[event.key];
    if (!action) return;
    event.preventDefault();
    action();
  }
}

/** How large a node is among so many. @param {number} count */
function sizeAmong(count) {
  return count < 300 ? 2 : count < 5000 ? 1 : 0.6;
}

/** Whether a canvas is drawn without a graphics card, as far as the browser says. @param {HTMLCanvasElement} canvas */
function isDrawnByCpu(canvas) {
  const gl = canvas.getContext("webgl2") ?? canvas.getContext("webgl");
  const names = gl?.getExtension("WEBGL_debug_renderer_info");
  return DRAWN_BY_CPU.test(String(gl?.getParameter(names?.UNMASKED_RENDERER_WEBGL ?? gl.RENDERER)));
}
