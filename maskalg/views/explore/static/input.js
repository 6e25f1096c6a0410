// What the reader does: with the mouse, with fingers, with keys, with the controls.

function pointAt(place) {
  if (JSON.stringify(place) === JSON.stringify(shown.place)) return;
  shown.place = place;
  showReasons(place);
  redraw();
}

const pointAtCentre = () => pointAt(placeAt(view.width / 2, view.height / 2));

const fingers = new Map();
let pointedBefore = null;

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
  const centred = [view.width / 2, view.height / 2];
  if (moves[event.key]) {
    const [dx, dy] = moves[event.key];
    // At least one element.
    pan(dx * Math.max(view.sx, far * view.width), dy * Math.max(view.sy, far * view.height));
  } else if (event.key === "+" || event.key === "=") zoomAt(...centred, 2);
  else if (event.key === "-" || event.key === "_") zoomAt(...centred, 0.5);
  else if (event.key === "0" || event.key === "Home") showAll();
  else if (event.key === "1") centreOn(...centre(), 22);
  else if (event.key === "d" || event.key === "D") centreOn(centre()[0], centre()[0]);
  else if (event.key === "s" || event.key === "S") nextOf("schedule");
  else if (ADDED && (event.key === "b" || event.key === "B")) nextOf("cells");
  else return;
  event.preventDefault();
  pointAtCentre();
  redraw();
}

const centre = () => [
  clamp(Math.floor(view.y + view.height / view.sy / 2), 0, Math.max(Q_LEN - 1, 0)),
  clamp(Math.floor(view.x + view.width / view.sx / 2), 0, Math.max(KV_LEN - 1, 0)),
];

function nextOf(name) {
  const choices = [...document.querySelectorAll(`input[name="${name}"]`)];
  const next = choices[(choices.findIndex((choice) => choice.checked) + 1) % choices.length];
  next.checked = true;
  shown[name] = next.value;
}

// Where there is no clipboard, or no leave to write it, the title is selected.
async function copyTitle() {
  const title = byId("title");
  let told = "Copied";
  try {
    await navigator.clipboard.writeText(title.textContent);
  } catch {
    getSelection().selectAllChildren(title);
    told = "Selected";
  }
  byId("copy").textContent = told;
  setTimeout(() => (byId("copy").textContent = "Copy"), 1500);
}

function listen() {
  canvas.addEventListener("pointerdown", (event) => {
    canvas.setPointerCapture(event.pointerId);
    if (!fingers.size) pointedBefore = shown.place;
    fingers.set(event.pointerId, placed(event));
    canvas.classList.add("dragging");
    // Two fingers zoom, and point at nothing.
    pointAt(fingers.size > 1 ? null : placeAt(...placed(event)));
  });
  for (const end of ["pointerup", "pointercancel"]) {
    canvas.addEventListener(end, (event) => {
      fingers.delete(event.pointerId);
      canvas.classList.remove("dragging");
      // The page scrolls: a finger on its way to the reasons is not to change them.
      if (end === "pointercancel") pointAt(pointedBefore);
    });
  }
  canvas.addEventListener("pointermove", onMove);
  canvas.addEventListener("wheel", (event) => {
    event.preventDefault();
    const turned = event.deltaY * (event.deltaMode === WheelEvent.DOM_DELTA_LINE ? 16 : 1);
    zoomAt(...placed(event), Math.exp(-clamp(turned, -240, 240) / 320));
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
  button("copy", copyTitle);
  button("reset", () => {
    for (const scalar of data.scalars) {
      S[scalar.slot] = scalar.value;
      scalar.show(scalar.value);
    }
    byId("reset").hidden = true;
    changed();
  });
  byId("overview").addEventListener("click", (event) => {
    const [sx, sy] = overviewScales(byId("overview").clientWidth);
    centreOn(event.offsetY / sy, event.offsetX / sx);
    redraw();
  });
  byId("go").addEventListener("submit", (event) => {
    event.preventDefault();
    if (!Q_LEN || !KV_LEN) return;
    const [q, k] = [Number(byId("go-q").value), Number(byId("go-k").value)];
    centreOn(q, k, 22);
    pointAt(blockAt(q, k, 1, 1));
    redraw();
  });
  for (const choice of document.querySelectorAll('input[name="schedule"], input[name="cells"]')) {
    choice.addEventListener("change", () => ((shown[choice.name] = choice.value), redraw()));
  }
  for (const choice of document.querySelectorAll('input[name="tile"]')) {
    choice.addEventListener("change", () => ((shown.block = Number(choice.value)), refreshWork(), redraw()));
  }
  systemIsDark.addEventListener("change", () => (applyTheme(), redraw()));
  new ResizeObserver(redraw).observe(canvas);
}
