"""A structure read back from its key is the structure, whoever built it."""

from typing import get_args

import pytest
import torch

import maskalg as ma
from maskalg import causal, sliding
from maskalg.engine import keys, normal_form
from maskalg.engine.recent import Recent
from maskalg.formula.nodes import Op

IDS = torch.arange(40) // 7
TABLE = torch.rand(4, 9)


def expressions():
    a, b = sliding(3), sliding(5)
    return {
        "nothing": ma.nothing,
        "sinks": causal & (sliding(9) | ma.prefix(4)) & ~ma.document(IDS),
        "one window twice": a & a,
        "two windows": a & b,
        "one tensor twice": ma.document(IDS) & ma.document(IDS),
        "two tensors": ma.document(IDS) & ma.document(IDS.clone()),
        "bounds": ma.padding(torch.tensor([3, 9])) | ma.chunked(5),
        "flags": ma.table(IDS > 3, "flags")[ma.q_idx] | ma.dense(torch.ones(1, 40) > 0),
        "per head": ma.where(ma.head % 2 == 0, causal, abs(ma.q_idx - ma.kv_idx) <= 3),
        "shifted": causal.shift(q=-4, kv=torch.tensor([1, 2])),
        "capped": causal + ma.softcap(2.0) @ ma.alibi(TABLE[:, 0]) + 3 * ma.relative(TABLE),
        "constant": ma.alibi(TABLE[:, 0]) - 0.25,
    }


@pytest.mark.parametrize("name", expressions())
def test_a_key_is_read_back(name, monkeypatch):
    built = normal_form.bound(expressions()[name]).structure
    monkeypatch.setattr(normal_form, "_STRUCTURES", Recent(64))
    read = keys.structure_of(built.key)
    assert read is not built
    assert (read.key, read.mask_key) == (built.key, built.mask_key)
    assert (read.mask, read.bias) == (built.mask, built.bias)
    assert [kinds(read.mask), kinds(read.bias)] == [kinds(built.mask), kinds(built.bias)]
    for slot, wanted in zip(read.slots, built.slots, strict=True):
        for field in wanted.__slots__:
            assert getattr(slot, field) == getattr(wanted, field)


def kinds(node):
    return [(part.op, part.kind) for part in node.walk()]


def test_a_known_key_is_looked_up():
    built = normal_form.bound(causal & sliding(3)).structure
    assert keys.structure_of(built.key) is built


def test_every_operation_has_a_kind():
    """`step` and `member` stand in closed forms only, `along` in kernels; a function without a
    formula has no text."""
    elsewhere = {"step", "member", "along", "opaque"}
    reader = {"const", "scalar", "read", *elsewhere, *keys._NUMBERS, *keys._KINDS}
    assert reader == set(get_args(Op))


@pytest.mark.parametrize(
    "text",
    [
        "",
        "junk",
        "(const True) + (score)",
        "(const True) + (score) / 0",
        "(const True (score) / ",
        "(const True) * (score) / ",
        "(unknown) + (score) / ",
        "(ge (index kv_idx)) + (score / ",
        "(gt (scalar $w:complex) (index kv_idx)) + (score) / 0",
        "(gt (scalar $w:int) (index kv_idx)) + (score) / ",
        "(and (ge (index q_idx) (index kv_idx)) (const True)) + (score) /",
    ],
)
def test_other_text_is_refused(text):
    with pytest.raises(ma.MaskValueError, match="is not the key of a structure"):
        keys.structure_of(text)
