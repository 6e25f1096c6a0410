"""What the page of `explore` computes for an element, proved; and wrong texts, run by node."""

import itertools
import json
import random
import re
import shutil
import subprocess
from pathlib import Path

import pytest
import torch

import maskalg as ma
from maskalg.engine.extents import Lengths, resolve
from maskalg.engine.normal_form import Bound, bound
from maskalg.formula import nodes
from maskalg.testing.case import BATCH, HEADS
from maskalg.testing.catalogue import BIASES, CATALOGUE
from maskalg.values.index import Index
from maskalg.verifier.exported import claims_of_page
from maskalg.verifier.walk.tables import extents_of
from maskalg.views.explore import javascript
from maskalg.views.explore.integers import Integers
from maskalg.views.explore.javascript import JavaScript
from maskalg.views.explore.javascript import text as as_json
from maskalg.views.explore.payload import payload

from .mutants import masks

pytest.importorskip("z3")
needs_node = pytest.mark.skipif(shutil.which("node") is None, reason="runs the page's functions")

STATIC = Path(javascript.__file__).parent / "static"
CHANGES = [
    (r">=", [">", "<="]), (r"===", ["!=="]), (r"&&", ["||"]), (r" \+ ", [" - "]),
    (r" \* ", [" + "]), (r"\bq\b", ["k"]), (r"\bk\b", ["q"]), (r"\bH\b", ["B"]), (r"\b0\b", ["1"]),
    (r"\b(?<!\[)1\b", ["2", "0"]), (r"floorDiv", ["floorMod"]), (r"floorMod", ["floorDiv"]),
    (r"Math\.min", ["Math.max"]), (r"Math\.max", ["Math.min"]), (r"!(?=\()", [""]),
]  # fmt: skip


def mutants(text):
    """Texts with one change."""
    for pattern, others in CHANGES:
        for found in re.finditer(pattern, text):
            for other in others:
                yield text[: found.start()] + other + text[found.end() :]


def run_by_node(asked):
    """The value of each text, with numbers S, tensors T, and q, k, B and H."""
    tables = (STATIC / "tables.js").read_text()
    reads = tables[tables.index("const read = ") : tables.index("// ---- unpacking")]
    script = (
        (STATIC / "arithmetic.js").read_text()
        + reads
        + f"""
    const asked = {json.dumps(asked)};
    console.log(JSON.stringify(asked.map(([text, S, T, q, k, B, H]) => eval(text))));
    """
    )
    run = subprocess.run(["node", "-"], input=script, capture_output=True, text=True, check=True)
    return json.loads(run.stdout)


@pytest.mark.parametrize("name", CATALOGUE)
def test_pages_of_the_catalogue(name):
    found = list(claims_of_page(bound(CATALOGUE[name].mask), 5000))
    assert {claim.outcome for claim in found} <= {"proved"}, found


def test_pages_of_biases():
    forms = [bound(case.build(*case.tensors())) for case in BIASES.values()]
    found = [claim for form in forms for claim in claims_of_page(form, 3000)]
    assert {claim.outcome for claim in found} == {"proved"}, found
    assert sum("bias" in claim.text for claim in found) == len(BIASES)


@needs_node
@pytest.mark.parametrize("name", masks())
def test_no_wrong_text_is_accepted(name):
    form = bound(masks()[name])
    right = JavaScript()(form.structure.mask)
    numbers = [0 if isinstance(v, torch.Tensor) else v for v in form.values]
    tables = [
        {"shape": list(v.shape), "data": [min(max(x, -(2**40)), 2**40) for x in v.tolist()]}
        if isinstance(v, torch.Tensor)
        else None
        for v in form.values
    ]
    every = list(mutants(right))
    pairs = [(q, k, b, h) for q, k in itertools.product(range(7), repeat=2) for b, h in [(1, 2)]]
    asked, refuted = [], 0
    for text in random.Random(1).sample(every, min(30, len(every))):
        (claim,) = claims_of_page(form, 1000, lambda _, changed=text: changed)
        if claim.outcome == "proved":
            asked += [(one, numbers, tables, *at) for at in pairs for one in (text, right)]
        elif claim.model is not None:
            refuted += 1
    assert refuted > 5
    found = run_by_node(asked)
    assert found[::2] == found[1::2]


@needs_node
def test_what_is_stated_of_divisions():
    ends = [2**53 - 1, 2**53 - 2, 2**52 + 1, 10**15 + 7, 3, 1, 0]
    pairs = [(s * x, c) for x in ends for s in (1, -1) for c in ends if c >= 1]
    asked = [(f"[floorDiv({x}, {c}), floorMod({x}, {c})]", [], [], 0, 0, 0, 0) for x, c in pairs]
    for (x, c), (whole, rest) in zip(pairs, run_by_node(asked), strict=True):
        assert whole == x // c
        assert rest == x % c or abs(x) + c > 2**53


def test_places_that_a_function_ignores_and_results_of_another_type_are_not_proved():
    entries = ma.table(torch.arange(6).view(2, 3), "t")[ma.head, ma.q_idx]
    form = bound(entries >= ma.kv_idx)
    for name in ("read1", "read", "readme"):
        (claim,) = claims_of_page(form, 1000, lambda text, to=name: text.replace("read2", to))
        assert claim.outcome == "not proved"
    form = bound(ma.alibi(torch.rand(2)))
    _, claim = claims_of_page(form, 1000, lambda text: text.removeprefix("f"))
    assert claim.outcome == "not proved"


@pytest.mark.parametrize(
    "text",
    [
        "Math.q >= k", "~q", "~(q > k)", "++q", "(q > k ? true : 1) === 1", "(010)", "whole(q)",
        "9007199254740993 - 9007199254740992", "T >= 16777217", "T > q", "f(Math.sin(q))",
        "Math.max(T, q) > 16777216", "(q > 1 ? T : k) > 16777216", "Math.max(q > 1, k > 1)",
        "f((-1) * q)", "f(-q)", "f(Math.min(0, -q))", "f(floorDiv(-q, 3))", "f((-q) + (-k))",
        "f((-q) - k)", "f(q > k ? -q : k)",
    ],
)  # fmt: skip
def test_what_is_not_read(text):
    form = bound(ma.table(torch.ones(3), "t")[ma.q_idx] >= 0.5)
    (claim,) = claims_of_page(form, 100, lambda _: text.replace("T", "read1(T[0], q)"))
    assert claim.by.startswith("not read: ") and "result of type" not in claim.by


@needs_node
def test_integers_that_are_negative_zeros_in_javascript():
    """1 / -0 is another number than 1 / 0."""
    q, k, n = ma.q_idx, ma.kv_idx, ma.scalar(0, "n")
    ones = ma.table(torch.ones(3), "t")
    for of in (-q, q * -3, ma.minimum(-q, 0), -q // 2, ma.where(q > k, -q, 0), n + k * -1, n * -q):
        mask = ones[k] / of >= 0.0
        form = bound(mask)
        (claim,) = claims_of_page(form, 3000)
        assert claim.outcome == "proved", claim
        places = [(i, j) for i in range(3) for j in range(3)]
        table = {"shape": [3], "data": [1, 1, 1]}
        is_table = [isinstance(value, torch.Tensor) for value in form.values]
        values, tables = [-0.0] * len(is_table), [table if one else None for one in is_table]
        text = JavaScript()(form.structure.mask)
        found = run_by_node([(text, values, tables, *at, 0, 0) for at in places])
        assert found == mask.to_dense(3, 3).flatten().tolist(), text


def test_what_doubles_do_not_hold_is_not_proved():
    form = bound(ma.q_idx + ma.table(torch.tensor([5, 7]), "t")[ma.batch] >= ma.kv_idx)
    (claim,) = claims_of_page(form, 1000, lambda text: text.replace("q", "(q * q * q)", 1))
    assert claim.outcome == "wrong"


# --- numbers that are changed on the page ---------------------------------------------------------


def masks_of_numbers():
    n, m, c = ma.scalar(3, "n"), ma.scalar(5, "m"), ma.scalar(4, "c", low=1)
    far = ma.table(torch.tensor([2**52, -(2**51), 7, 0]), "far")
    near = ma.table(torch.tensor([2**20, -(2**20), 7, 0]), "near")
    q, k = ma.q_idx, ma.kv_idx
    return {
        "products": n * m * q >= k,
        "sums with entries": far[q] + n * m >= k,
        "differences of sides": far[q] - n * (2**21) >= m * (2**21) - near[k],
        "quotients": (far[q] + n) // c >= (n * m * k) // c,
        "remainders": (n * m * q * 4 + k) % c >= k,
        "bits": Index(nodes.bitwise("bitor", near[q].node, (2 * n + m).node)) >= k,
        "branches": ma.where(q >= n, n * m * k, k) >= q,
        "ends": ma.minimum(n * m, k) * n >= ma.maximum(m * c * 2**20, q),
    }


@needs_node
def test_a_page_refuses_numbers_that_python_refuses():
    """Numbers of a page are changed without Python; doubles must hold all integers with them."""
    asked, wanted = [], []
    drawn = random.Random(3)
    ends = [0, 1, -1, 2, 3, -7, 2**10, -(2**20), 2**21, 2**26, 2**30, 2**31 - 1, 1 - 2**31]
    for name, mask in masks_of_numbers().items():
        form = bound(mask)
        extents = resolve(form, Lengths(4, 4))
        slots = [slot for slot in form.structure.slots if not slot.is_table]
        for _ in range(40):
            values = list(form.values)
            for slot in slots:
                low = -(2**31) if slot.low is None else slot.low
                values[slot.index] = max(drawn.choice(ends), low)
            numbers = [None if isinstance(v, torch.Tensor) else v for v in values]
            asked += [(Integers(form, extents).rows(), slots[-1].low, slots[-1].index, numbers)]
            try:
                Integers(Bound(form.structure, tuple(values)), extents).check()
                wanted.append((name, numbers, False))
            except ma.MaskValueError:
                wanted.append((name, numbers, True))
    names = ("arithmetic.js", "integers.js", "controls.js")
    script = (
        "".join((STATIC / name).read_text() for name in names)
        + f"""
    const data = {{}}, READS = [];
    let S;
    console.log(JSON.stringify({json.dumps(asked)}.map(([rows, low, slot, numbers]) => {{
      data.integers = rows;
      S = [...numbers];
      S[slot] = 1;
      const told = refusal({{slot, low, kind: "int"}}, numbers[slot]);
      return told !== null && told.includes("53 bits");
    }})));
    """
    )
    run = subprocess.run(["node", "-"], input=script, capture_output=True, text=True, check=True)
    found = [(*which[:2], told) for which, told in zip(wanted, json.loads(run.stdout), strict=True)]
    assert found == wanted
    for name in masks_of_numbers():
        assert {told for of, _, told in wanted if of == name} == {True, False}, name


# --- ranges over rectangles, which the page draws with --------------------------------------------

RECTANGLES = """
const found = [];
for (B = 0; B < data.batch; B++) for (H = 0; H < data.heads; H++) {
  forgetSets();
  const pairs = [], rectangles = [];
  for (let q = 0; q < Q_LEN; q++) for (let k = 0; k < KV_LEN; k++) pairs.push(kept(q, k));
  for (let q0 = 0; q0 < Q_LEN; q0++) for (let q1 = q0; q1 < Q_LEN; q1++)
    for (let k0 = 0; k0 < KV_LEN; k0++) for (let k1 = k0; k1 < KV_LEN; k1++)
      rectangles.push(over(q0, q1, k0, k1));
  found.push([pairs.map(Number), rectangles]);
}
return found;
"""


def ranges_by_node(made):
    """Of each page, for each batch entry and head: the elements, and what it says of rectangles."""
    sources = [(STATIC / name).read_text() for name in ("arithmetic.js", "tables.js")]
    data = [json.dumps(as_json(one.data)) for one in made]
    pages = [
        f"""async () => {{
        const document = {{getElementById: () => ({{textContent: {told}}})}};
        {sources[0]} {sources[1]} {one.script}
        await unpackTables();
        {RECTANGLES} }}"""
        for one, told in zip(made, data, strict=True)
    ]
    script = f"(async () => {{ for (const page of [{','.join(pages)}]) console.log(JSON.stringify(await page())); }})()"  # noqa: E501
    run = subprocess.run(["node", "-"], input=script, capture_output=True, text=True, check=True)
    return [json.loads(line) for line in run.stdout.splitlines()]


@needs_node
def test_ranges_over_rectangles_hold():
    """What a page calls empty or full is, for every rectangle of a small call of each mask."""
    made, dense = [], []
    for case in CATALOGUE.values():
        form = bound(case.mask)
        extents = extents_of(form, None)
        lengths = Lengths(min(extents.q_len, 7), min(extents.kv_len, 8), BATCH, HEADS)
        try:
            made.append(payload(case.mask, lengths))
        except ma.MaskValueError:  # an image of another size, or a formula that pages have not
            continue
        dense.append(case.mask.to_dense(lengths.q_len, lengths.kv_len, batch=BATCH, heads=HEADS))
    assert len(made) > 100
    decided = 0
    for page, kept, found in zip(made, dense, ranges_by_node(made), strict=True):
        members = itertools.product(range(page.data["batch"]), range(page.data["heads"]))
        for (b, h), (pairs, said) in zip(members, found, strict=True):
            of = kept[b, h].numpy()
            assert pairs == of.astype(int).flatten().tolist(), page.title
            sides = [list(itertools.combinations(range(n + 1), 2)) for n in of.shape]
            for ((q0, q1), (k0, k1)), answer in zip(itertools.product(*sides), said, strict=True):
                part = of[q0:q1, k0:k1]
                assert answer == 1 or (part.all() if answer == 2 else not part.any()), page.title
                decided += answer != 1
    assert decided > 10_000
