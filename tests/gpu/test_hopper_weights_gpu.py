"""Weight functions on the warp-specialised kernels of a Hopper GPU, against float64 autograd."""

import pytest
import torch

import maskalg as ma
from maskalg import causal, sliding
from tests.cases.launched import launched, names
from tests.cases.weights import compared, worst_error

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(
        not torch.cuda.is_available() or torch.cuda.get_device_capability()[0] != 9,
        reason="needs a Hopper GPU",
    ),
]

LENGTH = 515
TOLERANCE = {torch.float16: 4e-3, torch.bfloat16: 2.5e-2}


def weights(device="cpu"):
    torch.manual_seed(2)
    softplus = ma.score(lambda s, b, h, q_idx, kv_idx: torch.log1p(torch.exp(s)))
    return {
        "sigmoid": ma.sigmoid(-1.0),
        "sigmoid-heads": ma.sigmoid(torch.randn(4, device=device)),
        "relu": ma.relu,
        "relu_squared": ma.relu_squared,
        "linear": ma.linear,
        "capped": ma.Weight("capped", ma.softcap(2.0), normalised=False),
        "sigmoids, normalised": ma.Weight("sigmoids", ma.sigmoid().formula, normalised=True),
        "softplus, normalised": ma.Weight("softplus", softplus),
    }


def expressions(device="cpu"):
    torch.manual_seed(0)
    ids = torch.randint(0, 6, (LENGTH,), device=device, dtype=torch.int32).sort().values
    slopes = torch.rand(4, device=device)
    return {
        "everything": ma.everything,
        "nothing": ma.nothing,
        "causal": causal,
        "late": ma.q_idx >= ma.kv_idx + 200,
        "window": causal & sliding(100),
        "document": causal & ma.document(ids),
        "three": causal & sliding(128) & ma.document(ids) + ma.alibi(slopes),
        "padding": ma.padding(torch.tensor([100, 515], device=device), queries=True),
        "decay": causal + ma.decay(-slopes),
    }


@pytest.fixture
def launches(monkeypatch):
    """Launches of the warp-specialised kernels."""
    return launched(monkeypatch, "hopper_forward", "hopper_backward")


def inputs(dtype=torch.bfloat16, *, dim=128, q_len=LENGTH, kv_len=LENGTH, kv_heads=2):
    torch.manual_seed(1)
    shapes = ((4, q_len), (kv_heads, kv_len), (kv_heads, kv_len))
    return [
        torch.randn(2, h, n, dim, device="cuda", dtype=dtype, requires_grad=True) for h, n in shapes
    ]


def check(tensors, expression, weight):
    # Memory that was NaN is handed out again: an element not written would be seen.
    poison = [torch.full_like(t, float("nan")) for t in (*tensors, tensors[0])]
    del poison
    found = compared(tensors, expression, weight, "triton")
    again = compared(tensors, expression, weight, "triton")
    assert all(torch.equal(a, b) for a, b in zip(found, again, strict=True))
    wide = [t.detach().double().requires_grad_() for t in tensors]
    wanted = compared(wide, expression, weight, "reference")
    assert worst_error(found, wanted) < TOLERANCE[tensors[0].dtype]


@pytest.mark.parametrize("expression", list(expressions()))
@pytest.mark.parametrize("weight", list(weights()))
def test_output_and_gradients(weight, expression, launches):
    check(inputs(), expressions("cuda")[expression], weights("cuda")[weight])
    assert names(launches).count("hopper_forward") == 2


@pytest.mark.parametrize("weight", ["sigmoid", "relu", "sigmoids, normalised"])
def test_kernels_that_serve_causal(weight, launches):
    check(inputs(torch.float16), causal, weights("cuda")[weight])
    kernels = ["hopper_forward", "hopper_backward_queries", "hopper_backward_keys"]
    assert names(launches) == kernels * 2


# Of one key alone a normalised weight is 1, and the gradient nothing but rounding.
@pytest.mark.parametrize("q_len, kv_len", [(1, 2), (1, 515), (65, 129), (515, 100), (191, 257)])
@pytest.mark.parametrize("weight", ["sigmoid", "sigmoids, normalised"])
def test_lengths(weight, q_len, kv_len):
    check(inputs(q_len=q_len, kv_len=kv_len), causal | ma.prefix(5), weights("cuda")[weight])


@pytest.mark.parametrize("kv_heads", [1, 4])
@pytest.mark.parametrize("weight", ["sigmoid-heads", "softplus, normalised"])
def test_groups(weight, kv_heads):
    check(inputs(kv_heads=kv_heads), causal, weights("cuda")[weight])


def test_one_formula_normalised_and_not():
    formula = ma.sigmoid().formula
    for _ in range(2):
        for normalised in (False, True):
            check(inputs(), causal, ma.Weight("sigmoids", formula, normalised=normalised))


def test_a_learned_bias():
    tensors, logits = inputs(), torch.linspace(-2, 1, 4, device="cuda").requires_grad_()
    change = torch.randn(2, 4, LENGTH, 128, device="cuda")
    results = []
    for leaves, backend in (
        ([*tensors, logits], "triton"),
        ([t.detach().double().requires_grad_() for t in (*tensors, logits)], "reference"),
    ):
        *qkv, bias = leaves
        out = ma.attention(*qkv, causal, weight=ma.sigmoid(bias), backend=backend)
        results.append([out, *torch.autograd.grad((out.double() * change).sum(), leaves)])
    assert worst_error(*results) < TOLERANCE[torch.bfloat16]


def test_infinite_scores():
    """A bias of -inf weighs nothing, and one of +inf weighs 1, as in float64."""
    table = torch.randn(LENGTH, LENGTH, device="cuda")
    table[torch.rand_like(table) < 0.2] = float("-inf")
    table[torch.rand_like(table) < 0.1] = float("inf")
    score = causal + ma.bias(ma.table(table, "t")[ma.q_idx, ma.kv_idx])
    check(inputs(), score, ma.sigmoid())


@pytest.mark.parametrize("weight", ["sigmoid", "sigmoids, normalised"])
def test_what_is_dropped_does_not_matter(weight):
    """Two elements share a reciprocal: the NaN of a dropped one must not reach its neighbour."""
    chosen, table = weights("cuda")[weight], torch.randn(LENGTH, LENGTH, device="cuda")
    index = torch.arange(LENGTH, device="cuda")
    broken = table.masked_fill(index[:, None] < index, float("nan"))
    broken[:, ::7] = float("nan")
    mask = causal & (ma.kv_idx % 7 != 0)
    results = [
        compared(inputs(), mask + ma.bias(ma.table(t, "t")[ma.q_idx, ma.kv_idx]), chosen, "triton")
        for t in (table, broken)
    ]
    for a, b in zip(*results, strict=True):  # the reciprocal's rounding may differ
        torch.testing.assert_close(a, b, atol=1e-2, rtol=1e-2)


@pytest.mark.parametrize("weight", ["sigmoid", "sigmoids, normalised"])
def test_later_keys_change_no_bit(weight):
    chosen, (q, k, v) = weights("cuda")[weight], [t.detach() for t in inputs()]
    other = k.clone()
    other[:, :, 300:] = 7.0
    out, same = (ma.attention(q, keys, v, causal, weight=chosen) for keys in (k, other))
    assert torch.equal(out[:, :, :300], same[:, :, :300])
