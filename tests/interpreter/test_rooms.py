"""Results that kernels write into slices of the tokens of longer tensors."""

import os

import pytest
import torch

from maskalg import causal, sliding
from maskalg.attention import checked_call
from maskalg.backends.results import empty_result

pytestmark = pytest.mark.skipif(
    os.environ.get("TRITON_INTERPRET") != "1", reason="needs TRITON_INTERPRET=1"
)
backend = pytest.importorskip("maskalg.backends.triton.backend", reason="needs Triton")

QUERIES, KEYS, TOKENS, SLICE = 70, 50, 200, slice(90, 160)


def drawn(heads, dim, tokens, tokens_first):
    if tokens_first:
        return torch.randn(1, tokens, heads, dim).transpose(1, 2)
    return torch.randn(1, heads, tokens, dim)


@pytest.mark.parametrize("tokens_first", [False, True])
@pytest.mark.parametrize("queries", [QUERIES, 3])
def test_slices_are_filled_and_nothing_beside_them(queries, tokens_first):
    torch.manual_seed(0)
    at = slice(SLICE.start, SLICE.start + queries)
    whole = [drawn(h, d, TOKENS, tokens_first) for h, d in ((4, 16), (2, 16), (2, 32), (4, 32))]
    query, change = whole[0][:, :, at], whole[3][:, :, at]
    keys = slice(40, 40 + KEYS)
    inputs = query, whole[1][:, :, keys], whole[2][:, :, keys]
    call = checked_call(*inputs, (causal & sliding(40)).shift(q=30), return_lse=True)
    out, lse = backend.compute(call, True)
    gradients = backend.differentiate(call, (out, lse), (change, None), ())

    rooms = [empty_result(like, dim).fill_(7) for like, dim in (
        (whole[0], 32), (whole[0], 16), (whole[1], 16), (whole[1], 32)
    )]  # fmt: skip
    places = [x[:, :, tokens] for x, tokens in zip(rooms, (at, at, keys, keys), strict=True)]
    for _ in range(3):
        [x.fill_(7) for x in rooms]
        found, of_rows = backend.compute(call._replace(rooms=(places[0],)), True)
        saved = (found, of_rows)
        again = backend.differentiate(call._replace(rooms=tuple(places)), saved, (change, None), ())
        for got, place, wanted in zip((found, *again), places, (out, *gradients), strict=True):
            assert got.data_ptr() == place.data_ptr() and got.stride() == place.stride()
            torch.testing.assert_close(got, wanted, atol=0, rtol=0)
        assert torch.equal(of_rows, lse)
        for room, place in zip(rooms, places, strict=True):
            assert (room == 7).sum() == room.numel() - place.numel() + (place == 7).sum()
