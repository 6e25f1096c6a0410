// The panel that says why. Text enters the page as text, never as markup.

const MOST_LITERALS = 40;
const MOST_SPANS = 6;
const NAMES = ["empty", "partial", "full", "open"];

function element(kind, className, ...content) {
  const made = document.createElement(kind);
  if (className) made.className = className;
  made.append(...content);
  return made;
}

const byId = (id) => document.getElementById(id);

const untouched = ["why-title", "why-body"].map((id) => byId(id).cloneNode(true));

function showReasons(place) {
  const badge = byId("why-label");
  const body = byId("why-body");
  if (!place) {
    badge.hidden = true;
    for (const made of untouched) byId(made.id).replaceChildren(...made.cloneNode(true).childNodes);
    return;
  }
  if (place.single) {
    const holds = kept(place.q0, place.k0);
    byId("why-title").textContent = `query ${number(place.q0)} · key ${number(place.k0)}`;
    setBadge(badge, holds ? "kept" : "dropped");
    const reasons = elementReasons(place.q0, place.k0);
    const bias = ADDED && holds ? biasReason(place) : [];
    body.replaceChildren(...decisions(reasons), literalTree(reasons, place), ...bias);
    return;
  }
  const { label, proved } = labelOf(place.q0, place.q1, place.k0, place.k1, BUDGET);
  byId("why-title").replaceChildren(
    element("span", "", `queries ${number(place.q0)} – ${number(place.q1)}`),
    element("span", "", `keys ${number(place.k0)} – ${number(place.k1)}`),
  );
  setBadge(badge, NAMES[label]);
  body.replaceChildren(...blockContent(place, label, proved));
}

function setBadge(badge, name) {
  badge.hidden = false;
  badge.className = `badge ${name}`;
  badge.textContent = name;
}

function blockContent(place, label, proved) {
  const touched = spanReasons("touched", place);
  const unfull = spanReasons("unfull", place);
  const sentences = {
    [EMPTY]: "No query here keeps any of these keys.",
    [FULL]: "Each query here keeps all of these keys.",
    [PARTIAL]: "Some pairs are kept and some are dropped.",
    [OPEN]: "Too large to be sure at this zoom: zoom in.",
  };
  const found = [element("p", "", sentences[label])];
  if (label !== FULL || !unfull.length) found.push(...spanList("kept: keys k that some query q0..q1 touches", touched, ""));
  if (label !== EMPTY) found.push(...spanList("dropped: keys k that some query q0..q1 drops", unfull, " unfull"));
  if (!proved && label !== OPEN) {
    found.push(element("p", "soft", "The closed forms leave this block open; it was decided part by part."));
  }
  const reasons = blockReasons(place);
  found.splice(1, 0, ...decisions(reasons));
  found.push(element("h3", "", "over the whole block"), literalTree(reasons, null));
  if (ADDED && label !== EMPTY) found.push(...biasReason(place));
  return found;
}

// A sentence with the comparisons that decide, where they are few.
function decisions(reasons) {
  const literals = deciding(reasons);
  if (!literals.length || literals.length > 3) return [];
  const sentence = element("p", "decided", "Decided by ");
  literals.forEach(({ literal, truth }, i) => {
    if (i) sentence.append(i === literals.length - 1 ? " and " : ", ");
    sentence.append(element("span", "formula", withNames(data.literals[literal])));
    sentence.append(truth === YES ? ", which holds" : ", which fails");
  });
  sentence.append(".");
  return [sentence];
}

function spanList(heading, reasons, kind) {
  const ordered = [...reasons.filter((reason) => reason.meets), ...reasons.filter((reason) => !reason.meets)];
  const items = ordered.slice(0, MOST_SPANS).map((reason) => {
    const words = reason.none ? "" : reason.meets ? "meets the block" : "misses the block";
    const verdict = element("span", "verdict", words);
    return element(
      "div",
      `span${kind}${reason.meets ? " meets" : ""}`,
      element("div", `formula${reason.meets ? "" : " faded"}`, reason.names),
      ...(reason.numbers ? [element("div", "formula soft", reason.numbers)] : []),
      element("div", "numbers", reason.range, verdict),
    );
  });
  const hidden = reasons.length - items.length;
  if (hidden > 0) items.push(element("p", "soft", `and ${hidden} more`));
  return [element("h3", "", heading), ...(items.length ? items : [element("p", "soft", "no key at all")])];
}

// Literals with ticks; `place` is an element whose numbers are put in, or null for a block.
function literalTree(reasons, place) {
  let left = MOST_LITERALS;
  const GROUPS = { and: "all of", or: "any of", not: "not" };
  const node = (reason) => {
    const item = element("li", reason.decides === false ? "dim" : "");
    if (left-- <= 0) return element("li", "soft", "…");
    if (reason.op) {
      const shown = reason.children.slice(0, Math.max(left, 1)).map(node);
      item.append(element("div", "group", tick(reason.truth), element("span", "", GROUPS[reason.op])));
      item.append(element("ul", "", ...shown));
      return item;
    }
    const template = data.literals[reason.literal];
    const text = element("div", "", element("div", "formula", withNames(template)));
    if (place) {
      const values = LITERALS[reason.literal].values(place.q0, place.k0);
      if (template.names.length) text.append(element("div", "numbers", withNumbers(template, values)));
    }
    item.append(element("div", "literal", tick(reason.truth), text));
    return item;
  };
  return element("ul", "tree", node(reasons));
}

function tick(truth) {
  const [sign, name, words] = [
    ["✗", "no", "false"],
    ["◐", "some", "in parts"],
    ["✓", "yes", "true"],
  ][truth];
  const made = element("span", `tick ${name}`, sign);
  made.title = words;
  made.setAttribute("role", "img");
  made.setAttribute("aria-label", words);
  return made;
}
