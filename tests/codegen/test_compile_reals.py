"""Every real function and bit operation, compiled for GPUs that are not here."""

import os

import pytest
import torch

import maskalg as ma
from maskalg.codegen import store
from maskalg.codegen.hooks import imports
from maskalg.codegen.text.triton import Arguments, TritonText
from maskalg.formula import nodes
from maskalg.formula.functions import FUNCTIONS

triton = pytest.importorskip("triton", reason="needs Triton")
from maskalg.backends.triton.offline import compile_offline  # noqa: E402

pytestmark = pytest.mark.skipif(
    os.environ.get("TRITON_INTERPRET") == "1", reason="the interpreter does not compile"
)

PROBE = """


@triton.jit
def probe(x, out):
    q_idx = tl.arange(0, 32)
    kv_idx = tl.program_id(0)
    product = tl.load(x + q_idx)
    tl.store(out + q_idx, {text})
"""


def everything():
    """The sum of each function at the score and at a distance."""
    distance = nodes.subtract(nodes.Q, nodes.K)
    terms = [nodes.call(name, nodes.SCORE) for name in FUNCTIONS]
    terms += [nodes.call(name, distance) for name in FUNCTIONS]
    terms += [nodes.power(nodes.SCORE, nodes.const(1.5)), nodes.truncated(nodes.SCORE)]
    bits = nodes.bitwise("bitor", nodes.bitwise("bitand", distance, nodes.const(5)), nodes.K)
    return nodes.add(*terms, nodes.bitwise("bitxor", bits, nodes.const(3)))


def of_masks():
    """Real numbers that are rounded step by step, a constant past float32 among them."""
    quotient = nodes.divide(nodes.SCORE, nodes.const(1e300))
    return nodes.add(quotient, nodes.mul(nodes.SCORE, nodes.const(0.3)), nodes.const(-1e39))


def extrema():
    """Of a score, which may be NaN: the extremum is NaN then."""
    return nodes.minimum(nodes.maximum(nodes.SCORE, nodes.const(-3.0)), nodes.const(3.0))


TEXTS = {
    "biases": lambda: TritonText(Arguments(), wide=False)(everything()),
    "masks": lambda: TritonText(Arguments(), wide=False, exact=True)(of_masks()),
    "extrema": lambda: TritonText(Arguments(), wide=False)(extrema()),
}


def compiled(target, text):
    from triton.compiler import ASTSource

    from maskalg.backends.triton.launching.ahead import target_of

    source = imports() + PROBE.format(text=TEXTS[text]())
    module = store.load(source, f"probe_of_{text}")
    signature = {"x": "*fp32", "out": "*fp32"}
    found = triton.compile(ASTSource(module.probe, signature), target=target_of(target))
    return found.asm["ptx" if target.startswith("sm") else "amdgcn"]


@pytest.mark.parametrize("text", list(TEXTS))
@pytest.mark.parametrize("target", ["sm_80", "sm_90", "sm_100", "gfx942"])
def test_real_functions_compile(target, text):
    assert compiled(target, text)


@pytest.mark.parametrize("target", ["sm_80", "sm_90", "sm_100"])
def test_extrema_of_nan_are_nan(target):
    text = compiled(target, "extrema")
    assert "min.NaN.f32" in text and "max.NaN.f32" in text
    assert "min.f32" not in text and "max.f32" not in text


BY_KEY, BY_QUERY = torch.rand(64), torch.rand(64)
BESIDE_NUMBERS = {
    "quotient": lambda s, b, h, q, k: torch.exp((s + BY_KEY[k]) / 5),
    "quotients": lambda s, b, h, q, k: 3 * torch.tanh((s + BY_QUERY[q] - BY_KEY[k]) / 3),
    "products": lambda s, b, h, q, k: torch.sigmoid(0.5 * (s + BY_KEY[k] * 0.3) / 7 / 2),
}


@pytest.mark.parametrize("target", ["sm_80", "sm_90"])
@pytest.mark.parametrize("name", list(BESIDE_NUMBERS))
def test_sums_with_entries_beside_numbers(name, target):
    """A number that is known as the kernel is compiled is written where it is read."""
    score = ma.causal + ma.score(BESIDE_NUMBERS[name])
    for backward in (False, True):
        assert [*compile_offline(score, target, 64, torch.float16, backward=backward)]
