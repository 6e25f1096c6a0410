"""Formulas in LaTeX: as a person writes them, and meaning what they say."""

from __future__ import annotations

import re
from math import floor

import pytest
import torch

import maskalg as ma
from maskalg import causal, document, head, kv_idx, prefix, q_idx, sliding, where
from maskalg.formula.latex import expression_latex, latex, name_latex

IDS = torch.tensor([0, 0, 0, 1, 1, 2, 2, 2, 2, 3, 3, 3])
FLAGS = torch.tensor([True, False] * 6)
LENGTH = len(IDS)

WRITTEN = {
    r"q \ge k": causal,
    r"k \gt q": ~causal,
    r"\lvert q - k \rvert \lt 4": sliding(4),
    r"q - k \le 16 \land k - q \le 64": ma.window(16, 64),
    r"q \ge k \land \left(\lvert q - k \rvert \lt 256 \lor k \lt 4\right)": causal
    & (sliding(256) | prefix(4)),
    r"k - q \le 5": causal.shift(q=5),
    r"q - k \ge 4": q_idx > kv_idx + 3,
    r"\mathrm{ids}_{k} = \mathrm{ids}_{q} \land q \ge k": causal & document(IDS),
    r"k \lt \mathrm{lengths}_{b}": ma.padding(torch.tensor([3])),
    r"\left\lfloor q / 8 \right\rfloor \ge \left\lfloor k / 8 \right\rfloor": ma.block_causal(8),
    r"\text{true}": ma.everything,
    r"s \mapsto s + \left(k - q\right) \cdot \mathrm{slopes}_{h}": ma.alibi(torch.ones(2)),
    r"s \mapsto 30 \cdot \tanh\left(\frac{s}{30}\right)": ma.softcap(30),
    r"s \mapsto s - \ln\left(\left\lvert k - q \right\rvert + 1\right)": ma.bias(
        -ma.log(1 + abs(q_idx - kv_idx))
    ),
    r"s \mapsto s - 1.5 \cdot 10^{-07} \cdot q".replace("-07", "-7"): ma.bias(-1.5e-7 * q_idx),
}


@pytest.mark.parametrize("text", WRITTEN)
def test_written_as_a_person_writes(text: str) -> None:
    assert expression_latex(WRITTEN[text]) == text


def test_a_slot_stands_by_its_name() -> None:
    proof = (causal & sliding(256)).prove()
    assert latex(proof.mask) == r"\lvert q - k \rvert \lt \mathrm{window} \land q \ge k"


def test_a_long_formula_has_a_line_for_each_part() -> None:
    text = expression_latex(ma.block_diffusion(128, 16))
    assert text.startswith(r"\begin{aligned} & ") and text.endswith(r" \end{aligned}")
    assert text.count(r" \\ \lor\; & ") == 2


def test_names_cannot_break_out() -> None:
    assert name_latex("q_shift") == r"\mathrm{q\_shift}"
    text = name_latex("a}$\\&<b")
    assert text == r"\mathrm{a\}\$\backslash \&\lt b}"


MEANT = [
    causal,
    ~causal,
    ~sliding(3),
    sliding(1),
    ma.window(2, 5),
    ma.window(None, 3),
    causal & (sliding(4) | prefix(2)),
    ~(causal & sliding(4)) | prefix(3),
    ma.chunked(3) & ~document(IDS),
    ma.block_causal(5),
    ma.dilated(3) & causal,
    ma.strided(4),
    causal.shift(q=2, kv=1),
    causal.shift(q=-2),
    ma.global_tokens(FLAGS) | sliding(2),
    ma.block_diffusion(6, 2),
    ma.spatial(4, 1) & ma.temporal(4, 1),
    ma.permutation(IDS.flip(0)),
    ma.spans(IDS - 1),
    ma.sliding_tile((2, 2, 3), (1, 2, 1), (1, 1, 1)),
    ma.neighborhood((3, 4), 3),
    ma.neighborhood((3, 4), (1, 3), causal=(True, False)),
    where(head % 2 == 0, causal, prefix(3)),
    (2 * q_idx - 3 * kv_idx >= 4) | (q_idx + kv_idx < 3),
    (q_idx * kv_idx) % 5 != 2,
    (q_idx // 3 + kv_idx) % 4 >= 2,
    ma.maximum(q_idx, 4) - ma.minimum(kv_idx, 3) == 2,
]


@pytest.mark.parametrize("mask", MEANT, ids=str)
def test_means_what_the_mask_keeps(mask: ma.Mask) -> None:
    code = python_of(expression_latex(mask))
    tables = {"ids": IDS.tolist(), "flags": FLAGS.tolist(), "rank": IDS.flip(0).tolist()}
    tables["apart"] = mask.parameters.get("apart", IDS).tolist()
    tables["ids"] = [n - 1 for n in tables["ids"]] if "spans" in str(mask) else tables["ids"]
    names = {"floor": floor, "h": 0, **tables}
    kept = mask.to_dense(LENGTH, heads=1 if "head" in mask.mask_node.indices() else None)[0, 0]
    for q in range(LENGTH):
        for k in range(LENGTH):
            found = eval(code, {**names, "q": q, "k": k})
            assert bool(found) == bool(kept[q, k]), (q, k, code)


def python_of(text: str) -> str:
    """LaTeX of a condition as Python."""
    for old, new in [
        (r"\begin{aligned}", "("), (r"\end{aligned}", ")"), (r"\\", " "), (r"\;", " "), ("&", " "),
        (r"\left\lfloor", "floor("), (r"\right\rfloor", ")"),
        (r"\left\lvert", "abs("), (r"\right\rvert", ")"), (r"\lvert", "abs("), (r"\rvert", ")"),
        (r"\left(", "("), (r"\right)", ")"), (r"\max", "max"), (r"\min", "min"),
        (r"\land", " and "), (r"\lor", " or "), (r"\lnot", " not "),
        (r"\cdot", "*"), (r"\bmod", "%"), (r"\ne", "!="), (r"\ge", ">="), (r"\le", "<="),
        (r"\lt", "<"), (r"\gt", ">"), (" = ", " == "), (r"\text{true}", "True"),
    ]:  # fmt: skip
        text = text.replace(old, new)
    return re.sub(r"\\mathrm\{(\w+)\}_\{([^{}]*)\}", r"\1[\2]", text).strip()
