"""What kernels are passed is the same in number and type for every expression."""

import math
import struct

import pytest
import torch

import maskalg as ma
from maskalg import causal, sliding
from maskalg.codegen.hooks import Style, hooks_of
from maskalg.engine.extents import Extents
from maskalg.engine.normal_form import bound
from tests.cases.many_numbers import windows

pytest.importorskip("triton", reason="the arguments of Triton's kernels")

EXTENTS = Extents(64, 64, 1, 4)
IDS = torch.arange(64) // 7
EXPRESSIONS = {
    "causal": causal,
    "window": causal & sliding(300),
    "three": causal & sliding(64) & ma.document(IDS),
    "alibi": causal + ma.alibi(torch.rand(4)),
    "softcap": causal & sliding(9) + ma.softcap(20.0),
    "whole cap": causal + ma.softcap(20),
    "many numbers": windows(15),
}


@pytest.mark.parametrize("name", list(EXPRESSIONS))
def test_as_many_integers_and_tables_for_every_expression(name):
    from maskalg_kernels.forward import SCALARS

    from maskalg.backends.triton.arguments import padded, scalars_of, tables_missing

    form = bound(EXPRESSIONS[name])
    hooks = hooks_of(form.structure, Style(ptx=True, long=form.long))
    numbers = scalars_of(hooks, form, EXTENTS)
    assert len(numbers) == len(SCALARS)
    assert all(type(number) is int and -(2**31) <= number < 2**31 for number in numbers)
    assert len(hooks.tables) + tables_missing(len(hooks.tables)) == 8
    assert len(padded((IDS,) * len(hooks.tables), IDS.device)) == 8


def test_more_tables_than_are_passed_together():
    from maskalg.backends.triton.arguments import padded

    many = padded((IDS,) * 9, IDS.device)
    assert len(many) == 16
    assert all(table is IDS for table in many[:9])
    assert all(table.numel() == 0 for table in many[9:])


@pytest.mark.parametrize("cap", [20.0, 20, 0.1, 1e39, 1e-42])
def test_real_numbers_are_passed_as_their_bits(cap):
    from maskalg.backends.triton.arguments import scalars_of

    form = bound(causal + ma.softcap(cap))
    hooks = hooks_of(form.structure)
    (place,) = [i for i, argument in enumerate(hooks.scalars) if argument.real]
    passed = struct.unpack("<f", struct.pack("<i", scalars_of(hooks, form, EXTENTS)[place]))[0]
    assert passed == torch.tensor(float(cap), dtype=torch.float32).item()
    assert math.isinf(passed) == (cap == 1e39)
