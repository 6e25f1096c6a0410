// The closed forms of the proof with numbers put in. For rows q0..q1 a span is the range of columns
// max(lows)..min(highs); outside of every touched span nothing is kept, outside of every unfull span
// nothing is dropped.

function keyRange(span, columns, q0, q1) {
  let low = 0;
  let high = columns - 1;
  for (const bound of span.lows) low = Math.max(low, bound(q0, q1));
  for (const bound of span.highs) high = Math.min(high, bound(q0, q1));
  for (const guard of span.guards) if (guard(q0, q1) < 0) high = -1;
  if (span.keys !== null) {
    low = firstFrom(span.keys, low);
    high = lastUntil(span.keys, high);
  }
  return [low, high];
}

// Whether the span marks a tile as soon as the tile holds one of its columns.
const isSure = (span) => span.exact && span.pairs.every((pair) => stepsOf(pair, B).contiguous);

// Whether rows q0..q1 and columns k0..k1 hold a pair with the residue, decided exactly.
function hasResidue(residue, q0, q1, k0, k1) {
  const most = (bounds, start) => bounds.reduce((x, bound) => Math.max(x, bound(q0, q1)), start);
  const least = (bounds, start) => bounds.reduce((x, bound) => Math.min(x, bound(q0, q1)), start);
  const qLow = most(residue.qLows, q0);
  const qHigh = least(residue.qHighs, q1);
  const kLow = most(residue.kLows, k0);
  const kHigh = least(residue.kHighs, k1);
  const low = most(residue.dLows, qLow - kHigh);
  const high = least(residue.dHighs, qHigh - kLow);
  if (qLow > qHigh || kLow > kHigh || low > high) return false;
  const modulus = residue.modulus(q0, q1);
  const wanted = residue.wanted(q0, q1) - residue.offset(q0, q1);
  const first = low + floorMod(wanted - low, modulus);
  if (residue.holds) return first <= high;
  return first !== low || (low < high && modulus > 1);
}

// Whether a tile within the range of a span holds one of its columns.
function inSpan(span, q0, q1, k0, k1) {
  if (span.keys !== null && !membersBetween(span.keys, k0, k1)) return false;
  return span.residue === null || hasResidue(span.residue, q0, q1, k0, k1);
}

// Marks tiles first..end-1 of `side` columns: 0 no span holds a column of it, 1 one may, 2 one does.
function markTiles(spans, columns, [q0, q1], side, [first, end], marks) {
  marks.fill(0, 0, end - first);
  for (const span of spans) {
    const [low, high] = keyRange(span, columns, q0, q1);
    if (low > high) continue;
    const mark = isSure(span) ? 2 : 1;
    const from = Math.max(first, Math.floor(low / side));
    const upto = Math.min(end, Math.floor(high / side) + 1);
    const thinned = span.keys !== null || span.residue !== null;
    for (let tile = from; tile < upto; tile++) {
      if (marks[tile - first] >= mark) continue;
      const k0 = tile * side;
      if (!thinned || inSpan(span, q0, q1, k0, Math.min(k0 + side, columns) - 1)) {
        marks[tile - first] = mark;
      }
    }
  }
}
