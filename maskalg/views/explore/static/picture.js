// The matrix: cells by their labels, single elements, the schedule and the place pointed at.

const BUDGET = 600; // parts looked at for one cell that the closed forms leave open
const STEP_MS = 10; // of work between two frames

const canvas = document.getElementById("matrix");
const context = canvas.getContext("2d");
const buffer = document.createElement("canvas");
const refined = new Map(); // labels found part by part, by the sides of the cells, then by place
let waiting = [];
let anyOpen = false;

function forgetLabels() {
  refined.clear();
  waiting = [];
}

// Paints the cells of these sides that meet the view into `target`, at its pixel scale: by their
// labels, or by the values of the bias.
function paintCells(target, { x, y, sx, sy, width, height }, sides, byBias) {
  const [high, wide] = sides;
  const columns = Math.ceil(KV_LEN / wide);
  const first = Math.max(0, Math.floor(x / wide));
  const end = Math.min(columns, Math.ceil((x + width / sx) / wide));
  const firstRow = Math.max(0, Math.floor(y / high));
  const endRow = Math.min(Math.ceil(Q_LEN / high), Math.ceil((y + height / sy) / high));
  if (end <= first || endRow <= firstRow) return;
  const image = new ImageData(end - first, endRow - firstRow);
  const pixels = new Uint32Array(image.data.buffer);
  const labels = new Uint8Array(pixels.length);
  const found = new Uint8Array(end - first);
  const known = refined.get(`${sides}`) ?? new Map();
  refined.set(`${sides}`, known);
  for (let row = firstRow, i = 0; row < endRow; row++) {
    if (high === 1 && wide === 1) {
      for (let k = first; k < end; k++) labels[i++] = kept(row, k) ? FULL : EMPTY;
      continue;
    }
    labelRow([row * high, Math.min((row + 1) * high, Q_LEN) - 1], wide, [first, end], found);
    for (let j = 0; j < found.length; j++) {
      let label = found[j];
      if (label === OPEN) {
        const place = row * columns + first + j;
        const better = known.get(place);
        if (better === undefined) waiting.push([sides, row, first + j, place]);
        else if (better === OPEN) anyOpen = true;
        label = better ?? OPEN;
      }
      labels[i++] = label;
    }
  }
  const place = { firstRow, first, rows: endRow - firstRow, columns: end - first, high, wide };
  if (byBias) paintValues(labels, place, pixels);
  else for (let i = 0; i < labels.length; i++) pixels[i] = colours.labels[labels[i]];
  buffer.width = image.width;
  buffer.height = image.height;
  buffer.getContext("2d").putImageData(image, 0, 0);
  target.imageSmoothingEnabled = false;
  target.drawImage(
    buffer,
    (first * wide - x) * sx,
    (firstRow * high - y) * sy,
    image.width * wide * sx,
    image.height * high * sy,
  );
}

// Looks at cells the closed forms left open, for a while; true when there was something to do.
function refineSome() {
  const started = performance.now();
  const work = waiting.length > 0;
  while (waiting.length && performance.now() - started < STEP_MS) {
    const [sides, row, column, place] = waiting.pop();
    const known = refined.get(`${sides}`);
    if (!known || known.has(place)) continue;
    const { q0, q1, k0, k1 } = blockAt(row * sides[0], column * sides[1], ...sides);
    known.set(place, decided(q0, q1, k0, k1, BUDGET));
  }
  return work;
}

function drawMatrix(pixelRatio, shown) {
  waiting = [];
  anyOpen = false;
  context.save();
  context.translate(view.left, view.top);
  context.beginPath();
  const { x0, y0, x1, y1 } = covered();
  context.rect(x0, y0, x1 - x0, y1 - y0);
  context.clip();
  context.fillStyle = colours.empty;
  context.fillRect(x0, y0, x1 - x0, y1 - y0);
  const sides = cellSides(2 / pixelRatio);
  paintCells(context, view, sides, shown.cells === "bias");
  if (sides[0] * view.sy >= 7) drawGrid(sides, colours.grid);
  if (shown.schedule !== "none") drawSchedule(shown);
  if (shown.place) drawPlace(shown.place);
  context.restore();
  context.strokeStyle = colours.line;
  context.strokeRect(view.left + x0 - 0.5, view.top + y0 - 0.5, x1 - x0 + 1, y1 - y0 + 1);
  return sides;
}

function drawGrid([high, wide], colour) {
  context.beginPath();
  context.strokeStyle = colour;
  context.lineWidth = 1;
  const { x, y, sx, sy } = view;
  // Lines that would fill the picture are left out.
  for (let k = Math.ceil(x / wide) * wide; wide * sx >= 7 && (k - x) * sx < view.width; k += wide) {
    const px = Math.round((k - x) * sx) + 0.5;
    context.moveTo(px, 0);
    context.lineTo(px, view.height);
  }
  for (let q = Math.ceil(y / high) * high; (q - y) * sy < view.height; q += high) {
    const py = Math.round((q - y) * sy) + 0.5;
    context.moveTo(0, py);
    context.lineTo(view.width, py);
  }
  context.stroke();
}

// The runs of each tile of rows (forward) or of columns (backward): boxes where there is room,
// their two ends where there is not.
function drawSchedule({ schedule, block }) {
  const byRows = schedule === "rows";
  const forms = byRows ? ROWS : COLUMNS;
  const [across, along] = byRows ? [view.y, view.x] : [view.x, view.y];
  const [scale, lengthwise] = byRows ? [view.sy, view.sx] : [view.sx, view.sy];
  const room = byRows ? view.height : view.width;
  const thick = block * scale;
  const every = Math.max(1, Math.ceil(1 / thick));
  const tiles = Math.ceil(forms.rows / block);
  const last = Math.min(tiles, Math.ceil((across + room / scale) / block));
  const first = Math.max(0, Math.floor(across / block));
  const inset = thick >= 7 ? Math.min(3, thick / 6) : 0;
  context.lineWidth = thick >= 7 ? 1.5 : 1;
  for (let tile = first - (first % every); tile < last; tile += every) {
    const q0 = tile * block;
    const at = (q0 - across) * scale;
    const runs = runsOf(forms, q0, Math.min(q0 + block, forms.rows) - 1, block);
    context.fillStyle = context.strokeStyle = colours.mark;
    for (const [from, upto, label] of thick >= 7 ? runs : stretches(runs)) {
      const start = (from * block - along) * lengthwise;
      const length = (upto - from) * block * lengthwise;
      if (thick >= 7) {
        context.setLineDash(label === PARTIAL ? [3, 2.5] : []);
        const box = [start + inset, at + inset, length - 2 * inset, thick - 2 * inset];
        context.strokeRect(...(byRows ? box : [box[1], box[0], box[3], box[2]]));
        continue;
      }
      for (const end of [start, start + length - 1.5]) {
        const size = Math.max(thick, 1);
        context.fillRect(...(byRows ? [end, at, 1.5, size] : [at, end, size, 1.5]));
      }
    }
  }
  context.setLineDash([]);
}

// Runs without their labels, neighbours joined.
function stretches(runs) {
  const joined = [];
  for (const [from, upto] of runs) {
    const before = joined[joined.length - 1];
    if (before && before[1] === from) before[1] = upto;
    else joined.push([from, upto]);
  }
  return joined;
}

function drawPlace({ q0, q1, k0, k1 }) {
  const left = (k0 - view.x) * view.sx;
  const top = (q0 - view.y) * view.sy;
  const width = (k1 - k0 + 1) * view.sx;
  const height = (q1 - q0 + 1) * view.sy;
  context.fillStyle = colours.grid;
  context.fillRect(0, top, view.width, height);
  context.fillRect(left, 0, width, view.height);
  context.lineWidth = 2;
  context.strokeStyle = colours.mark;
  context.strokeRect(left - 1, top - 1, width + 2, height + 2);
}
