"""Checks of a call that are remembered are still made for every other call."""

from __future__ import annotations

import pytest
import torch
from torch.fx.experimental.proxy_tensor import make_fx

import maskalg as ma
from maskalg import causal, document, prefix
from maskalg.attention import checked_call


def inputs(length: int, batch: int = 2, heads: int = 4) -> tuple[torch.Tensor, ...]:
    query = torch.randn(batch, heads, length, 8)
    return query, query[:, :2], query[:, :2]


def test_lengths_that_fit_once_do_not_excuse_others() -> None:
    mask = causal & document(torch.arange(20) // 6)
    for _ in range(2):
        checked_call(*inputs(20), mask)
        with pytest.raises(ma.MaskValueError, match="21"):
            checked_call(*inputs(21), mask)
        checked_call(*inputs(7), mask)


def test_batches_that_fit_once_do_not_excuse_others() -> None:
    mask = prefix(torch.tensor([3, 4]))
    for _ in range(2):
        checked_call(*inputs(9), mask)
        with pytest.raises(ma.MaskValueError, match="batch"):
            checked_call(*inputs(9, batch=3), mask)


def test_memory_put_into_ids_is_checked_again() -> None:
    ids = torch.zeros(20, dtype=torch.int32)
    mask = document(ids)
    checked_call(*inputs(20), mask)
    ids.data = torch.zeros(19, dtype=torch.int32)
    with pytest.raises(ma.MaskValueError, match="19 entries"):
        checked_call(*inputs(20), mask)


def test_devices_that_fit_once_do_not_excuse_others() -> None:
    mask = causal & document(torch.arange(20))
    query, key, value = inputs(20)
    checked_call(query, key, value, mask)
    with pytest.raises(ma.MaskValueError, match="meta"):
        checked_call(query.to("meta"), key.to("meta"), value.to("meta"), mask)
    with pytest.raises(ma.MaskTypeError, match="device"):
        checked_call(query, key.to("meta"), value, mask)


def test_shapes_and_dtypes_are_refused_every_time() -> None:
    query, key, value = inputs(20)
    wrong = {
        "lengths": (query, key, value[:, :, :7]),
        "head dimensions": (query[..., :4], key, value),
        "multiple": (query[:, :3], key, value),
        "dtype": (query, key.half(), value),
        r"\[batch, heads, length, head_dim\]": (query, key[0], value),
    }
    checked_call(query, key, value, causal)
    for _ in range(2):
        for text, given in wrong.items():
            with pytest.raises(ma.MaskalgError, match=text):
                checked_call(*given, causal)


def test_extents_of_equal_shapes_are_one_object() -> None:
    first, second = (checked_call(*inputs(20), causal).extents for _ in range(2))
    assert first is second
    assert checked_call(*inputs(21), causal).extents is not first


def test_symbolic_sizes_are_checked_too() -> None:
    def attend(query: torch.Tensor, key: torch.Tensor, value: torch.Tensor) -> torch.Tensor:
        return ma.attention(query, key, value, causal, backend="reference")

    traced = make_fx(attend, tracing_mode="symbolic")(*inputs(20))
    given = inputs(20)
    torch.testing.assert_close(traced(*given), attend(*given))


def test_inputs_that_look_like_length_before_heads_are_told_of() -> None:
    """`[batch, length, heads, dim]` runs where three tensors agree: as many heads of few tokens."""
    long = torch.randn(1, 512, 8, 16)
    with pytest.warns(UserWarning, match=r"512 heads of 8 keys.*query.transpose\(1, 2\)"):
        ma.attention(long, long, long, causal)
    short = torch.randn(1, 64, 8, 16)
    with pytest.warns(UserWarning, match="ids has 64 positions; the inputs, read as"):
        ma.attention(short, short, short, causal & document(torch.arange(64) // 9))
    with pytest.raises(ma.MaskValueError, match=r"They fit as \[batch, length, heads, dim\]"):
        ma.attention(short[:, :1], short, short, causal)
    with pytest.raises(ma.MaskValueError, match=r"no multiple of 3 key-value heads") as told:
        ma.attention(torch.randn(1, 8, 64, 16), *[torch.randn(1, 3, 64, 16)] * 2, causal)
    assert "They fit" not in str(told.value)


@pytest.mark.parametrize(
    "dtype, write", [(torch.complex64, "query.real"), (torch.int64, r"query.float\(\)")]
)
def test_a_dtype_that_is_not_served_is_told_with_one_that_is(dtype, write) -> None:
    with pytest.raises(ma.MaskTypeError, match=f"got {dtype}.*: {write}\\."):
        ma.attention(*[torch.zeros(1, 1, 4, 8, dtype=dtype)] * 3, causal)


def test_usual_layouts_are_not_told_of(recwarn: pytest.WarningsRecorder) -> None:
    many = torch.randn(1, 128, 1, 8)  # one query of many heads, few keys
    ma.attention(many, torch.randn(1, 1, 64, 8), torch.randn(1, 1, 64, 8), causal.shift(q=63))
    square = torch.randn(1, 8, 8, 8)
    ma.attention(square, square, square, causal & document(torch.arange(8)))
    ma.attention(square, square, square, causal & document(torch.arange(20)))
    assert not recwarn.list


def test_queries_behind_the_last_key_are_told_of(recwarn: pytest.WarningsRecorder) -> None:
    query, key = torch.randn(1, 1, 2, 8), torch.randn(1, 1, 128, 8)
    for quiet in (causal.shift(q=126), causal.shift(q=500, kv=400), ma.padding([9]).shift(q=500)):
        ma.attention(query, key, key, quiet)
    ma.attention(query, key, key, causal.shift(q=500), return_lse=True)
    assert not recwarn.list
    with pytest.warns(UserWarning, match="stands at position 500, and the keys end at 127"):
        ma.attention(query, key, key, (causal & ma.sliding(9)).shift(q=500))
    with pytest.warns(UserWarning, match="end at 137"):
        ma.attention(query, key, key, causal.shift(q=138, kv=10))
