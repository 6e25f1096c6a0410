"""Entries that are the smallest and the largest integers of their dtype, such as sentinels."""

import pytest
import torch

import maskalg as ma
from maskalg import causal, head, kv_idx, q_idx, table
from maskalg.extents import Extents, fits_int32
from maskalg.normalform import bound
from maskalg.testing import assert_labels_exact

DTYPES = (torch.int64, torch.int32, torch.uint8, torch.int8)
LENGTH, HEADS = 8, 3


def entries(dtype):
    """Queries' and keys' entries and a window for each head, as tensors of a dtype."""
    least, most = torch.iinfo(dtype).min, torch.iinfo(dtype).max
    of_queries = [least, 5, most, 0, most, least, 7, 3]
    of_keys = [most, least, 0, most, 2, least, 3, most]
    return [torch.tensor(row, dtype=dtype) for row in (of_queries, of_keys, [most, 3, least])]


def cases(dtype):
    """Masks, each with the same for numbers of Python, which have no ends."""
    left, right, windows = entries(dtype)
    x, y, w = table(left, "x"), table(right, "y"), table(windows, "w")
    a, b, c = left.tolist(), right.tolist(), windows.tolist()
    return {
        "x[q] > y[k]": (x[q_idx] > y[kv_idx], lambda h, q, k: a[q] > b[k]),
        "x[q] >= x[k]": (x[q_idx] >= x[kv_idx], lambda h, q, k: a[q] >= a[k]),
        "x[q] < x[k]": (x[q_idx] < x[kv_idx], lambda h, q, k: a[q] < a[k]),
        "~(x[q] <= y[k])": (
            ~(x[q_idx] <= y[kv_idx]) & causal,
            lambda h, q, k: a[q] > b[k] and q >= k,
        ),
        "between": (
            (x[q_idx] > x[kv_idx]) & (x[q_idx] < y[kv_idx]),
            lambda h, q, k: a[k] < a[q] < b[k],
        ),
        "x[q] > 0": (x[q_idx] > 0, lambda h, q, k: a[q] > 0),
        "x[k] <= 0": (x[kv_idx] <= 0, lambda h, q, k: a[k] <= 0),
        "x[k] > q": (x[kv_idx] > q_idx, lambda h, q, k: a[k] > q),
        "k - q <= w": (kv_idx - q_idx <= w[head], lambda h, q, k: k - q <= c[h]),
        "q - k < w": ((q_idx - kv_idx < w[head]) & causal, lambda h, q, k: 0 <= q - k < c[h]),
    }


def matrix(rule):
    """`[heads, queries, keys]` of a rule for single elements."""
    rows = [[[rule(h, q, k) for k in range(LENGTH)] for q in range(LENGTH)] for h in range(HEADS)]
    return torch.tensor(rows)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("name", list(cases(torch.int64)))
def test_comparisons_at_the_ends_of_a_dtype(dtype, name):
    mask, rule = cases(dtype)[name]
    wanted = matrix(rule)
    assert mask.to_dense(LENGTH, heads=HEADS)[0].expand_as(wanted).equal(wanted)
    for block in (1, 2, 4, 8):
        assert_labels_exact(mask, LENGTH, block=block, heads=HEADS)
    function = mask.to_mask_mod()
    sides = torch.arange(HEADS)[:, None, None], torch.arange(LENGTH)[:, None], torch.arange(LENGTH)
    places = torch.zeros((), dtype=torch.int64), *torch.broadcast_tensors(*sides)
    assert function(*places).expand_as(wanted).equal(wanted)
    q, k, v = torch.randn(3, 1, HEADS, LENGTH, 16).unbind()
    scores = (q @ k.mT / 4).masked_fill(~wanted, -torch.inf)
    out = torch.nan_to_num(scores.softmax(-1)) @ v
    torch.testing.assert_close(ma.attention(q, k, v, mask, backend="cpu"), out)


def test_sums_of_short_entries_do_not_wrap_in_functions_for_flex_attention():
    small = table(torch.tensor([250, 7, 255, 0], dtype=torch.uint8), "small")
    for mask in (small[q_idx] + small[kv_idx] >= 300, small[q_idx] - small[kv_idx] < 0):
        function, place = mask.to_mask_mod(), torch.arange(4)
        zero = torch.zeros((), dtype=torch.int64)
        assert function(zero, zero, place[:, None], place).equal(mask.to_dense(4)[0, 0])


def test_kernels_add_nothing_to_entries_that_are_compared():
    least, most, windows = entries(torch.int32)
    x, y, w = table(least, "x"), table(most, "y"), table(windows, "w")
    for ptx in (False, True):
        text = ma.render(x[q_idx] > y[kv_idx], ptx=ptx)
        assert " + 1" not in text[text.index("def masked") : text.index("def next_run")]
    added = ma.render(kv_idx <= q_idx + w[head])
    assert "tl.minimum(tl.maximum(t0, -1073741824), 1073741824)" in added
    assert ").to(tl.int64) + 4) >= t1" in ma.render(x[q_idx] + 5 > x[kv_idx])


def test_positions_near_the_entries_that_kernels_add_take_64_bits():
    form = bound(kv_idx <= q_idx + table(entries(torch.int32)[2], "w")[head])
    assert fits_int32(form, Extents(1 << 20, 1 << 20, 1, 3))
    assert not fits_int32(form, Extents(1 << 29, 1 << 29, 1, 3))


def test_sums_past_the_ends_equal_nothing():
    most = 2**63 - 1
    for entries, n in (([most] * 4, 1), ([-most - 1] * 4, -1), ([most, most, most - 4, 0], 4)):
        table = ma.table(torch.tensor(entries))
        mask = table[ma.q_idx] + n == table[ma.kv_idx]
        wanted = torch.tensor([[a + n == b for b in entries] for a in entries])
        assert mask.to_dense(4)[0, 0].equal(wanted)
        assert (mask.blocks(4, block=1).labels[0, 0] == 2).equal(wanted)
