// Why a place has its label: the intervals of the proof and the literals, with numbers put in.

// A formula with names, or with numbers, in its places.
function filled(template, parts) {
  return template.text.replace(/⟦(\d+)⟧/g, (_, at) => parts[at]);
}

const withNames = (template) => filled(template, template.names);
const withNumbers = (template, values) => filled(template, values.map(shownValue));

function shownValue(value) {
  if (typeof value === "boolean") return value ? "True" : "False";
  return value < 0 ? `(${value})` : String(value);
}

// The spans of one side over a block, each with its bounds and whether it meets the block.
function spanReasons(side, { q0, q1, k0, k1 }) {
  return ROWS[side].map((span, i) => {
    const shown = data.rows[side][i];
    const [low, high] = keyRange(span, KV_LEN, q0, q1);
    const values = span.numbers.map((numbers) => numbers(q0, q1));
    const text = (written) => {
      const lows = shown.lows.map((bound, j) => written(bound, values[j]));
      const highs = shown.highs.map((bound, j) => written(bound, values[shown.lows.length + j]));
      return between(extreme("max", lows), extreme("min", highs));
    };
    const meets = low <= high && low <= k1 && high >= k0 && inSpan(span, q0, q1, k0, k1);
    return {
      names: [text(withNames), ...shown.conditions].join(", where "),
      numbers: shown.lows.length + shown.highs.length ? text(withNumbers) : "",
      none: low > high,
      range: low > high ? "no key" : low === high ? `key ${low}` : `keys ${low} to ${high}`,
      meets,
    };
  });
}

const extreme = (function_, bounds) => (bounds.length > 1 ? `${function_}(${bounds.join(", ")})` : bounds[0]);

function between(low, high) {
  if (low === undefined && high === undefined) return "every key";
  return `${low === undefined ? "" : `${low} <= `}k${high === undefined ? "" : ` <= ${high}`}`;
}

// The tree of literals at an element or over a block: what each part is, and whether it decides.
// `of(literal)` is NO, SOME or YES.
function treeReasons(tree, of) {
  if (typeof tree === "number") return { literal: tree, truth: of(tree), decides: true };
  const [op, ...parts] = tree;
  const children = parts.map((part) => treeReasons(part, of));
  const truths = children.map((child) => child.truth);
  if (op === "not") return { op, children, truth: YES - truths[0] };
  const truth = op === "and" ? Math.min(...truths) : Math.max(...truths);
  const decisive = op === "and" ? NO : YES;
  for (const child of children) child.decides = truth !== decisive || child.truth === decisive;
  return { op, children, truth, decides: true };
}

// The literals that decide, where the whole is decided.
function deciding(reasons) {
  if (reasons.truth === SOME) return [];
  if (!reasons.op) return [reasons];
  return reasons.children.filter((child) => child.decides !== false).flatMap(deciding);
}

const elementReasons = (q, k) => treeReasons(data.tree, (i) => (LITERALS[i].at(q, k) ? YES : NO));
const blockReasons = ({ q0, q1, k0, k1 }) =>
  treeReasons(data.tree, (i) => LITERALS[i].over(q0, q1, k0, k1));
