// Where the reader looks: key x and query y at the upper left corner, pixels for an element.

const CLOSEST = 44;
const view = { x: 0, y: 0, scale: 1, left: 0, top: 0, width: 1, height: 1 };

const fittingScale = () => Math.min(view.width / Math.max(KV_LEN, 1), view.height / Math.max(Q_LEN, 1), CLOSEST);

function settle() {
  view.scale = clamp(view.scale, fittingScale(), Math.max(CLOSEST, fittingScale()));
  const along = (at, length, room) =>
    length <= room ? (length - room) / 2 : clamp(at, 0, length - room);
  view.x = along(view.x, KV_LEN, view.width / view.scale);
  view.y = along(view.y, Q_LEN, view.height / view.scale);
}

function showAll() {
  view.scale = fittingScale();
  settle();
}

// Zoom so that the place at (px, py) of the matrix stays where it is.
function zoomAt(px, py, factor) {
  const k = view.x + px / view.scale;
  const q = view.y + py / view.scale;
  view.scale *= factor;
  view.scale = clamp(view.scale, fittingScale(), Math.max(CLOSEST, fittingScale()));
  view.x = k - px / view.scale;
  view.y = q - py / view.scale;
  settle();
}

function pan(px, py) {
  view.x += px / view.scale;
  view.y += py / view.scale;
  settle();
}

function centreOn(q, k, scale) {
  view.scale = clamp(scale ?? view.scale, fittingScale(), Math.max(CLOSEST, fittingScale()));
  view.x = k + 0.5 - view.width / view.scale / 2;
  view.y = q + 0.5 - view.height / view.scale / 2;
  settle();
}

// The part of the view that the matrix covers, in pixels.
const covered = () => ({
  x0: Math.max(0, -view.x * view.scale),
  y0: Math.max(0, -view.y * view.scale),
  x1: Math.min(view.width, (KV_LEN - view.x) * view.scale),
  y1: Math.min(view.height, (Q_LEN - view.y) * view.scale),
});

const isWhole = () => view.scale <= fittingScale() * 1.001;

// The side of the cells that are drawn: the smallest power of two of at least two pixels.
function cellSide(least) {
  let side = 1;
  while (side * view.scale < least && side < Math.max(Q_LEN, KV_LEN)) side *= 2;
  return side;
}

// The element or the block under (px, py) of the matrix, or null outside of it.
function placeAt(px, py) {
  const q = Math.floor(view.y + py / view.scale);
  const k = Math.floor(view.x + px / view.scale);
  if (px < 0 || py < 0 || px >= view.width || py >= view.height) return null;
  if (q < 0 || k < 0 || q >= Q_LEN || k >= KV_LEN) return null;
  const side = view.scale >= 5 ? 1 : cellSide(10);
  const q0 = q - (q % side);
  const k0 = k - (k % side);
  return { q0, q1: Math.min(q0 + side, Q_LEN) - 1, k0, k1: Math.min(k0 + side, KV_LEN) - 1, side };
}
