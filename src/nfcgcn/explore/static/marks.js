// What marks the chosen node: a ring, its name, and lines to its neighbours.

const MANY_NEIGHBOURS = 30; // to more of them lines are thin and faint, or they would hide the picture
const LABEL_SIZE = 12;
const LONGEST = 40; // letters

/** A name in the picture. @param {string} name */
export function shorten(name) {
  const letters = [...name];
  return letters.length > LONGEST ? `${letters.slice(0, LONGEST - 1).join("")}…` : name;
}

/** Draw the marks where the camera sees the nodes now. @param {import("./picture.js").Picture} picture */
export function drawMarks(picture) {
  const { sigma, marks, chosen, near } = picture;
  const { width, height } = sigma.getDimensions();
  const dense = window.devicePixelRatio || 1;
  if (marks.width !== Math.round(width * dense) || marks.height !== Math.round(height * dense)) {
    [marks.width, marks.height] = [Math.round(width * dense), Math.round(height * dense)];
    [marks.style.width, marks.style.height] = [`${width}px`, `${height}px`];
  }
  marks.hidden = chosen === null;
  if (chosen === null) return;
  const context = marks.getContext("2d");
  context.setTransform(dense, 0, 0, dense, 0, 0);
  context.clearRect(0, 0, width, height);
  const cameraState = sigma.getCamera().getState();
  /** @param {number} i @param {number} more */
  const place = (i, more) => {
    const data = sigma.getNodeDisplayData(String(i));
    return { ...sigma.framedGraphToViewport(data, { cameraState }), size: sigma.scaleSize(picture.graph.getNodeAttribute(String(i), "size") * picture.larger + more, cameraState.ratio), label: shorten(picture.scene.names[i]) };
  };
  const centre = place(chosen, 5);
  const others = near.filter((i) => picture.isShown(i)).map((i) => ({ ...place(i, 1.5), colour: picture.colour(i) }));
  context.strokeStyle = picture.ink;
  context.lineWidth = others.length > MANY_NEIGHBOURS ? 1 : 1.6;
  context.globalAlpha = Math.max(0.2, Math.min(1, MANY_NEIGHBOURS / others.length));
  context.beginPath();
  for (const { x, y } of others) {
    context.moveTo(centre.x, centre.y);
    context.lineTo(x, y);
  }
  context.stroke();
  context.globalAlpha = 1;
  for (const { x, y, size, colour } of others) drawDisc(context, x, y, size, colour);
  drawDisc(context, centre.x, centre.y, centre.size, picture.colour(chosen));
  drawLabel(picture, context, centre);
}

/** @param {CanvasRenderingContext2D} context @param {number} x @param {number} y @param {number} size @param {string} colour */
function drawDisc(context, x, y, size, colour) {
  context.fillStyle = colour;
  context.beginPath();
  context.arc(x, y, size, 0, 2 * Math.PI);
  context.fill();
}

/** The ring and name of the chosen node and of the one under the pointer, in the page's colours. @param {import("./picture.js").Picture} picture @param {CanvasRenderingContext2D} context @param {any} data */
export function drawLabel(picture, context, data) {
  const text = data.label.length > 60 ? data.label.slice(0, 59) + "…" : data.label;
  context.font = `600 ${LABEL_SIZE}px system-ui, sans-serif`;
  const width = context.measureText(text).width;
  const [left, top] = [data.x + data.size + 3, data.y - LABEL_SIZE / 2 - 4];
  context.fillStyle = picture.card;
  context.strokeStyle = picture.ink;
  context.lineWidth = 1.5;
  context.beginPath();
  context.arc(data.x, data.y, data.size + 2, 0, 2 * Math.PI);
  context.stroke();
  context.beginPath();
  context.roundRect(left, top, width + 12, LABEL_SIZE + 8, 4);
  context.fill();
  context.lineWidth = 0.5;
  context.stroke();
  context.fillStyle = picture.ink;
  context.fillText(text, left + 6, data.y + LABEL_SIZE / 3);
}
