"""Entries that are the smallest and the largest integers of their dtype, such as sentinels."""

import pytest
import torch

import maskalg as ma
from maskalg import causal, head, kv_idx, q_idx, table
from maskalg.engine.extents import Extents, fits_int32
from maskalg.engine.normal_form import bound
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


def test_positions_that_are_added_twice_take_64_bits_sooner():
    twice = bound(q_idx + q_idx - kv_idx >= kv_idx - 5)
    assert twice.structure.repeats == 2
    assert fits_int32(twice, Extents(1 << 28, 1 << 28, 1, 1))
    assert not fits_int32(twice, Extents(1, (1 << 30) + 1, 1, 1))
    once = bound(causal & (abs(q_idx - kv_idx) < 5) & (q_idx % 3 == 0))
    assert once.structure.repeats == 1
    assert fits_int32(once, Extents(1, (1 << 30) + 1, 1, 1))


def test_batch_entries_and_heads_are_added_as_positions_are():
    form = bound((ma.batch + head + kv_idx - q_idx) % 7 == 0)
    assert fits_int32(form, Extents(1 << 29, 1 << 29, 1 << 20, 1 << 20))
    assert not fits_int32(form, Extents(1 << 29, 1 << 29, 1 << 30, 1))
    assert not fits_int32(form, Extents(1 << 29, 1 << 29, 1, 1 << 30))


def test_sums_past_the_ends_equal_nothing():
    most = 2**63 - 1
    for entries, n in (([most] * 4, 1), ([-most - 1] * 4, -1), ([most, most, most - 4, 0], 4)):
        table = ma.table(torch.tensor(entries))
        mask = table[ma.q_idx] + n == table[ma.kv_idx]
        wanted = torch.tensor([[a + n == b for b in entries] for a in entries])
        assert mask.to_dense(4)[0, 0].equal(wanted)
        assert (mask.blocks(4, block=1).labels[0, 0] == 2).equal(wanted)


B, MOST = 2**31 - 1, 2**63 - 1
LIMITS = [MOST, 3, -MOST - 1]
FAR = [MOST, MOST - 1, 2**62, -(2**62), -MOST - 1, -MOST, 2**43, 0]


def past_64_bits():
    """Masks whose integers leave 64 bits, each with the same for numbers of Python."""
    w = table(torch.tensor(LIMITS), "limits")[head]
    x, y = (table(torch.tensor(row), "x") for row in (FAR, FAR[::-1]))
    a, b = FAR, FAR[::-1]
    return {
        "limits": (causal & (kv_idx // 4 < w), lambda h, q, k: q >= k and k // 4 < LIMITS[h]),
        "reach": ((q_idx - kv_idx) // 4 <= w, lambda h, q, k: (q - k) // 4 <= LIMITS[h]),
        "sum": (x[q_idx] + 3 >= y[kv_idx], lambda h, q, k: a[q] + 3 >= b[k]),
        "sums": (
            x[q_idx] + w > y[kv_idx] + x[kv_idx],
            lambda h, q, k: a[q] + LIMITS[h] > b[k] + a[k],
        ),
        "equal": (
            x[q_idx] * 2 == y[kv_idx] - 1 + w,
            lambda h, q, k: a[q] * 2 == b[k] - 1 + LIMITS[h],
        ),
        "equal sums": (
            x[q_idx] + 2**30 == x[kv_idx] + 2**30,
            lambda h, q, k: a[q] == a[k],
        ),
        "different": (
            (x[q_idx] + x[q_idx] != x[kv_idx] + y[kv_idx]) & causal,
            lambda h, q, k: 2 * a[q] != a[k] + b[k] and q >= k,
        ),
        "quotient": (x[q_idx] * B // 7 > y[kv_idx], lambda h, q, k: a[q] * B // 7 > b[k]),
        "remainder": ((x[q_idx] - y[kv_idx]) % 7 < 3, lambda h, q, k: (a[q] - b[k]) % 7 < 3),
        "product": (x[q_idx] * y[kv_idx] * 9 >= w, lambda h, q, k: a[q] * b[k] * 9 >= LIMITS[h]),
        "extremum": (
            ma.maximum(x[q_idx] + w, kv_idx) >= y[kv_idx] + 1,
            lambda h, q, k: max(a[q] + LIMITS[h], k) >= b[k] + 1,
        ),
        "index": (
            x[y[kv_idx] * 8 - q_idx] > 0,
            lambda h, q, k: a[max(0, min(b[k] * 8 - q, 7))] > 0,
        ),
        "numbers": (kv_idx // B > q_idx * -B, lambda h, q, k: k // B > q * -B),
        "more numbers": ((q_idx + 1) * B * B * 2 >= kv_idx, lambda h, q, k: True),
        "most numbers": (q_idx * B * B * B <= kv_idx * B, lambda h, q, k: q * B**3 <= k * B),
    }


@pytest.mark.parametrize("name", list(past_64_bits()))
def test_integers_mean_the_same_past_64_bits(name):
    mask, rule = past_64_bits()[name]
    wanted = matrix(rule)
    kept = mask.to_dense(LENGTH, heads=HEADS)[0].expand_as(wanted)
    assert kept.equal(wanted)
    for block in (1, 2, 3, 8):
        labels = mask.blocks(LENGTH, block=block, heads=HEADS).labels[0]
        for h in range(HEADS):
            for i, rows in enumerate(wanted[h].split(block)):
                for j, part in enumerate(rows.split(block, dim=1)):
                    label = 2 if part.all() else int(part.any())
                    assert labels[min(h, len(labels) - 1), i, j] == label
    assert mask.is_empty(q_len=LENGTH, heads=HEADS) is not bool(wanted.any())
    cost = mask.cost(LENGTH, heads=HEADS)
    assert cost.kept * wanted.numel() == int(wanted.sum()) * cost.total
    function = mask.to_mask_mod()
    sides = torch.arange(HEADS)[:, None, None], torch.arange(LENGTH)[:, None], torch.arange(LENGTH)
    places = torch.zeros((), dtype=torch.int64), *torch.broadcast_tensors(*sides)
    assert function(*places).expand_as(wanted).equal(wanted)
    q, k, v = torch.randn(3, 1, HEADS, LENGTH, 16).unbind()
    out = torch.nan_to_num((q @ k.mT / 4).masked_fill(~wanted, -torch.inf).softmax(-1)) @ v
    torch.testing.assert_close(ma.attention(q, k, v, mask, backend="cpu"), out)


def test_a_verified_proof_is_of_what_is_computed():
    mask, rule = past_64_bits()["limits"]
    assert mask.prove().check().exact
    assert mask.to_dense(LENGTH, heads=HEADS)[0].equal(matrix(rule))


def test_a_bias_past_64_bits_is_rounded_once():
    bias = ma.bias(table(torch.tensor(FAR), "far")[q_idx] * B)
    place = torch.arange(LENGTH)
    found = bias.to_score_mod()(torch.zeros(LENGTH), place * 0, place * 0, place, place * 0)
    torch.testing.assert_close(found, torch.tensor([float(n * B) for n in FAR]), rtol=1e-6, atol=0)


def test_kernels_of_short_entries_pay_nothing():
    short = ma.render(causal & (kv_idx // 16 < table(torch.tensor([3], dtype=torch.int32))[head]))
    assert "long_" not in short
    window = ma.render((q_idx - kv_idx <= table(torch.tensor([3]))[head]) & causal)
    assert "long_" not in window
    assert "long_multiply" in ma.render(kv_idx // 16 < table(torch.tensor([3]))[head])


def test_integers_that_nothing_holds_are_refused():
    many = q_idx
    for _ in range(40):
        many = many * B
    with pytest.raises(
        ma.MaskValueError, match=r"integers of 1\d{3} bits, and at most 900 are .* Leave"
    ):
        (many >= kv_idx).to_dense(4)
