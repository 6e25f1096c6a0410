// Where the reader looks: key x and query y at the upper left corner, and pixels for an element.

const CLOSEST = 44;
const THINNEST = 160; // pixels of the shorter side of a long matrix, where its elements allow it
const view = { x: 0, y: 0, scale: 1, sx: 1, sy: 1, left: 0, top: 0, width: 1, height: 1 };

const fittingScale = () => Math.min(view.width / Math.max(KV_LEN, 1), view.height / Math.max(Q_LEN, 1), CLOSEST);

// Elements are square, but where one side of the matrix is so short that nothing were to be seen.
function setScale(scale) {
  const least = (length, room) => Math.min(CLOSEST, Math.min(THINNEST, room) / Math.max(length, 1));
  view.scale = clamp(scale, fittingScale(), CLOSEST);
  view.sx = Math.max(view.scale, least(KV_LEN, view.width));
  view.sy = Math.max(view.scale, least(Q_LEN, view.height));
}

function settle() {
  setScale(view.scale);
  const along = (at, length, room) =>
    length <= room ? (length - room) / 2 : clamp(at, 0, length - room);
  view.x = along(view.x, KV_LEN, view.width / view.sx);
  view.y = along(view.y, Q_LEN, view.height / view.sy);
}

function showAll() {
  setScale(0);
  settle();
}

// Zoom so that the place at (px, py) of the matrix stays where it is.
function zoomAt(px, py, factor) {
  const k = view.x + px / view.sx;
  const q = view.y + py / view.sy;
  setScale(view.scale * factor);
  view.x = k - px / view.sx;
  view.y = q - py / view.sy;
  settle();
}

function pan(px, py) {
  view.x += px / view.sx;
  view.y += py / view.sy;
  settle();
}

function centreOn(q, k, scale) {
  setScale(scale ?? view.scale);
  view.x = k + 0.5 - view.width / view.sx / 2;
  view.y = q + 0.5 - view.height / view.sy / 2;
  settle();
}

// The part of the view that the matrix covers, in pixels.
const covered = () => ({
  x0: Math.max(0, -view.x * view.sx),
  y0: Math.max(0, -view.y * view.sy),
  x1: Math.min(view.width, (KV_LEN - view.x) * view.sx),
  y1: Math.min(view.height, (Q_LEN - view.y) * view.sy),
});

const isWhole = () => view.scale <= fittingScale() * 1.001;

// Height and width of cells in elements: the smallest powers of two of at least `least` pixels.
function cellSides(least, { sx, sy } = view) {
  const side = (scale, length) => {
    let found = 1;
    while (found * scale < least && found < length) found *= 2;
    return found;
  };
  return [side(sy, Q_LEN), side(sx, KV_LEN)];
}

// The element or the block under (px, py) of the matrix, or null outside of it.
function placeAt(px, py) {
  const q = Math.floor(view.y + py / view.sy);
  const k = Math.floor(view.x + px / view.sx);
  if (px < 0 || py < 0 || px >= view.width || py >= view.height) return null;
  if (q < 0 || k < 0 || q >= Q_LEN || k >= KV_LEN) return null;
  const [high, wide] = Math.min(view.sx, view.sy) >= 5 ? [1, 1] : cellSides(10);
  return blockAt(q - (q % high), k - (k % wide), high, wide);
}

function blockAt(q0, k0, high, wide) {
  const q1 = Math.min(q0 + high, Q_LEN) - 1;
  const k1 = Math.min(k0 + wide, KV_LEN) - 1;
  return { q0, q1, k0, k1, single: high === 1 && wide === 1 };
}
