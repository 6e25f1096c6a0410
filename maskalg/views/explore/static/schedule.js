// What a kernel visits: for each tile of rows, runs of tiles of columns; and how much work that is.

// The runs of rows q0..q1 as [first tile, one past the last, label], in order.
function runsOf(forms, q0, q1, block) {
  if (areSent(forms, block)) return sentRuns(forms, q0, block);
  const ranges = (spans) => {
    const found = [];
    for (const span of spans) {
      const [low, high] = keyRange(span, forms.columns, q0, q1);
      if (low <= high) found.push([Math.floor(low / block), Math.floor(high / block) + 1]);
    }
    return found;
  };
  const touched = ranges(forms.touched);
  if (!touched.length) return [];
  const unfull = ranges(forms.unfull);
  const points = [...touched, ...unfull].flat().sort((a, b) => a - b);
  const runs = [];
  for (let i = 0; i + 1 < points.length; i++) {
    const [first, end] = [points[i], points[i + 1]];
    const inside = ([a, b]) => first >= a && first < b;
    if (first === end || !touched.some(inside)) continue;
    const label = unfull.some(inside) ? PARTIAL : FULL;
    const before = runs[runs.length - 1];
    if (before && before[1] === first && before[2] === label) before[1] = end;
    else runs.push([first, end, label]);
  }
  return runs;
}

// Tiles visited by each row of tiles; `most` and `total` of them.
function workOf(forms, block) {
  const count = Math.ceil(forms.rows / block);
  const partial = new Int32Array(count);
  const full = new Int32Array(count);
  let most = 0;
  let total = 0;
  let totalFull = 0;
  for (let row = 0; row < count; row++) {
    const q0 = row * block;
    for (const [first, end, label] of runsOf(forms, q0, Math.min(q0 + block, forms.rows) - 1, block)) {
      if (label === FULL) full[row] += end - first;
      else partial[row] += end - first;
    }
    most = Math.max(most, partial[row] + full[row]);
    total += partial[row] + full[row];
    totalFull += full[row];
  }
  const tiles = count * Math.ceil(forms.columns / block);
  return { block, count, partial, full, most, total, totalFull, tiles };
}
