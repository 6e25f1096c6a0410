// The segments of tiles that were sent for a canvas. They hold for the numbers that were bound, and
// for tiles of their side; larger tiles are joined from them.

async function unpackVisits() {
  if (!data.visits) return;
  for (const [name, forms] of [["rows", ROWS], ["columns", COLUMNS]]) {
    const sent = data.visits[name];
    if (!sent) continue;
    const fields = ["count", "first", "length", "label"].map((field) => unpacked(sent[field]));
    const [count, first, length, label] = await Promise.all(fields);
    const starts = new Int32Array(count.length + 1);
    for (let i = 0; i < count.length; i++) starts[i + 1] = starts[i] + count[i];
    forms.visits = { shape: sent.shape, starts, first, length, label };
  }
}

const asBound = () => data.scalars.every((scalar) => S[scalar.slot] === scalar.value);
const areSent = (forms, block) => Boolean(forms.visits) && block % data.visits.block === 0 && asBound();

// The runs of the tile of rows that starts at q0, as `runsOf` gives them.
function sentRuns({ visits, columns }, q0, block) {
  const [batches, heads, rows] = visits.shape;
  const times = block / data.visits.block;
  const own = Math.min(B, batches - 1) * heads + Math.min(H, heads - 1);
  const row = q0 / data.visits.block;
  const height = Math.min(times, rows - row);
  const fine = Math.ceil(columns / data.visits.block);
  const count = Math.ceil(fine / times);
  // How many rows touch a tile from here on, and how many cover it with a full run.
  const touched = new Int32Array(count + 1);
  const full = new Int32Array(count + 1);
  const from = visits.starts[own * rows + row];
  const upto = visits.starts[own * rows + row + height];
  for (let i = from; i < upto; i++) {
    const [start, end] = [visits.first[i], visits.first[i] + visits.length[i]];
    touched[Math.floor(start / times)]++;
    touched[Math.ceil(end / times)]--;
    if (visits.label[i] !== FULL) continue;
    const inner = [Math.ceil(start / times), end === fine ? count : Math.floor(end / times)];
    if (inner[0] >= inner[1]) continue;
    full[inner[0]]++;
    full[inner[1]]--;
  }
  return runsOfCounts(touched, full, height);
}

function runsOfCounts(touched, full, height) {
  const runs = [];
  for (let tile = 0, some = 0, whole = 0; tile + 1 < touched.length; tile++) {
    some += touched[tile];
    whole += full[tile];
    if (!some) continue;
    const label = whole === height ? FULL : PARTIAL;
    const before = runs[runs.length - 1];
    if (before && before[1] === tile && before[2] === label) before[1]++;
    else runs.push([tile, tile + 1, label]);
  }
  return runs;
}
