// Parameters, batch and head, and the numbers of the schedule.

const STEPS = 1000; // of a slider

// A slider grows like a power, so that small numbers can be met: position 0..STEPS to a number.
function limitsOf(scalar) {
  const most = Math.max(Q_LEN, KV_LEN, 2 * Math.abs(scalar.value), 1);
  return { low: scalar.low ?? (scalar.value < 0 ? -most : 0), high: most };
}

function toNumber({ low, high }, at) {
  const share = at / STEPS;
  const grown = (high - low + 1) ** share - 1;
  return Math.round(low + Math.min(grown, high - low));
}

function toPosition({ low, high }, value) {
  return Math.round((STEPS * Math.log(clamp(value, low, high) - low + 1)) / Math.log(high - low + 1 || 2));
}

function addSliders(changed) {
  const box = byId("sliders");
  for (const scalar of data.scalars) {
    const id = `parameter-${scalar.slot}`;
    const field = element("input");
    Object.assign(field, { type: "number", id, value: scalar.value, step: scalar.kind === "int" ? 1 : "any", required: true });
    if (scalar.low !== null) field.min = scalar.low;
    if (scalar.kind === "int") field.max = 2 ** 31 - 1;
    const name = element("label", "", scalar.name);
    name.htmlFor = id;
    const row = element("div", "slider", name);
    if (scalar.kind === "int") row.append((scalar.slide = slideOf(scalar, changed)));
    row.append(field);
    const slideTo = (value) => {
      if (!scalar.slide) return;
      scalar.slide.value = toPosition(limitsOf(scalar), value);
      scalar.slide.setAttribute("aria-valuetext", String(value));
    };
    scalar.show = (value) => {
      field.value = value;
      slideTo(value);
    };
    scalar.refuse = (problem) => {
      field.setCustomValidity(problem ?? "");
      field.title = problem ?? "";
      field.classList.toggle("refused", Boolean(problem));
    };
    field.addEventListener("input", () => {
      scalar.refuse(null);
      if (!field.checkValidity()) return;
      slideTo(Number(field.value));
      changed(scalar, Number(field.value));
    });
    box.append(row);
    scalar.show(scalar.value);
  }
  byId("parameters").hidden = !data.scalars.length;
}

function slideOf(scalar, changed) {
  const slide = element("input");
  Object.assign(slide, { type: "range", min: 0, max: STEPS, step: 1 });
  slide.setAttribute("aria-label", `${scalar.name}, slider`);
  slide.addEventListener("input", () => {
    const value = toNumber(limitsOf(scalar), Number(slide.value));
    byId(`parameter-${scalar.slot}`).value = value;
    slide.setAttribute("aria-valuetext", String(value));
    changed(scalar, value);
  });
  return slide;
}

// Why a value cannot be taken, or null where it can.
function refusal(scalar, value) {
  if (typeof value !== "number" || !Number.isFinite(value)) return "not a number";
  if (scalar.kind === "int" && !Number.isInteger(value)) return "not an integer";
  if (scalar.kind === "int" && Math.abs(value) > 2 ** 31 - 1) return "beyond 32 bits";
  if (scalar.low !== null && value < scalar.low) return `below ${scalar.low}`;
  const before = S[scalar.slot];
  S[scalar.slot] = value;
  const problem = doublesHold(data.integers) ? outside() : "integers would need more than 53 bits, or bitwise 32";
  S[scalar.slot] = before;
  return problem;
}

// Which table would be read beyond its entries, or null: what Python refuses at the call.
function outside() {
  for (const { name, slot, axis, least, range } of READS) {
    const [low, high] = range(0, Q_LEN - 1, 0, KV_LEN - 1);
    const size = T[slot].shape[axis];
    if (low < least || high >= size) return `${name} has ${size} entries, and would be read at ${low < least ? low : high}`;
  }
  return null;
}

function addChoice(name, count, changed) {
  const field = byId(name);
  byId(`${name}-field`).hidden = count < 2;
  field.max = count - 1;
  field.addEventListener("input", () => {
    if (field.checkValidity() && field.value !== "") changed(Number(field.value));
  });
}

const percent = (share) => (share >= 0.9995 || share === 0 ? `${Math.round(100 * share)}` : (100 * share).toPrecision(3)) + " %";

function visitedBy() {
  if (!data.visits) return "by the closed forms";
  if (asBound()) return "by the digits of the canvas";
  return "by all rows of the canvas that are reached (by digits only for the numbers it was made with)";
}

function showWork(work) {
  const table = element("table");
  const line = (name, ...cells) => {
    const row = element("tr", "", element("td", "soft", name));
    row.firstChild.style.textAlign = "left";
    for (const cell of cells) row.append(element("td", "", cell));
    table.append(row);
  };
  table.append(element("tr", "", element("th"), element("th", "", "forward"), element("th", "", "backward")));
  const both = [work.rows, work.columns];
  const of = (value) => both.map(value);
  line("tiles visited", ...of((w) => number(w.total)));
  line("of all tiles", ...of((w) => percent(w.total / Math.max(w.tiles, 1))));
  line("of them full", ...of((w) => percent(w.totalFull / Math.max(w.total, 1))));
  line("heaviest row or column", ...of((w) => number(w.most)));
  line("balance", ...of((w) => percent(w.most ? w.total / w.count / w.most : 1)));
  const note = `Tiles of ${work.rows.block} × ${work.rows.block}, ${visitedBy()}. Balance is the mean over the heaviest.`;
  table.append(element("caption", "", note));
  byId("work").replaceChildren(table);
}
