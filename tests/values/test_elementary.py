"""Real functions: their values, their printed form, and their derivatives against autograd."""

import numpy as np
import pytest
import torch

import maskalg as ma
from maskalg import head, kv_idx, q_idx
from maskalg.codegen.derivative import derivative
from maskalg.engine.evaluate import Environment, evaluate
from maskalg.formula import nodes
from maskalg.formula.functions import FUNCTIONS
from maskalg.formula.printing import formula_text, named
from maskalg.values.algebra import Bias

DISTANCE = torch.arange(6)[:, None] - torch.arange(6)


def value(expression, score=None):
    """What `bias(expression)` adds to the score, `[6, 6]`."""
    score = torch.zeros(6, 6, dtype=torch.float64) if score is None else score
    indices = {"q_idx": torch.arange(6)[:, None], "kv_idx": torch.arange(6)}
    return evaluate(nodes.call("float", expression.node), Environment(indices, (), score))


@pytest.mark.parametrize("name", ["exp", "sin", "cos", "tan", "tanh", "floor"])
def test_functions_of_positions(name):
    want = getattr(torch, name)(DISTANCE.double() / 4)
    got = value(getattr(ma, name)((q_idx - kv_idx) / 4))
    torch.testing.assert_close(got, want, check_dtype=False)


def test_logarithm_root_and_power_of_a_distance():
    far = abs(q_idx - kv_idx)
    size = DISTANCE.abs().double()
    for expression, want in (
        (ma.log(1 + far), torch.log(1 + size)),
        (ma.sqrt(far), size.sqrt()),
        (far**0.5, size.sqrt()),
        (ma.power(far, 1.7), size**1.7),
        ((q_idx - kv_idx) ** 2, DISTANCE.double() ** 2),
        (ma.power(2.0, -far), 2.0**-size),
        (2**-far, 2.0**-size),
        (3 / (1 + far), 3 / (1 + size)),
    ):
        torch.testing.assert_close(value(expression), want, check_dtype=False)


def test_roots_are_rounded_to_the_nearest():
    """numpy's are; those of MKL are off by a bit on some machines."""
    numbers = torch.arange(100_000, dtype=torch.float32)
    want = torch.from_numpy(np.sqrt(numbers.numpy()))
    root = nodes.call("sqrt", nodes.call("float", q_idx.node))
    got = evaluate(root, Environment({"q_idx": torch.arange(100_000)}, ()))
    assert torch.equal(got, want)


def test_truncation_is_an_index():
    table = torch.arange(4.0)
    bucket = ma.truncate(ma.log(1 + abs(q_idx - kv_idx)))
    q = torch.randn(1, 1, 6, 8)
    got = ma.attention(q, q, q, ma.bias(ma.table(table)[bucket]), backend="cpu")
    scores = q @ q.mT / 8**0.5 + table[torch.log(1 + DISTANCE.abs().float()).long()]
    torch.testing.assert_close(got, scores.softmax(-1) @ q)


def test_bias_of_parameters_prints_binds_and_differentiates():
    slope = torch.rand(2, dtype=torch.float64, requires_grad=True)
    scale = ma.scalar(0.5, "scale")
    kerple = ma.bias(-ma.table(slope, "slope")[head] * ma.log(1 + scale * abs(q_idx - kv_idx)))
    assert "log(max(kv_idx - q_idx, q_idx - kv_idx)*0.5 + 1)" in repr(kerple)
    assert kerple.bind(scale=2.0).parameters["scale"] == 2.0
    q = torch.randn(1, 2, 6, 8, dtype=torch.float64)

    def run(slope, backend):
        return ma.attention(q, q, q, kerple.bind(slope=slope), backend=backend).sum(-1)

    for backend in ("cpu", "reference"):
        assert torch.autograd.gradcheck(lambda s, b=backend: run(s, b), slope)


def test_a_real_number_is_no_index():
    with pytest.raises(ma.MaskTypeError, match=r"real number.*ma\.truncate"):
        ma.table(torch.rand(4))[q_idx / 2]
    with pytest.raises(ma.MaskTypeError, match="take integers"):
        _ = (q_idx / 2) // 2


def formulas_of_the_score():
    score, third = nodes.SCORE, nodes.const(1 / 3)
    positive = nodes.add(nodes.mul(score, score), nodes.const(0.5))
    found = {name: nodes.call(name, nodes.mul(positive, third)) for name in FUNCTIONS}
    found["power"] = nodes.power(positive, nodes.const(1.3))
    found["exponent"] = nodes.power(nodes.const(1.7), score)
    found["cube"] = nodes.power(score, nodes.const(3))
    found["quotient"] = nodes.divide(score, positive)
    found["minimum"] = nodes.minimum(score, nodes.const(0.3), positive)
    whole = nodes.truncated(nodes.mul(score, nodes.const(3.0)))
    found["trunc"] = nodes.add(score, whole)
    found["rounded"] = nodes.mul(score, nodes.call("float", whole))
    return found


@pytest.mark.parametrize("name", list(formulas_of_the_score()))
def test_derivatives(name):
    formula = formulas_of_the_score()[name]
    score = torch.linspace(-1.53, 1.61, 36, dtype=torch.float64).view(6, 6).requires_grad_()
    indices = {"q_idx": torch.arange(6)[:, None], "kv_idx": torch.arange(6)}
    result = evaluate(formula, Environment(indices, (), score))
    (want,) = torch.autograd.grad(result.sum(), score, allow_unused=True)
    got = evaluate(derivative(formula), Environment(indices, (), score.detach()))
    want = torch.zeros_like(score) if want is None else want
    torch.testing.assert_close(got.expand(6, 6), want, check_dtype=False)


def test_powers_and_bits_print_as_python_reads_them():
    x, y = nodes.Q, nodes.const(3)
    power = nodes.Node("pow", "real", (nodes.Node("pow", "real", (x, y)), y))
    assert formula_text(power) == "(q_idx**3)**3"
    either = nodes.bitwise("bitor", nodes.bitwise("bitand", x, y), nodes.add(x, y))
    text = formula_text(either)
    for q in range(9):
        assert eval(text, {"q_idx": q}) == (q & 3) | (q + 3)


def rendered(node):
    from maskalg.formula.nodes import TRUE

    return ma.render(ma.everything + Bias(TRUE, node, named("tested")))


def test_triton_text_takes_reals_where_it_must():
    distance = nodes.subtract(nodes.Q, nodes.K)
    text = rendered(nodes.add(nodes.SCORE, nodes.call("exp", distance)))
    by_bits = "((q_idx - kv_idx) + 0x4B400000).to(tl.float32, bitcast=True) - 12582912.0"
    assert f"tl.exp(({by_bits}))" in text
    halves = nodes.floordiv(distance, nodes.const(2))
    text = rendered(nodes.add(nodes.SCORE, nodes.call("exp", halves)))
    assert "tl.exp((floor_div((q_idx - kv_idx), 2)).to(tl.float32))" in text
    assert "value = 1.5" in rendered(nodes.const(1.5))
    minus = nodes.where(nodes.ge(nodes.Q, nodes.K), nodes.SCORE, nodes.const(float("-inf")))
    assert 'tl.where((q_idx >= kv_idx), (product * T[-1]), float("-inf"))' in rendered(minus)
