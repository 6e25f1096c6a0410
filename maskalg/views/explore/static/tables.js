// What the formulas read: numbers S and tensors T by slot, the batch entry B and the head H.
// Tables derived from tensors are made when they are first read, as `schedule/intervals/steps.py` and
// `schedule/positions/sets.py` make them.

const data = JSON.parse(document.getElementById("mask-data").textContent);
const Q_LEN = data.q_len;
const KV_LEN = data.kv_len;
const S = [];
const T = [];
let B = 0;
let H = 0;

for (const scalar of data.scalars) S[scalar.slot] = scalar.value;

const read = (table) => table.data[0];

function read1(table, i) {
  const n = table.shape[0];
  return n ? table.data[clamp(i, 0, n - 1)] : 0;
}

function read2(table, ...places) {
  let at = 0;
  for (let axis = 0; axis < places.length; axis++) {
    const n = table.shape[axis];
    if (!n) return 0;
    at = at * n + clamp(places[axis], 0, n - 1);
  }
  return table.data[at];
}

// ---- unpacking

async function unpackTables() {
  for (const record of data.tables) {
    T[record.slot] = { shape: record.shape, data: await unpacked(record), levels: null };
  }
}

async function unpacked(record) {
  const bytes = await inflated(record.data);
  const size = record.shape.reduce((a, b) => a * b, 1);
  if (record.type === "float64") return new Float64Array(joined(bytes, 8).buffer);
  if (record.type === "float32") return new Float32Array(joined(bytes, 4).buffer);
  const entries = record.type === "bool" ? new Uint8Array(size) : new Int32Array(size);
  if (record.coding === "bits") {
    for (let i = 0; i < size; i++) entries[i] = (bytes[i >> 3] >> (i & 7)) & 1;
    return entries;
  }
  const numbers = new Int32Array(joined(bytes, 4).buffer);
  let value = 0;
  if (record.coding === "plain") {
    for (let i = 0; i < size; i++) entries[i] = value = (value + numbers[i]) | 0;
    return entries;
  }
  const runs = numbers.length / 2;
  for (let run = 0, at = 0; run < runs; run++) {
    value = (value + numbers[runs + run]) | 0;
    entries.fill(value, at, (at += numbers[run]));
  }
  return entries;
}

async function inflated(text) {
  const bytes = Uint8Array.from(atob(text), (character) => character.charCodeAt(0));
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("deflate"));
  return new Uint8Array(await new Response(stream).arrayBuffer());
}

// The bytes of one place stand together; here they stand by entry again.
function joined(planes, size) {
  const count = planes.length / size;
  const bytes = new Uint8Array(planes.length);
  for (let place = 0; place < size; place++) {
    for (let i = 0; i < count; i++) bytes[i * size + place] = planes[place * count + i];
  }
  return bytes;
}

// ---- the smallest and the largest entry of a stretch of a table

const MOST_ROWS = 64;

function entries(table, ...places) {
  if (!table.data.length) return [0, 0];
  let stretches = [0];
  const last = places.length - 1;
  for (let axis = 0; axis < last; axis++) {
    const n = table.shape[axis];
    const low = clamp(places[axis][0], 0, n - 1);
    const high = clamp(places[axis][1], 0, n - 1);
    if ((high - low + 1) * stretches.length > MOST_ROWS) return extremes(table, 0, table.data.length - 1);
    const next = [];
    for (const at of stretches) for (let i = low; i <= high; i++) next.push(at * n + i);
    stretches = next;
  }
  const n = table.shape[last];
  const low = clamp(places[last][0], 0, n - 1);
  const high = clamp(places[last][1], 0, n - 1);
  let found = [Infinity, -Infinity];
  for (const at of stretches) {
    const [a, b] = extremes(table, at * n + low, at * n + high);
    found = [Math.min(found[0], a), Math.max(found[1], b)];
  }
  return found;
}

function extremes(table, low, high) {
  table.levels ??= levelsOf(table.data);
  let smallest = Infinity;
  let largest = -Infinity;
  for (const { mins, maxs } of table.levels) {
    if (low > high) break;
    if (low & 1) {
      smallest = Math.min(smallest, mins[low]);
      largest = Math.max(largest, maxs[low]);
      low++;
    }
    if (low <= high && !(high & 1)) {
      smallest = Math.min(smallest, mins[high]);
      largest = Math.max(largest, maxs[high]);
      high--;
    }
    low >>= 1;
    high >>= 1;
  }
  return [smallest, largest];
}

function levelsOf(entries) {
  const levels = [{ mins: entries, maxs: entries }];
  for (let { mins, maxs } = levels[0]; mins.length > 1; ) {
    const half = Math.ceil(mins.length / 2);
    const lower = new entries.constructor(half);
    const upper = new entries.constructor(half);
    for (let i = 0; i < half; i++) {
      const j = Math.min(2 * i + 1, mins.length - 1);
      lower[i] = Math.min(mins[2 * i], mins[j]);
      upper[i] = Math.max(maxs[2 * i], maxs[j]);
    }
    levels.push({ mins: lower, maxs: upper });
    mins = lower;
    maxs = upper;
  }
  return levels;
}

// ---- step tables: for positions of queries, where keys with the same id may and must lie

const stepTables = new Map();

function step(pair, name, row, position) {
  const table = stepsOf(pair, row)[name];
  return table.length ? table[clamp(position, 0, table.length - 1)] : 0;
}

function stepsOf(pair, row) {
  const key = `${pair} ${row}`;
  let found = stepTables.get(key);
  if (!found) {
    const [queries, keys, ascending] = PAIRS[pair];
    found = makeSteps(rowOf(T[queries], row), rowOf(T[keys], row), ascending);
    stepTables.set(key, found);
  }
  return found;
}

function rowOf(table, row) {
  if (table.shape.length < 2) return table.data;
  const n = table.shape[table.shape.length - 1];
  const at = clamp(row, 0, table.data.length / Math.max(n, 1) - 1);
  return table.data.subarray(at * n, (at + 1) * n);
}

function makeSteps(queries, keys, ascending) {
  const length = keys.length;
  const places = new Map();
  const runEnd = new Int32Array(length);
  for (let i = 0; i < length; i++) {
    const place = places.get(keys[i]);
    if (place) place[1] = i;
    else places.set(keys[i], [i, i]);
  }
  for (let i = length - 1; i >= 0; i--) {
    runEnd[i] = i + 1 < length && keys[i + 1] === keys[i] ? runEnd[i + 1] : i;
  }
  const own = samePlaces(queries, keys);
  const n = queries.length;
  const first = new Int32Array(n);
  const last = new Int32Array(n);
  const start = new Int32Array(n);
  const end = new Int32Array(n);
  for (let x = 0, place = 0; x < n; x++) {
    // A query without a key: none lies between the keys of smaller ids and those of larger ones.
    if (ascending) while (place < length && keys[place] < queries[x]) place++;
    const nowhere = ascending ? [place, place - 1] : [length, -1];
    const [low, high] = places.get(queries[x]) ?? nowhere;
    first[x] = start[x] = low;
    last[x] = high;
    end[x] = high < low ? high : runEnd[low];
    if (own) {
      start[x] = x && keys[x - 1] === keys[x] ? start[x - 1] : x;
      end[x] = runEnd[x];
    }
  }
  for (let x = 1; x < n; x++) {
    last[x] = Math.max(last[x], last[x - 1]);
    start[x] = Math.max(start[x], start[x - 1]);
  }
  for (let x = n - 2; x >= 0; x--) {
    first[x] = Math.min(first[x], first[x + 1]);
    end[x] = Math.min(end[x], end[x + 1]);
  }
  return {
    first,
    last,
    start,
    end,
    "first'": firstReaching(last, length),
    "start'": firstReaching(end, length),
    "last'": lastWithin(first, length),
    "end'": lastWithin(start, length),
    contiguous: first.every((x, i) => x === start[i]) && last.every((x, i) => x === end[i]),
  };
}

const samePlaces = (a, b) => a.buffer === b.buffer && a.byteOffset === b.byteOffset;

// For each y, the first x with table[x] >= y.
function firstReaching(table, length) {
  const found = new Int32Array(length);
  for (let y = 0, x = 0; y < length; y++) {
    while (x < table.length && table[x] < y) x++;
    found[y] = x;
  }
  return found;
}

// For each y, the last x with table[x] <= y.
function lastWithin(table, length) {
  const found = new Int32Array(length);
  for (let y = 0, x = 0; y < length; y++) {
    while (x < table.length && table[x] <= y) x++;
    found[y] = x - 1;
  }
  return found;
}

// ---- sets of positions: where a condition on one index holds

let memberSets = [];

function setOf(number) {
  return (memberSets[number] ??= makeSet(SETS[number]));
}

function makeSet({ length, holds }) {
  const counts = new Int32Array(length + 1);
  const next = new Int32Array(length + 1).fill(length);
  const previous = new Int32Array(length + 1).fill(-1);
  for (let i = 0; i < length; i++) {
    const member = holds(i);
    counts[i + 1] = counts[i] + (member ? 1 : 0);
    previous[i + 1] = member ? i : previous[i];
    if (member) next[i] = i;
  }
  for (let i = length - 1; i >= 0; i--) if (next[i] === length) next[i] = next[i + 1];
  return { length, counts, next, previous };
}

function firstFrom(number, x) {
  const { length, next } = setOf(number);
  return next[clamp(x, 0, length)];
}

function lastUntil(number, x) {
  const { length, previous } = setOf(number);
  return previous[clamp(x + 1, 0, length)];
}

function membersBetween(number, low, high) {
  const { length, counts } = setOf(number);
  return counts[clamp(high + 1, 0, length)] - counts[clamp(low, 0, length)];
}

// Sets that depend on a number, the batch entry or the head are made anew when one changes.
function forgetSets() {
  memberSets = memberSets.map((made, number) => (SETS[number].varies ? undefined : made));
}
