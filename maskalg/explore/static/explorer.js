// The page: what happens when, and the frames.

const shown = { schedule: "none", block: 128, place: null };
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
  const side = drawMatrix(pixelRatio, shown);
  drawRulers(shown.place, FONT);
  drawWork(work, FONT);
  drawOverview();
  byId("legend-open").hidden = !anyOpen;
  byId("legend-partial").hidden = side === 1;
  byId("legend-full").textContent = side === 1 ? "kept" : "full";
  byId("legend-empty").textContent = side === 1 ? "dropped" : "empty";
  byId("level").textContent =
    side === 1 ? "one cell is one element" : `one cell is ${number(side)} × ${number(side)} elements`;
  if (refineSome()) redraw();
}

function drawOverview() {
  const overview = byId("overview");
  overview.hidden = isWhole();
  if (overview.hidden) return;
  const target = overview.getContext("2d");
  const size = overview.width;
  const scale = size / Math.max(Q_LEN, KV_LEN);
  target.clearRect(0, 0, size, size);
  let side = 1;
  while (side * scale < 2) side *= 2;
  target.save();
  target.beginPath();
  target.rect(0, 0, KV_LEN * scale, Q_LEN * scale);
  target.clip();
  paintCells(target, { x: 0, y: 0, scale, width: size, height: size }, side);
  target.restore();
  target.strokeStyle = colours.mark;
  target.lineWidth = 3;
  const wide = Math.max((view.width / view.scale) * scale, 8);
  const high = Math.max((view.height / view.scale) * scale, 8);
  target.strokeRect(
    clamp((view.x + view.width / view.scale / 2) * scale - wide / 2, 2, size - wide - 2),
    clamp((view.y + view.height / view.scale / 2) * scale - high / 2, 2, size - high - 2),
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
  byId("reset").hidden = data.scalars.every((other) => S[other.slot] === other.value);
  changed();
}

function showTitle() {
  byId("title").textContent = data.title.replace(/⟦(\d+)⟧/g, (_, slot) => S[slot]);
}

function pointAt(place) {
  const same = place && shown.place && place.q0 === shown.place.q0 && place.k0 === shown.place.k0 && place.side === shown.place.side;
  if (same) return;
  shown.place = place;
  showReasons(place);
  redraw();
}

const pointAtCentre = () => pointAt(placeAt(view.width / 2, view.height / 2));

// ---- mouse, touch and keys

const fingers = new Map();

function placed(event) {
  const box = canvas.getBoundingClientRect();
  return [event.clientX - box.left - view.left, event.clientY - box.top - view.top];
}

function onMove(event) {
  const [px, py] = placed(event);
  const before = fingers.get(event.pointerId);
  if (!before) return pointAt(placeAt(px, py));
  if (fingers.size === 2) {
    const [other] = [...fingers].filter(([id]) => id !== event.pointerId).map(([, at]) => at);
    const distance = ([x, y]) => Math.hypot(x - other[0], y - other[1]);
    zoomAt(other[0], other[1], distance([px, py]) / Math.max(distance(before), 1));
  } else {
    pan(before[0] - px, before[1] - py);
  }
  fingers.set(event.pointerId, [px, py]);
  redraw();
}

function onKey(event) {
  if (event.ctrlKey || event.metaKey || event.altKey) return;
  const far = event.shiftKey ? 0.8 : 0.12;
  const moves = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1] };
  const middle = [view.width / 2, view.height / 2];
  if (moves[event.key]) {
    const [dx, dy] = moves[event.key];
    const least = view.scale; // at least one element
    pan(dx * Math.max(least, far * view.width), dy * Math.max(least, far * view.height));
  } else if (event.key === "+" || event.key === "=") zoomAt(...middle, 2);
  else if (event.key === "-" || event.key === "_") zoomAt(...middle, 0.5);
  else if (event.key === "0" || event.key === "Home") showAll();
  else if (event.key === "1") centreOn(...centre(), 22);
  else if (event.key === "d" || event.key === "D") centreOn(centre()[0], centre()[0]);
  else if (event.key === "s" || event.key === "S") nextSchedule();
  else return;
  event.preventDefault();
  pointAtCentre();
  redraw();
}

const centre = () => [
  clamp(Math.floor(view.y + view.height / view.scale / 2), 0, Math.max(Q_LEN - 1, 0)),
  clamp(Math.floor(view.x + view.width / view.scale / 2), 0, Math.max(KV_LEN - 1, 0)),
];

function nextSchedule() {
  const choices = [...document.querySelectorAll('input[name="schedule"]')];
  const next = choices[(choices.findIndex((choice) => choice.checked) + 1) % choices.length];
  next.checked = true;
  shown.schedule = next.value;
}

function listen() {
  canvas.addEventListener("pointerdown", (event) => {
    canvas.setPointerCapture(event.pointerId);
    fingers.set(event.pointerId, placed(event));
    canvas.classList.add("dragging");
    pointAt(placeAt(...placed(event)));
  });
  for (const end of ["pointerup", "pointercancel"]) {
    canvas.addEventListener(end, (event) => {
      fingers.delete(event.pointerId);
      canvas.classList.remove("dragging");
    });
  }
  canvas.addEventListener("pointermove", onMove);
  canvas.addEventListener("wheel", (event) => {
    event.preventDefault();
    zoomAt(...placed(event), Math.exp(-clamp(event.deltaY, -240, 240) / 320));
    pointAt(placeAt(...placed(event)));
    redraw();
  }, { passive: false });
  canvas.addEventListener("dblclick", (event) => {
    zoomAt(...placed(event), event.shiftKey ? 0.25 : 4);
    redraw();
  });
  canvas.addEventListener("keydown", onKey);
  const button = (id, act) => byId(id).addEventListener("click", () => (act(), redraw()));
  button("zoom-in", () => zoomAt(view.width / 2, view.height / 2, 2));
  button("zoom-out", () => zoomAt(view.width / 2, view.height / 2, 0.5));
  button("zoom-fit", showAll);
  button("help", () => {
    byId("keys").hidden = !byId("keys").hidden;
    byId("help").setAttribute("aria-expanded", String(!byId("keys").hidden));
  });
  button("theme", () => {
    const choice = nextTheme();
    byId("theme").textContent = `Theme: ${choice}`;
  });
  button("copy", () => navigator.clipboard?.writeText(byId("title").textContent));
  button("reset", () => {
    for (const scalar of data.scalars) {
      S[scalar.slot] = scalar.value;
      scalar.show(scalar.value);
    }
    byId("reset").hidden = true;
    changed();
  });
  byId("overview").addEventListener("click", (event) => {
    const longest = Math.max(Q_LEN, KV_LEN) / byId("overview").clientWidth;
    centreOn(event.offsetY * longest, event.offsetX * longest);
    redraw();
  });
  byId("go").addEventListener("submit", (event) => {
    event.preventDefault();
    const [q, k] = [Number(byId("go-q").value), Number(byId("go-k").value)];
    centreOn(clamp(q, 0, Q_LEN - 1), clamp(k, 0, KV_LEN - 1), 22);
    pointAt({ q0: q, q1: q, k0: k, k1: k, side: 1 });
    redraw();
  });
  for (const choice of document.querySelectorAll('input[name="schedule"]')) {
    choice.addEventListener("change", () => ((shown.schedule = choice.value), redraw()));
  }
  for (const choice of document.querySelectorAll('input[name="tile"]')) {
    choice.addEventListener("change", () => ((shown.block = Number(choice.value)), refreshWork(), redraw()));
  }
  systemIsDark.addEventListener("change", () => (applyTheme(), redraw()));
  new ResizeObserver(redraw).observe(canvas);
}

async function start() {
  applyTheme();
  showTitle();
  byId("size").textContent = `${number(Q_LEN)} queries × ${number(KV_LEN)} keys`;
  byId("proof-text").textContent = data.rows.text;
  await unpackTables();
  byId("busy").hidden = true;
  addSliders(setScalar);
  addChoice("batch", data.batch, (value) => ((B = value), changed()));
  addChoice("head", data.heads, (value) => ((H = value), changed()));
  for (const [id, length] of [["go-q", Q_LEN], ["go-k", KV_LEN]]) byId(id).max = Math.max(length - 1, 0);
  listen();
  layOut(canvas.clientWidth, canvas.clientHeight);
  showAll();
  refreshWork();
  redraw();
}

// For the console: what the page computes, by the names Python uses.
window.maskalg = {
  ready: start(),
  labels: allLabels,
  element: (q, k) => kept(q, k),
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
