// Labels of rectangles: from the closed forms, else by halving them until every part is decided.
// Never a wrong EMPTY or FULL: what is not decided within its budget is OPEN, and says so.

const EMPTY = 0;
const PARTIAL = 1;
const FULL = 2;
const OPEN = 3;

const SMALL = 16; // elements that are sooner computed than reasoned about

// The label of queries q0..q1 and keys k0..k1, looking at no more than `budget` parts of it.
function decided(q0, q1, k0, k1, budget) {
  let some = false;
  let dropped = false;
  let open = false;
  const note = (holds) => {
    if (holds) some = true;
    else dropped = true;
    return some && dropped;
  };
  const probes = [[q0, k0], [q0, k1], [q1, k0], [q1, k1], [middle(q0, q1), middle(k0, k1)]];
  for (const [q, k] of probes) if (note(kept(q, k))) return PARTIAL;
  const parts = [q0, q1, k0, k1];
  while (parts.length) {
    const d = parts.pop();
    const c = parts.pop();
    const b = parts.pop();
    const a = parts.pop();
    if ((b - a + 1) * (d - c + 1) <= SMALL) {
      for (let q = a; q <= b; q++) for (let k = c; k <= d; k++) if (note(kept(q, k))) return PARTIAL;
      continue;
    }
    const holds = over(a, b, c, d);
    if (holds !== SOME) {
      if (note(holds === YES)) return PARTIAL;
    } else if (--budget < 0) {
      open = true;
    } else if (b - a >= d - c) {
      const half = middle(a, b);
      parts.push(half + 1, b, c, d, a, half, c, d);
    } else {
      const half = middle(c, d);
      parts.push(a, b, half + 1, d, a, b, c, half);
    }
  }
  return open ? OPEN : some ? FULL : EMPTY;
}

const touchedMarks = new Uint8Array(1 << 16);
const unfullMarks = new Uint8Array(1 << 16);

// Labels of the tiles first..end-1 of one row of tiles by the closed forms alone.
function labelRow(rows, side, tiles, out) {
  const [first, end] = tiles;
  markTiles(ROWS.touched, KV_LEN, rows, side, tiles, touchedMarks);
  markTiles(ROWS.unfull, KV_LEN, rows, side, tiles, unfullMarks);
  for (let i = 0; i < end - first; i++) {
    const touched = touchedMarks[i];
    const unfull = unfullMarks[i];
    if (!touched) out[i] = EMPTY;
    else if (!unfull) out[i] = FULL;
    else out[i] = touched === 2 && unfull === 2 ? PARTIAL : OPEN;
  }
}

// The label of one rectangle and how it was found: by the closed forms, or part by part.
function labelOf(q0, q1, k0, k1, budget) {
  const marks = [ROWS.touched, ROWS.unfull].map((spans) => {
    let mark = 0;
    for (const span of spans) {
      const [low, high] = keyRange(span, KV_LEN, q0, q1);
      const from = Math.max(low, k0);
      const upto = Math.min(high, k1);
      if (from > upto || mark === 2) continue;
      // Sets and remainders are asked about the tile, as `markTiles` asks.
      if (inSpan(span, q0, q1, k0, k1)) mark = Math.max(mark, isSure(span) ? 2 : 1);
    }
    return mark;
  });
  if (!marks[0]) return { label: EMPTY, proved: true };
  if (!marks[1]) return { label: FULL, proved: true };
  if (marks[0] === 2 && marks[1] === 2) return { label: PARTIAL, proved: true };
  return { label: decided(q0, q1, k0, k1, budget), proved: false };
}

// All blocks of the matrix, rows first: for tests, and for the console of whoever is curious.
function allLabels(blockQ, blockKv, budget = Infinity) {
  const result = [];
  for (let q0 = 0; q0 < Q_LEN; q0 += blockQ) {
    const row = [];
    for (let k0 = 0; k0 < KV_LEN; k0 += blockKv) {
      const q1 = Math.min(q0 + blockQ, Q_LEN) - 1;
      const k1 = Math.min(k0 + blockKv, KV_LEN) - 1;
      row.push(labelOf(q0, q1, k0, k1, budget).label);
    }
    result.push(row);
  }
  return result;
}
