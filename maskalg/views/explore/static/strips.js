// Around the matrix: positions along its sides, and the work of each row and column of tiles.

const RULER = { left: 86, top: 48 };
const STRIP = { right: 96, bottom: 76 };
const number = (x) => x.toLocaleString("en-US");

function layOut(width, height) {
  const narrow = width < 520;
  view.left = narrow ? 60 : RULER.left;
  view.top = RULER.top;
  view.width = Math.max(40, width - view.left - (narrow ? 60 : STRIP.right));
  view.height = Math.max(40, height - view.top - STRIP.bottom);
  view.wide = narrow ? 42 : 74;
  view.high = 42;
}

// Positions to name, at least so many elements apart.
function ticks(start, length, total, elements) {
  const step = 2 ** Math.max(0, Math.ceil(Math.log2(elements)));
  const found = [];
  for (let at = Math.max(0, Math.ceil(start / step) * step); at < Math.min(start + length, total); at += step) {
    found.push(at);
  }
  return found;
}

function drawRulers(place, font) {
  const { x0, y0, x1, y1 } = covered();
  const [left, top] = [view.left + x0, view.top + y0];
  context.textBaseline = "middle";
  context.strokeStyle = colours.faint;
  context.lineWidth = 1;
  context.font = `11px ${font}`;
  const { sx, sy } = view;
  const inside = (scale) => (scale >= 3 ? 0.5 : 0);
  for (const k of ticks(view.x, view.width / sx, KV_LEN, 66 / sx)) {
    const px = view.left + (k + inside(sx) - view.x) * sx;
    line(px, top - 6, px, top - 2);
    label(number(k), px, top - 15, "center", colours.soft);
  }
  for (const q of ticks(view.y, view.height / sy, Q_LEN, 36 / sy)) {
    const py = view.top + (q + inside(sy) - view.y) * sy;
    line(left - 6, py, left - 2, py);
    label(number(q), left - 9, py, "right", colours.soft);
  }
  context.font = `12px ${font}`;
  label("key", view.left + (x0 + x1) / 2, top - 33, "center", colours.soft);
  context.save();
  context.translate(left - 70, view.top + (y0 + y1) / 2);
  context.rotate(-Math.PI / 2);
  if (view.left > 60) label("query", 0, 0, "center", colours.soft);
  context.restore();
  if (place) drawPosition(place, left, top, font);
}

// The positions of the place pointed at, over the ticks.
function drawPosition({ q0, q1, k0, k1 }, left, top, font) {
  context.font = `600 11px ${font}`;
  const px = clamp(view.left + ((k0 + k1 + 1) / 2 - view.x) * view.sx, left, view.left + view.width);
  const py = clamp(view.top + ((q0 + q1 + 1) / 2 - view.y) * view.sy, top, view.top + view.height);
  const kText = number(k0);
  const qText = number(q0);
  const kWide = context.measureText(kText).width + 12;
  const qWide = context.measureText(qText).width + 10;
  chip(px - kWide / 2, top - 24, kWide);
  label(kText, px, top - 15, "center", colours.card);
  chip(left - 4 - qWide, py - 9, qWide);
  label(qText, left - 9, py, "right", colours.card);
}

function chip(x, y, width) {
  context.fillStyle = colours.ink;
  context.beginPath();
  context.roundRect(x, y, width, 18, 5);
  context.fill();
}

function line(x0, y0, x1, y1) {
  context.beginPath();
  context.moveTo(Math.round(x0) + 0.5, Math.round(y0) + 0.5);
  context.lineTo(Math.round(x1) + 0.5, Math.round(y1) + 0.5);
  context.stroke();
}

function label(text, x, y, align, colour) {
  context.textAlign = align;
  context.fillStyle = colour;
  context.fillText(text, x, y);
}

// Bars beside the matrix: tiles each row of tiles visits (forward), below: each column (backward).
function drawWork(work, font) {
  const { x0, x1, y1 } = covered();
  const right = view.left + x1 + 10;
  const below = view.top + y1 + 10;
  const { wide, high } = view;
  context.font = `11px ${font}`;
  bars(work.rows, [view.y, y1, view.sy], (at, thick, start, length, colour) => {
    context.fillStyle = colour;
    context.fillRect(right + start * wide, view.top + at, length * wide, thick);
  });
  bars(work.columns, [view.x, x1, view.sx], (at, thick, start, length, colour) => {
    context.fillStyle = colour;
    context.fillRect(view.left + at, below + start * high, thick, length * high);
  });
  label(wide < 60 ? "per row" : "work per row", right, view.top + y1 + 14, "left", colours.soft);
  label("work per column of tiles (backward)", view.left + x0, below + high + 12, "left", colours.soft);
}

const LEAST = 1 / 42;

function bars(work, [start, room, scale], draw) {
  if (!work.most) return;
  const perPixel = 1 / (scale * work.block);
  const thick = Math.max(1, 1 / perPixel);
  const gap = thick > 8 ? 1 : 0;
  for (let at = 0; at < room; ) {
    const tile = Math.floor((start + at / scale) / work.block);
    if (tile < 0) {
      at += Math.max(1, -start * scale);
      continue;
    }
    if (tile >= work.count) return;
    // The busiest of the tiles that share a pixel.
    let heaviest = tile;
    for (let other = tile + 1; other < Math.min(tile + perPixel, work.count); other++) {
      if (work.full[other] + work.partial[other] > work.full[heaviest] + work.partial[heaviest]) heaviest = other;
    }
    const from = thick > 1 ? (tile * work.block - start) * scale : at;
    const visible = Math.min(from + thick, room) - Math.max(from, 0) - gap;
    const full = work.full[heaviest] / work.most;
    const partial = work.partial[heaviest] / work.most;
    // What is little is still to be seen.
    draw(Math.max(from, 0), visible, 0, full && Math.max(full, LEAST), colours.full);
    draw(Math.max(from, 0), visible, full, partial && Math.max(partial, LEAST), colours.partial);
    at = thick > 1 ? Math.max(at + 1, from + thick + 0.01) : at + 1;
  }
}
