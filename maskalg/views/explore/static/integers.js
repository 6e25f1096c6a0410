// Whether doubles hold the integers of the formulas for the numbers S. Rows are those of `integers.py`,
// which checks the numbers that the page begins with. A row becomes its range, and the largest integer
// within it, without its sign: where all before it are below 2 ** 53, it is computed exactly, or is not.

const bits = (...parts) => {
  const most = Math.max(...parts.flatMap(([low, high]) => [low < 0 ? -low - 1 : low, high < 0 ? -high - 1 : high]));
  const limit = 2 ** (most ? Math.floor(Math.log2(most)) + 1 : 0);
  return [-limit, limit - 1];
};

const RANGES = {
  add: plus,
  mul: times,
  floordiv: (x, c) => quotient(x, most(c, point(1))),
  mod: (x, c) => remainder(x, most(c, point(1))),
  min: least,
  max: most,
  where: (condition, then, otherwise) => choice(SOME, then, otherwise),
  bitand: bits,
  bitor: bits,
  bitxor: bits,
};

const sizeOf = ([low, high]) => Math.max(-low, high);

function doublesHold(rows) {
  const found = [];
  for (const [op, ...row] of rows) {
    if (op === "number") found.push({ range: point(S[row[0]]), largest: Math.abs(S[row[0]]) });
    else if (op === "between") found.push({ range: row.slice(0, 2), largest: row[2] });
    else {
      const args = row.slice(1).map((at) => found[at]);
      const range = RANGES[op](...args.map((arg) => arg.range));
      const largest = Math.max(sizeOf(range), ...args.map((arg) => arg.largest));
      const adds = op === "add" || op === "mod";
      const together = adds ? args.reduce((sum, arg) => sum + sizeOf(arg.range), 0) : 0;
      if (largest >= 2 ** row[0] || together >= 2 ** 53) return false;
      found.push({ range, largest });
    }
  }
  return true;
}
