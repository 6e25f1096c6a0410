// What a bias makes of the scores: colours of cells, their scale, and a sentence about a place.

const HEAT = 255; // colours, the middle one for zero
let heatMost = 0; // the largest absolute value of the cells painted last

// Pixels of cells of these labels: the value at the middle of each that is not empty. Colours run
// from minus the largest absolute value seen to plus it, so that zero keeps its colour.
function paintValues(labels, { firstRow, first, rows, columns, high, wide }, pixels) {
  const values = new Float64Array(labels.length);
  let most = 0;
  for (let row = 0, i = 0; row < rows; row++) {
    const q = Math.min((firstRow + row) * high + (high >> 1), Q_LEN - 1);
    for (let column = 0; column < columns; column++, i++) {
      const k = Math.min((first + column) * wide + (wide >> 1), KV_LEN - 1);
      const value = labels[i] === EMPTY ? NaN : ADDED.at(q, k);
      values[i] = value;
      if (Number.isFinite(value)) most = Math.max(most, Math.abs(value));
    }
  }
  heatMost = most;
  const scale = (HEAT - 1) / 2 / (most || 1);
  for (let i = 0; i < values.length; i++) {
    pixels[i] = Number.isFinite(values[i]) ? colours.heat[Math.round((HEAT - 1) / 2 + values[i] * scale)] : colours.dropped;
  }
}

// So many colours between those of the style sheet, as pixels.
function heatOf(stops) {
  const parts = stops.map((colour) => [1, 3, 5].map((at) => parseInt(colour.slice(at, at + 2), 16)));
  return Uint32Array.from({ length: HEAT }, (_, i) => {
    const at = (i / (HEAT - 1)) * (parts.length - 1);
    const before = Math.min(Math.floor(at), parts.length - 2);
    const mixed = parts[before].map((x, j) => Math.round(x + (parts[before + 1][j] - x) * (at - before)));
    return ((255 << 24) | (mixed[2] << 16) | (mixed[1] << 8) | mixed[0]) >>> 0;
  });
}

function shownReal(value) {
  if (Number.isNaN(value)) return "nan";
  if (!Number.isFinite(value)) return value > 0 ? "∞" : "−∞";
  return String(Number(value.toPrecision(6))).replace("-", "−");
}

// What the bias makes of the score at an element, or at the middle of a block.
function biasReason({ q0, q1, k0, k1, single }) {
  const [q, k] = [middle(q0, q1), middle(k0, k1)];
  const { adds } = data.bias;
  const where = single ? "" : ` at its middle, query ${number(q)} and key ${number(k)}`;
  const told = adds ? "added to the score" : "what a score of 1 becomes";
  const value = element("strong", "", shownReal(ADDED.at(q, k)));
  value.id = "bias-value";
  return [
    element("h3", "", `bias: ${told}${where}`),
    element("div", "formula soft", withNames(data.bias)),
    ...(data.bias.names.length ? [element("div", "numbers", withNumbers(data.bias, ADDED.values(q, k)))] : []),
    element("p", "bias-value", "= ", value),
  ];
}

function showScale(single) {
  const bias = shown.cells === "bias";
  byId("legend").hidden = bias;
  byId("legend-bias").hidden = !bias;
  if (!bias) return;
  byId("bias-low").textContent = shownReal(-heatMost);
  byId("bias-high").textContent = shownReal(heatMost);
  byId("bias-dropped").textContent = single ? "dropped" : "empty";
  byId("bias-note").hidden = single;
}
