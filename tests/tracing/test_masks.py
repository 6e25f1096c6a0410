"""Traced masks: the matrix of the function itself, and labels that agree with it."""

import functools
import re

import numpy as np
import pytest
import torch
from flex_masks import FLAGS, N, Windowed, back, chunks, masks, with_default

import maskalg as ma
from maskalg.engine.normal_form import bound
from maskalg.testing import oracle
from maskalg.tracing.pointwise import pointwise

BATCH, HEADS = 2, 4


def dense(function, q_len=N, kv_len=N):
    """The function's own values, `[batch, heads, q_len, kv_len]`."""
    views = [(-1, 1, 1, 1), (1, -1, 1, 1), (1, 1, -1, 1), (1, 1, 1, -1)]
    sizes = (BATCH, HEADS, q_len, kv_len)
    return pointwise(
        function, *[torch.arange(n).view(v) for n, v in zip(sizes, views, strict=True)]
    )


@pytest.mark.parametrize("name", list(masks()))
def test_traced_mask_is_the_function(name):
    case = masks()[name]
    function, q_len, kv_len = case if isinstance(case, tuple) else (case, N, N)
    mask = ma.mask(function)
    want = dense(function, q_len, kv_len)
    got = mask.to_dense(q_len, kv_len, batch=BATCH, heads=HEADS)
    assert (got == want).all()
    for block in (8, (16, 4)):
        sides = block if isinstance(block, tuple) else (block, block)
        found = mask.blocks(q_len, kv_len, block=block, batch=BATCH, heads=HEADS)
        labels = torch.from_numpy(oracle.labels(want.numpy(), *sides))
        assert (found.labels == labels).all()


def test_torch_agrees():
    """`pointwise` is what FlexAttention itself evaluates."""
    from torch.nn.attention.flex_attention import create_mask

    for name in ("documents", "media", "chosen-tiles", "per-head"):
        function = masks()[name]
        assert (create_mask(function, BATCH, HEADS, N, N, "cpu") == dense(function)).all()


def test_a_window_is_the_window():
    assert ma.mask(back(5)).prove().exact
    assert bound(ma.mask(back(5))).structure is bound(ma.mask(back(30))).structure
    assert ma.mask(back(5)).bind(window=30) == ma.mask(back(30))
    assert "window >= q_idx - kv_idx" in str(ma.mask(back(5)).prove())


def test_captures_are_parameters():
    object_mask = ma.mask(Windowed(5, FLAGS))
    assert object_mask.parameters == {"window": 5, "sinks": FLAGS}
    assert ma.mask(with_default).parameters == {"left": 4, "right": 2}
    assert ma.mask(functools.partial(with_default, left=9)).parameters["left"] == 9
    assert ma.mask(chunks).parameters == {"CHUNK": 6}


def test_one_number_is_one_parameter_wherever_it_is_captured():
    window = 7

    def near(q, k):
        return q - k < window

    mask = ma.mask(lambda b, h, q, k: near(q, k) & (k - q < window))
    assert mask.parameters == {"window": 7}
    assert (mask.bind(window=2).to_dense(9) == ma.sliding(2).to_dense(9)).all()


def test_tensors_are_bound_anew():
    ids = torch.tensor([0, 0, 1, 1])
    mask = ma.mask(lambda b, h, q, k: ids[q] == ids[k])
    assert mask == ma.mask(lambda b, h, q, k: ids[q] == ids[k])
    assert mask.prove().exact == ma.document(ids).prove().exact
    other = torch.tensor([5, 6, 6, 6])
    assert (mask.bind(ids=other).to_dense(4) == ma.document(other).to_dense(4)).all()


def test_the_function_is_left_as_it_was():
    function = back(5)
    before = [cell.cell_contents for cell in function.__closure__]
    ma.mask(function)
    assert [cell.cell_contents for cell in function.__closure__] == before
    zero = torch.tensor(0)
    assert function(zero, zero, torch.tensor(5), zero).item() is True


def test_numbers_that_python_needs_are_constants():
    def mask_mod(b, h, q, k, steps=3, window=9):
        kept = q - k < window
        for step in range(steps):
            kept = kept & (q != k + step)
        return kept

    assert ma.mask(mask_mod).parameters == {"window": 9}


def test_isinstance_sees_what_a_symbol_stands_for():
    window = 4

    def mask_mod(b, h, q, k):
        size = window if isinstance(window, int) else 100
        return (q - k < size) & isinstance(q, torch.Tensor)

    assert (ma.mask(mask_mod).to_dense(9) == ma.window(3, None).to_dense(9)).all()


def test_changes_in_place_reach_every_name():
    """`|=` changes a tensor, for all who hold it; a number is another one."""
    window = 3

    def mask_mod(b, h, q, k):
        size = window
        size += 2
        kept = q - k < size
        other = kept
        other &= q - k >= 0
        other |= k < window
        return kept

    assert (ma.mask(mask_mod).to_dense(N) == dense(mask_mod)[:1, :1]).all()
    assert ma.mask(mask_mod).parameters == {"window": 3}


def test_numbers_as_keys_and_types_are_what_they_are():
    window, spans = 4, {4: 2, 8: 3}

    def mask_mod(b, h, q, k):
        reach = spans.get(window, 100) if type(window) is int else 50
        wide = hasattr(window, "shape") or isinstance(window * 2, torch.Tensor)
        return (q - k <= reach) & (k - q <= (30 if wide else 1))

    assert (ma.mask(mask_mod).to_dense(N) == ma.window(2, 1).to_dense(N)).all()


def test_modules_and_attributes_of_other_objects():
    class Holder:
        table = torch.arange(N) % 3

    holder = Holder()

    class Module(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("kinds", torch.arange(N) % 4)
            self.window = 6

        def forward(self, b, h, q, k):
            return (self.kinds[q] == self.kinds[k]) & (q - k < self.window) & (holder.table[k] > 0)

    module = Module()
    mask = ma.mask(module)
    assert (mask.to_dense(N, batch=BATCH, heads=HEADS) == dense(module)).all()
    assert set(mask.parameters) == {"kinds", "window", "table"}


def test_opaque_functions_are_evaluated_block_by_block():
    weights = torch.linspace(0, 1, N)

    def heavier(b, h, q, k):
        return torch.stack([weights[q] * 0.7, weights[k]]).argmax() == 1

    with pytest.raises(ma.MaskTypeError, match=r"torch\.stack\(…\) has no formula.*opaque=True"):
        ma.mask(heavier)
    mask = ma.mask(heavier, opaque=True) & ma.causal
    want = dense(heavier) & (torch.arange(N)[:, None] >= torch.arange(N))
    assert (mask.to_dense(N, batch=BATCH, heads=HEADS) == want).all()
    found = mask.blocks(N, block=8, batch=BATCH, heads=HEADS)
    assert (found.labels == torch.from_numpy(oracle.labels(want.numpy(), 8, 8))).all()
    assert found.counts()[0] >= 10 * BATCH * HEADS and not mask.prove().exact
    q = torch.randn(BATCH, HEADS, N, 8)
    got = ma.attention(q, q, q, mask, backend="cpu")
    torch.testing.assert_close(got, ma.attention(q, q, q, ma.dense(want), backend="reference"))
    with pytest.raises(ma.BackendError, match=r"ma\.dense\(mask\.to_dense"):
        ma.render(mask)


def test_opaque_functions_may_ask_python_for_an_index():
    def early(b, h, q, k):
        return q >= k if q > 4 else [True, False, False][k % 3]

    taken = ma.mask(early, opaque=True)
    q = torch.arange(8)
    want = torch.where(q[:, None] > 4, q[:, None] >= q, q % 3 == 0)
    assert torch.equal(taken.to_dense(8, batch=1, heads=1)[0, 0], want)
    x = torch.randn(3, 1, 1, 8, 4)
    got = ma.attention(*x, taken, backend="cpu")
    torch.testing.assert_close(got, ma.attention(*x, ma.dense(want), backend="reference"))
    with pytest.raises(ma.MaskTypeError, match="a `return` is missing"):
        ma.mask(lambda b, h, q, k: None, opaque=True).to_dense(4, batch=1, heads=1)
    for drawn in (
        lambda b, h, q, k: torch.rand(()) < q,
        lambda b, h, q, k: torch.rand(()) < 0.5 if q > 2 else q >= k,
    ):
        with pytest.raises(ma.MaskTypeError, match="draws new numbers at each call"):
            ma.mask(drawn, opaque=True).to_dense(4, batch=1, heads=1)

    def failing(b, h, q, k):
        raise RuntimeError("of the user's own")

    with pytest.raises(RuntimeError, match="of the user's own"):
        ma.mask(failing, opaque=True).to_dense(4, batch=1, heads=1)
    ones = ma.mask(lambda b, h, q, k: 1 if q > k else 0, opaque=True)
    assert torch.equal(
        (~ones).to_dense(4, batch=1, heads=1)[0, 0], ~torch.ones(4, 4).tril(-1).bool()
    )


def test_captured_values_of_any_size():
    far, entries = 2**40, torch.tensor([3, 2**40])
    assert torch.equal(
        ma.mask(lambda b, h, q, k: (q >= k) & (q < far) & (k < entries[1])).to_dense(N),
        ma.causal.to_dense(N),
    )
    found = ma.mask(lambda b, h, q, k: (q - k) % entries[0] + entries.numel() < np.int64(4))
    assert torch.equal(found.to_dense(N), ((ma.q_idx - ma.kv_idx) % 3 < 2).to_dense(N))
    halves = torch.arange(N, dtype=torch.float64) / 2  # as float32 holds them
    found = ma.mask(lambda b, h, q, k: halves[q] - halves[k] < 2)
    assert torch.equal(found.to_dense(N), (ma.q_idx - ma.kv_idx < 4).to_dense(N))
    last = torch.tensor([-1, 0, 1])
    found = ma.mask(lambda b, h, q, k: entries[last[k] - 1] == 3)
    assert torch.equal(found.to_dense(1, 3), torch.tensor([[[[True, False, True]]]]))


def test_exported_functions_are_traced_again():
    """Where numbers are rounded to integers, they say what NaN and infinities become."""
    mask = ma.mask(lambda b, h, q, k: q - k < 2**h * 4)
    again = ma.mask(mask.to_mask_mod())
    options = {"batch": BATCH, "heads": HEADS}
    assert torch.equal(again.to_dense(N, **options), mask.to_dense(N, **options))
    ends = torch.tensor([np.nan, np.inf, -np.inf, 1.5])
    found = ma.mask(lambda b, h, q, k: torch.nan_to_num(ends[k], 7.0) > 2).to_dense(1, 4)
    assert torch.equal(found[0, 0, 0], torch.nan_to_num(ends, 7.0) > 2)


def test_real_arithmetic_of_numbers_is_pythons():
    def numbers(n, r, width):
        return {
            "product": lambda b, h, q, k: q >= n * r,
            "quotient": lambda b, h, q, k: (q - k) * r <= n / 7,
            "whole": lambda b, h, q, k: q >= k + int(n * r),
            "beside": lambda b, h, q, k: (q * r >= k) & (q - k < width),
        }

    kept = {"product": set(), "quotient": {"r"}, "whole": set(), "beside": {"r", "width"}}
    for name, function in numbers(25, 0.6, 9).items():
        mask = ma.mask(function)
        assert (mask.to_dense(N, batch=BATCH, heads=HEADS) == dense(function)).all()
        assert set(mask.parameters) == kept[name]


def test_isin_is_a_comparison_with_each_value():
    chosen = torch.tensor([2, 5, 6])
    for invert in (False, True):
        found = ma.mask(lambda b, h, q, k, i=invert: torch.isin(k, chosen, invert=i) & (q >= k))
        wanted = torch.isin(torch.arange(9), chosen, invert=invert) & torch.ones(9, 9).tril().bool()
        assert torch.equal(found.to_dense(9)[0, 0], wanted)
    assert (
        ma.mask(lambda b, h, q, k: torch.isin(q, torch.tensor([], dtype=torch.int64)))
        .to_dense(3)
        .sum()
        == 0
    )


BYTES = torch.arange(16, dtype=torch.uint8)
LESS_THAN_0 = -1


@pytest.mark.parametrize(
    "wrapping",
    [
        lambda b, h, q, k: BYTES[k] > -1,
        lambda b, h, q, k: torch.lt(BYTES[k], LESS_THAN_0),
        lambda b, h, q, k: BYTES[k] == 256,
        lambda b, h, q, k: BYTES[k] // -3 == 0,
        lambda b, h, q, k: BYTES[k] % -5 == q,
        lambda b, h, q, k: BYTES[k].clamp(-1, 5) == 5,
        lambda b, h, q, k: torch.where(q >= k, BYTES[k], -1) > 3,
        lambda b, h, q, k: (BYTES[k] ^ 256) == q,
        lambda b, h, q, k: torch.fmod(BYTES[k], -5) == q,
    ],
)
def test_numbers_that_bytes_do_not_hold_wrap(wrapping):
    """torch says that no byte is more than -1, as it compares it with 255."""
    with pytest.raises(TypeError, match=r"\d does not fit torch.uint8, .*BYTES\.long"):
        ma.mask(wrapping)


@pytest.mark.parametrize(
    ("sign", "wrapping"),
    [
        ("-", lambda x: -x),
        ("-", abs),
        ("~", lambda x: ~x),
        ("// -1", lambda x: x // -1),
        ("// -1", lambda x: torch.div(x, -1, rounding_mode="trunc")),
        ("*", torch.square),
        ("*", lambda x: x**2),
        ("**", lambda x: 2**x),
    ],
)
@pytest.mark.parametrize("dtype", [torch.int8, torch.int16])
def test_the_least_entry_of_few_bits_wraps(sign, wrapping, dtype):
    """-(-128) is -128 in torch."""
    entries = torch.tensor([torch.iinfo(dtype).min, 3, 9, 16]).to(dtype)
    with pytest.raises(TypeError, match=f"`{re.escape(sign)}` of entries of entries wraps in"):
        ma.mask(lambda b, h, q, k: wrapping(entries[k]) > 0)
    wide = entries.long()
    found = ma.mask(lambda b, h, q, k: wrapping(wide[k]) > 0)
    assert torch.equal(found.to_dense(1, 4)[0, 0, 0], wrapping(wide) > 0)


@pytest.mark.parametrize("dtype", [torch.uint8, torch.int8, torch.int16, torch.uint16])
def test_a_number_that_fits_no_more_is_refused_after_one_that_did(dtype):
    """The formula of a function with other numbers is remembered, and fits those alone."""
    entries, ends = torch.arange(9).to(dtype), torch.iinfo(dtype)

    def less(n):
        return lambda b, h, q, k: (entries[k] < n) & (q >= k)

    for fits in (ends.max - 1, ends.max):
        ma.mask(less(fits))
    with pytest.raises(TypeError, match=f"{ends.max + 1} does not fit {dtype}"):
        ma.mask(less(ends.max + 1))
    with pytest.raises(TypeError, match=f"{ends.min - 1} does not fit {dtype}"):
        ma.mask(less(ends.min - 1))
    ma.mask(less(ends.min))


@pytest.mark.parametrize(
    "exact",
    [
        lambda b, h, q, k: BYTES[k].long() > -1,
        lambda b, h, q, k: BYTES[k] > 0.5,
        lambda b, h, q, k: BYTES[k] / 300 > 0.01,
        lambda b, h, q, k: (BYTES[k] // 3 == 2) & (BYTES[k] % 5 != 255),
        lambda b, h, q, k: torch.isin(BYTES[k], torch.tensor([-250, 3, 259])),
        lambda b, h, q, k: torch.where(q >= k, BYTES[k], q) > -1,
        lambda b, h, q, k: BYTES[k] - q < -1,
    ],
)
def test_numbers_that_do_not_wrap_are_traced(exact):
    places = torch.arange(16)
    wanted = torch.as_tensor(exact(0, 0, places[:, None], places)).expand(16, 16)
    assert torch.equal(ma.mask(exact).to_dense(16)[0, 0], wanted)


def test_numbers_past_32_bits_wrap_with_integers_of_32():
    """`x.int() * 10**10` is another number in torch than in a formula."""
    short = torch.arange(9, dtype=torch.int32)
    for wrapping in (
        lambda b, h, q, k: (q.to(torch.int32) * 10**10) > k,
        lambda b, h, q, k: (q.int() + 2**31) > k,
        lambda b, h, q, k: (short[q] * 10**10) > k,
        lambda b, h, q, k: ((short[q] + 1) * 10**10) > k,
    ):
        with pytest.raises(TypeError, match=r"\d does not fit torch.int32, .*(x|short)\.long"):
            ma.mask(wrapping)
    for exact in (
        lambda b, h, q, k: (q.long() * 10**10) > k,
        lambda b, h, q, k: (short[q].long() * 10**10) > k,
        lambda b, h, q, k: (q.int() * 3) > k,
    ):
        ma.mask(exact)
