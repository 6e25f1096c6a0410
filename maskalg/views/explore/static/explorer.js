// The page: what happens when, and the frames.

const shown = { cells: "mask", schedule: "none", block: 128, place: null };
const QUICK_MS = 12;
let work = null;
let workTook = 0;
let workTimer = null;
let pending = false;
let pixelRatio = 1;
const FONT = 'ui-sans-serif, system-ui, -apple-system, "Segoe UI", Helvetica, Arial, sans-serif';

function redraw() {
  if (pending) return;
  pending = true;
  requestAnimationFrame(() => {
    pending = false;
    frame();
  });
}

function frame() {
  const width = canvas.clientWidth;
  const height = canvas.clientHeight;
  pixelRatio = window.devicePixelRatio || 1;
  if (canvas.width !== Math.round(width * pixelRatio) || canvas.height !== Math.round(height * pixelRatio)) {
    canvas.width = Math.round(width * pixelRatio);
    canvas.height = Math.round(height * pixelRatio);
    const whole = isWhole();
    layOut(width, height);
    if (whole) showAll();
    settle();
  }
  context.setTransform(pixelRatio, 0, 0, pixelRatio, 0, 0);
  context.clearRect(0, 0, width, height);
  const [high, wide] = drawMatrix(pixelRatio, shown);
  const single = high === 1 && wide === 1;
  drawRulers(shown.place, FONT);
  drawWork(work, FONT);
  drawOverview();
  byId("legend-open").hidden = !anyOpen;
  byId("legend-partial").hidden = single;
  byId("legend-full").textContent = single ? "kept" : "full";
  byId("legend-empty").textContent = single ? "dropped" : "empty";
  showScale(single);
  byId("level").textContent =
    single ? "one cell is one element" : `one cell is ${number(high)} × ${number(wide)} elements`;
  // A finger that sweeps over the whole matrix scrolls the page; over a part of it, it pans.
  canvas.style.touchAction = isWhole() ? "pan-y" : "none";
  if (refineSome()) redraw();
}

// The longer side fills the overview, the shorter one an eighth of it at least.
function overviewScales(size) {
  const even = size / Math.max(Q_LEN, KV_LEN);
  return [KV_LEN, Q_LEN].map((length) => Math.max(even, size / 8 / Math.max(length, 1)));
}

function drawOverview() {
  const overview = byId("overview");
  overview.hidden = isWhole();
  if (overview.hidden) return;
  const target = overview.getContext("2d");
  const size = overview.width;
  const [sx, sy] = overviewScales(size);
  target.clearRect(0, 0, size, size);
  target.save();
  target.beginPath();
  target.rect(0, 0, KV_LEN * sx, Q_LEN * sy);
  target.clip();
  const whole = { x: 0, y: 0, sx, sy, width: size, height: size };
  paintCells(target, whole, cellSides(2, whole), false);
  target.restore();
  target.strokeStyle = colours.mark;
  target.lineWidth = 3;
  const wide = Math.max(Math.min(view.width / view.sx, KV_LEN) * sx, 8);
  const high = Math.max(Math.min(view.height / view.sy, Q_LEN) * sy, 8);
  target.strokeRect(
    clamp((view.x + view.width / view.sx / 2) * sx - wide / 2, 2, size - wide - 2),
    clamp((view.y + view.height / view.sy / 2) * sy - high / 2, 2, size - high - 2),
    wide,
    high,
  );
  overview.style.left = `${view.left + 10}px`;
  overview.style.top = `${view.top + view.height - overview.clientHeight - 12}px`;
}

// ---- changes

function changed() {
  forgetSets();
  forgetLabels();
  showTitle();
  showReasons(shown.place);
  refreshWorkSoon();
  redraw();
}

// At once where that is quick; else when a slider rests, so that the picture follows the hand.
function refreshWorkSoon() {
  clearTimeout(workTimer);
  workTimer = null;
  if (workTook < QUICK_MS) return refreshWork();
  workTimer = setTimeout(() => (refreshWork(), redraw()), 100);
}

function refreshWork() {
  workTimer = null;
  const started = performance.now();
  work = { rows: workOf(ROWS, shown.block), columns: workOf(COLUMNS, shown.block) };
  workTook = performance.now() - started;
  showWork(work);
}

function setScalar(scalar, value) {
  const problem = refusal(scalar, value);
  if (problem) throw new RangeError(`${scalar.name} = ${value}: ${problem}`);
  S[scalar.slot] = value;
  for (const other of data.scalars) other.refuse?.(null);
  byId("reset").hidden = data.scalars.every((other) => S[other.slot] === other.value);
  changed();
}

// A number from a slider or a field; one that Python would refuse leaves the picture as it is.
function offered(scalar, value) {
  const problem = refusal(scalar, value);
  scalar.refuse(problem);
  if (!problem) setScalar(scalar, value);
}

// Choices that this expression does not have are not offered.
function showChoices() {
  byId("cells-field").hidden = byId("key-bias").hidden = !ADDED;
  if (data.bias?.alone) nextOf("cells");
  for (const choice of document.querySelectorAll('input[name="tile"]')) {
    choice.parentElement.hidden = Boolean(data.visits) && Number(choice.value) < data.visits.block;
  }
}

function showTitle() {
  byId("title").textContent = data.title.replace(/⟦(\d+)⟧/g, (_, slot) => S[slot]);
}

async function start() {
  applyTheme();
  showTitle();
  byId("size").textContent = `${number(Q_LEN)} queries × ${number(KV_LEN)} keys`;
  byId("proof-text").textContent = data.rows.text;
  await unpackTables();
  await unpackVisits();
  byId("busy").hidden = true;
  showChoices();
  addSliders(offered);
  addChoice("batch", data.batch, (value) => ((B = value), changed()));
  addChoice("head", data.heads, (value) => ((H = value), changed()));
  for (const [id, length] of [["go-q", Q_LEN], ["go-k", KV_LEN]]) byId(id).max = Math.max(length - 1, 0);
  listen();
  layOut(canvas.clientWidth, canvas.clientHeight);
  showAll();
  refreshWork();
  redraw();
}

function failed(problem) {
  byId("busy").hidden = false;
  byId("busy").textContent = `This page could not start: ${problem.message}. It needs a browser of 2023 or newer.`;
  throw problem;
}

// For the console: what the page computes, by the names Python uses.
window.maskalg = {
  ready: start().catch(failed),
  labels: allLabels,
  element: (q, k) => kept(q, k),
  bias: (q, k) => (ADDED ? ADDED.at(q, k) : 0),
  runs: (q0, q1, block) => runsOf(ROWS, q0, q1, block),
  columnRuns: (k0, k1, block) => runsOf(COLUMNS, k0, k1, block),
  bind(values) {
    for (const [name, value] of Object.entries(values)) {
      const scalar = data.scalars.find((other) => other.name === name);
      if (!scalar) throw new RangeError(`no parameter ${name}`);
      setScalar(scalar, value);
      scalar.show(value);
    }
  },
  choose({ batch = B, head = H }) {
    B = batch;
    H = head;
    changed();
  },
  look({ q, k, scale }) {
    centreOn(q, k, scale);
    redraw();
  },
  settled: () => !pending && !waiting.length && workTimer === null,
};
