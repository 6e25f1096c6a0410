"""float8 inputs: what their numbers stand for, on the CPU, and what is refused."""

import pytest
import torch

import maskalg as ma
from maskalg import causal, sliding

BACKENDS = ["cpu", "reference"]


def inputs(length=90, dim=32):
    torch.manual_seed(0)
    made = [torch.randn(2, heads, length, dim) for heads in (4, 2, 2)]
    query, key, value = (ma.to_float8(tensor) for tensor in made)
    return (query[0], key[0], value[0]), (query[1], key[1], value[1])


def wide(tensors, descale):
    return [
        t.double() * d.double()[:, :, None, None] for t, d in zip(tensors, descale, strict=True)
    ]


@pytest.mark.parametrize("backend", BACKENDS)
def test_attention_of_what_the_numbers_stand_for(backend):
    tensors, descale = inputs()
    expression = causal & sliding(40) + ma.softcap(3.0)
    how = {"return_lse": True, "backend": backend}
    out, lse = ma.attention(*tensors, expression, descale=descale, **how)
    want, want_lse = ma.attention(
        *wide(tensors, descale), expression, return_lse=True, backend="reference"
    )
    assert out.dtype == torch.bfloat16 and lse.dtype == torch.float32
    assert ((out.double() - want).abs() <= 2.0**-8 * want.abs() + 1e-5).all()
    assert torch.allclose(lse.double(), want_lse, atol=1e-4)


@pytest.mark.parametrize("backend", BACKENDS)
def test_factors_are_one_by_default_and_may_be_shared(backend):
    tensors, _ = inputs()
    small = [(t.float() / 64).to(t.dtype) for t in tensors]
    plain = ma.attention(*small, causal, backend=backend)
    ones = torch.ones(1)
    assert torch.equal(ma.attention(*small, causal, descale=(ones,) * 3, backend=backend), plain)
    each = [torch.ones(t.shape[:2]) for t in small]
    assert torch.equal(ma.attention(*small, causal, descale=each, backend=backend), plain)
    twice = ma.attention(*small, causal, descale=(ones, ones, 2 * ones), backend=backend)
    assert torch.equal(twice, 2 * plain)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("factor", [0.0, -1.0, float("nan")])
def test_factors_that_are_not_positive_give_no_output(backend, factor):
    tensors, (of_query, of_key, of_value) = inputs()
    of_key[1, 0] = factor
    out = ma.attention(*tensors, causal, descale=(of_query, of_key, of_value), backend=backend)
    assert out[1, :2].isnan().all()
    assert not out[0].isnan().any() and not out[1, 2:].isnan().any()


def test_to_float8():
    tensor = torch.randn(2, 3, 50, 16)
    tensor[0, 1] = 0
    tensor[1, 2] *= 1e30
    numbers, descale = ma.to_float8(tensor)
    assert numbers.dtype == torch.float8_e4m3fn and descale.shape == (2, 3)
    assert descale[0, 1] == 1
    again = numbers.float() * descale[:, :, None, None]
    # Three bits behind the first; below the least normal number, its last bit.
    least = descale[:, :, None, None] * 2.0**-10
    assert ((again - tensor).abs() <= torch.maximum(2.0**-4 * tensor.abs(), least) * 1.001).all()
    largest = numbers.float().abs().amax((2, 3))
    assert (largest[descale != 1] == 448).all()
    assert ma.to_float8(torch.zeros(1, 2, 0, 16))[0].shape == (1, 2, 0, 16)


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_compiled():
    tensors, descale = inputs()
    want, want_lse = ma.attention(*tensors, causal, descale=descale, return_lse=True)

    def attend(q, k, v, a, b, c):
        return ma.attention(q, k, v, causal, descale=(a, b, c), return_lse=True)

    out, lse = torch.compile(attend, backend="aot_eager", fullgraph=True)(*tensors, *descale)
    assert torch.equal(out, want) and torch.equal(lse, want_lse)


def test_autocast_leaves_them():
    tensors, descale = inputs()
    want = ma.attention(*tensors, causal, descale=descale)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert torch.equal(ma.attention(*tensors, causal, descale=descale), want)


def test_nothing_to_attend_to():
    (query, key, value), descale = inputs()
    out = ma.attention(query, key, value, ma.nothing, descale=descale)
    assert not out.any() and out.dtype == torch.bfloat16
    out = ma.attention(query, key[:, :, :0], value[:, :, :0], descale=descale)
    assert not out.any()


@pytest.mark.parametrize("shape", [(), (1,), (1, 1), (1, 1, 1, 1)])
def test_one_factor_serves_every_head(shape):
    tensors, descale = inputs()
    one = torch.full(shape, 0.5)
    found = ma.attention(*tensors, causal, descale=(*descale[:2], one))
    wanted = ma.attention(
        *tensors, causal, descale=(*descale[:2], torch.full_like(descale[2], 0.5))
    )
    assert torch.equal(found, wanted)


def test_what_is_refused():
    tensors, descale = inputs()
    query = tensors[0]
    half = [t.bfloat16() for t in tensors]

    def attend(*inputs, **how):
        return lambda: ma.attention(*inputs, causal, **how)

    cases = [
        (attend(*half, descale=descale), TypeError, "descale=… is for float8 inputs"),
        (attend(query, *half[1:], descale=descale), TypeError, "must share one dtype"),
        (attend(*(t.to(torch.float8_e5m2) for t in half)), TypeError, "float8_e4m3fn"),
        (attend(*tensors, descale=descale[0]), TypeError, "three tensors"),
        (attend(*tensors, descale=descale[:2]), TypeError, "three tensors"),
        (attend(*tensors, descale=(1.0, 1.0, 1.0)), TypeError, "query must be a float32 tensor"),
        (attend(*tensors, descale=(*descale[:2], descale[2].half())), TypeError, "float16"),
        (attend(*tensors, descale=(descale[1], *descale[1:])), ValueError, r"shape \[2, 4\]"),
        (attend(*tensors, descale=(descale[0][0], *descale[1:])), ValueError, r"shape \[2, 4\]"),
        (attend(*tensors, scale=-1.0), ValueError, "positive number"),
        (attend(*tensors, scale=0.0), ValueError, "positive number"),
        (attend(*tensors, weight=ma.sigmoid()), TypeError, "softmax weights"),
        (lambda: ma.to_float8(torch.ones(1, 1, 2, 2).int()), TypeError, r"tensor\.float\(\)"),
        (lambda: ma.to_float8(torch.ones(3, 4)), ValueError, r"\[batch, heads, length, dim\]"),
    ]
    for call, kind, message in cases:
        with pytest.raises(kind, match=message):
            call()
    table = torch.randn(4, 31, requires_grad=True)
    with pytest.raises(ma.BackendError, match="gradients are not built"):
        ma.attention(*tensors, causal + ma.relative(table))
    with torch.no_grad():
        ma.attention(*tensors, causal + ma.relative(table))


def test_gradients_are_refused_wherever_they_would_be_lost():
    tensors, descale = inputs()
    query, key, value = tensors
    learned = descale[0].clone().requires_grad_()
    table = torch.randn(4, 31, requires_grad=True)
    wide = torch.randn(query.shape, requires_grad=True)
    made, of_made = ma.to_float8(wide)

    def of_table(bias):
        return ma.attention(*tensors, causal + ma.relative(bias)).float().sum()

    def attend(expression, *inputs, **how):
        return lambda: ma.attention(*inputs, expression, **how)

    calls = [
        attend(causal, *tensors, descale=(learned, *descale[1:])),
        attend(causal, made, key, value),
        attend(causal, query, key, value, descale=(of_made, *descale[1:])),
        lambda: torch.func.grad(of_table)(table.detach()),
        lambda: torch.compile(of_table, backend="eager")(table),
    ]
    for call in calls:
        with pytest.raises(Exception, match="gradients are not built for float8"):
            call()


def test_traced_calls_check_as_others_do():
    tensors, descale = inputs()
    cases = [
        ({"descale": descale[0]}, "three tensors"),
        ({"descale": ()}, "three tensors"),
        ({"weight": ma.sigmoid()}, "weight=sigmoid"),
    ]
    for how, message in cases:
        with pytest.raises(Exception, match=message):
            torch.func.vmap(lambda q, how=how: ma.attention(q, *tensors[1:], causal, **how))(
                torch.stack([tensors[0]] * 2)
            )


def test_vmap():
    (query, key, value), descale = inputs()
    queries = torch.stack([query, query.flip(2)])
    out = torch.func.vmap(lambda q: ma.attention(q, key, value, causal, descale=descale))(queries)
    for got, one in zip(out, queries, strict=True):
        assert torch.equal(got, ma.attention(one, key, value, causal, descale=descale))


def test_what_is_no_number_stays_so():
    tensor = torch.randn(1, 2, 10, 8) * 1e-3
    tensor[0, 1, 3, 2] = torch.nan
    numbers, descale = ma.to_float8(tensor)
    assert descale[0, 0].isfinite() and descale[0, 1].isnan()
    out = ma.attention(numbers, numbers, numbers, descale=(descale,) * 3)
    assert out[0, 1].isnan().all() and out[0, 0].isfinite().all()
