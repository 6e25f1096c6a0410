"""What cannot be traced says so, and what to write."""

import warnings

import numpy as np
import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode

import maskalg as ma
from maskalg.tracing import trace

ARRAY = np.arange(8)
TABLE = torch.arange(8)
BYTES = torch.arange(8, dtype=torch.uint8)
HALVES = torch.linspace(0, 1, 8, dtype=torch.float16)
MINUS = torch.tensor(-3)
PLACES = torch.tensor([-2, 1, 4])
PAIR = torch.tensor([0, 1])
TIMES = 1.7e9 + torch.arange(8, dtype=torch.float64) * 0.01
TURNS = torch.ones(8, dtype=torch.complex64)


def early(b, h, q, k):
    if q > k:
        return q == k
    return q != k


def in_place(b, h, q, k):
    kept = q > k
    kept.logical_and_(k > 2)
    return kept


def forgetful(b, h, q, k):
    q >= k  # noqa: B015


MISTAKES = {
    "if": (early, TypeError, ("depends on q_idx in `if`", "torch.where", "opaque=True")),
    "and": (lambda b, h, q, k: q > k and k > 2, TypeError, ("`&`, `|`, `~`",)),
    "chain": (lambda b, h, q, k: 0 <= q - k < 3, TypeError, ("chained comparison",)),
    "min": (lambda b, h, q, k: min(q, k) > 3, TypeError, ("torch.minimum",)),
    "int": (lambda b, h, q, k: int(q) > k, TypeError, ("depends on q_idx in int()",)),
    "loop": (lambda b, h, q, k: any(i == k for i in range(q)), TypeError, ("an integer (range",)),
    "loop over": (lambda b, h, q, k: [*q], TypeError, ("in a loop",)),
    "unknown": (lambda b, h, q, k: torch.cumsum(TABLE, 0)[q] > k, TypeError, ("torch.cumsum(…)",)),
    "method": (lambda b, h, q, k: q.cumsum(0) > k, TypeError, (".cumsum(…) has no formula",)),
    "in place": (in_place, TypeError, ("`x = x.logical_and(…)`",)),
    "real index": (lambda b, h, q, k: TABLE[q / 2] > k, TypeError, ("`x.long()`",)),
    "rank": (lambda b, h, q, k: TABLE[q, k] > k, TypeError, ("shape [8] is given 2 indices",)),
    "row": (lambda b, h, q, k: k < TABLE, TypeError, ("returns a row of shape [8]",)),
    "long row": (lambda b, h, q, k: (torch.arange(500) == k).any(), ValueError, ("up to 128",)),
    "number": (
        lambda b, h, q, k: q - k,
        TypeError,
        ("kind int, expected a truth value", "`x != 0`"),
    ),
    "zero": (lambda b, h, q, k, n=0: q // n == k, ValueError, ("divides by 0, and it is 0",)),
    "negative": (lambda b, h, q, k, n=-2: q % n == k, ValueError, ("it is -2",)),
    "divisor": (lambda b, h, q, k: q // (k - 3) == 1, ValueError, ("torch.clamp(divisor, min=1)",)),
    "constant zero": (lambda b, h, q, k: q % 0 == 1, ValueError, ("divides by 0",)),
    "own error": (lambda b, h, q, k: {}["x"], TypeError, ("could not be traced: KeyError: 'x'",)),
    "arguments": (
        lambda q, k: q > k,
        TypeError,
        ("a mask_mod takes (b, h, q_idx, kv_idx); <lambda> takes (q, k)",),
    ),
    "an expression returned": (
        lambda b, h, q, k: ma.causal,
        TypeError,
        ("computes with `causal`, which is an expression already", "`causal & ma.mask(function)`"),
    ),
    "an expression within": (
        lambda b, h, q, k: (q >= k) & ma.sliding(4),
        TypeError,
        ("computes with `sliding(4)`",),
    ),
    "an index of ours": (lambda b, h, q, k: q >= ma.kv_idx, TypeError, ("with `kv_idx`, which",)),
    "joined to an expression": (
        lambda b, h, q, k: ma.causal & (q >= k),
        TypeError,
        ("`causal & symbol`", "computes with functions of torch"),
    ),
    "a function of ours": (
        lambda b, h, q, k: ma.log(q) < 3,
        TypeError,
        ("got Proxy(q_idx)", "such as torch.where and torch.log", "outside of it"),
    ),
    "a choice of ours": (
        lambda b, h, q, k: ma.where(q > k, q, k) < 3,
        TypeError,
        ("got Symbol. A function for ma.mask or ma.score computes with functions of torch",),
    ),
    "a table of ours": (
        lambda b, h, q, k: ma.table([1, 2])[q] < 3,
        TypeError,
        ("reads tensors as they are, `tensor[q_idx]`",),
    ),
    "no return": (forgetful, TypeError, ("forgetful returns None: a `return` is missing",)),
    "parentheses": (
        lambda b, h, q, k: q >= k | k < 3,
        TypeError,
        ("need parentheses", "`(q_idx >= kv_idx) | (kv_idx < 3)`"),
    ),
    "parentheses of and": (lambda b, h, q, k: q >= k & k < 3, TypeError, ("binds `&` tighter",)),
    "array": (
        lambda b, h, q, k: ARRAY[q] == ARRAY[k],
        TypeError,
        ("NumPy array", "torch.from_numpy(a)[q_idx]"),
    ),
    "a function of NumPy": (lambda b, h, q, k: np.sin(q) > 0, TypeError, ("torch.sin(q_idx)",)),
    "compared with an array": (lambda b, h, q, k: ARRAY[q] < k, TypeError, ("NumPy array",)),
    "score_mod": (
        lambda s, b, h, q, k: s,
        TypeError,
        ("takes the arguments of a score_mod(score, b, h, q_idx, kv_idx)", "Write ma.score("),
    ),
    "no function": (3, TypeError, ("expected a function mask_mod(b, h, q_idx, kv_idx), got int",)),
    "random": (
        lambda b, h, q, k: torch.rand(8)[q] > 0.5,
        TypeError,
        ("torch.rand(…) draws new numbers at each call", "`noise[q_idx]`"),
    ),
    "dropout": (
        lambda b, h, q, k: torch.dropout(torch.ones(8), 0.5, True)[q] > k,
        TypeError,
        ("draws new numbers",),
    ),
    "bytes": (lambda b, h, q, k: BYTES[q] - BYTES[k] > 3, TypeError, ("BYTES.long()", "uint8")),
    "to bytes": (lambda b, h, q, k: q.to(torch.uint8) > k, TypeError, ("torch.uint8", "x.long()")),
    "type of bytes": (lambda b, h, q, k: q.type_as(BYTES[k]) > k, TypeError, ("torch.uint8",)),
    "type of halves": (lambda b, h, q, k: q.to(HALVES) > k, TypeError, ("torch.float16 rounds",)),
    "filled with halves": (
        lambda b, h, q, k: torch.full_like(HALVES[q], 0.3) * k > q,
        TypeError,
        ("torch.float16 rounds",),
    ),
    "double": (lambda b, h, q, k: q.double() * 0.1 >= k, TypeError, ("torch.float64",)),
    "real remainder": (lambda b, h, q, k: q % 0.7 > k, TypeError, ("`%` of real numbers",)),
    "real fmod": (lambda b, h, q, k: torch.fmod(q, 0.7) > k, TypeError, ("`fmod` of real",)),
    "real division": (lambda b, h, q, k: q // 0.7 > k, TypeError, ("`//` of real numbers",)),
    "half": (lambda b, h, q, k: q.half() > k, TypeError, ("torch.float16 rounds", "x.float()")),
    "negative power": (lambda b, h, q, k: q**-1 > k, TypeError, ("the power -1 of an integer",)),
    "power": (lambda b, h, q, k: 3**q > k, TypeError, ("`x.float() ** y`",)),
    "shift": (lambda b, h, q, k: (q << k) > 3, TypeError, ("a number from 0 to 30",)),
    "tensor divisor": (
        lambda b, h, q, k: (q - k) % MINUS == 0,
        ValueError,
        ("it is -3", "-x // -d"),
    ),
    "entry as divisor": (lambda b, h, q, k: q // PLACES[0] == k, ValueError, ("it is -2",)),
    "entries past the end": (
        lambda b, h, q, k: PAIR[PLACES[k]] == 1,
        ValueError,
        ("of shape [2] at", "an entry is 4"),
    ),
    "times": (
        lambda b, h, q, k: (TIMES[q] - TIMES[k]).abs() < 0.02,
        ValueError,
        ("float64 entries of TIMES", ".min()).float()"),
    ),
    "complex": (
        lambda b, h, q, k: TURNS[q] == 0,
        TypeError,
        ("TURNS is a tensor of dtype torch.complex64",),
    ),
}


@pytest.mark.parametrize("name", list(MISTAKES))
def test_mistakes(name):
    function, kind, says = MISTAKES[name]
    with pytest.raises(kind) as caught:
        ma.mask(function)
    assert isinstance(caught.value, ma.MaskalgError)
    for text in says:
        assert text in str(caught.value)


def test_scores():
    with pytest.raises(ma.MaskTypeError, match="expected a real number"):
        ma.score(lambda s, b, h, q, k: q > k)
    with pytest.raises(ma.MaskTypeError, match=r"returns a truth value.*mask_mod.*torch\.where\("):
        ma.score(lambda s, b, h, q, k: q > k)
    with pytest.raises(ma.MaskTypeError, match=r"a score_mod takes \(score, b.* takes \(s, q, k\)"):
        ma.score(lambda s, q, k: s)
    with pytest.raises(ma.MaskTypeError, match="a `return` is missing"):
        ma.score(lambda s, b, h, q, k: None)
    with pytest.raises(ma.MaskTypeError, match="without gradients of the tensors it captures"):
        ma.score(lambda s, b, h, q, k: torch.lgamma(s))
    with pytest.raises(ma.MaskTypeError, match=r"of a mask_mod.* Write ma\.mask\("):
        ma.score(lambda b, h, q, k: q > k)
    with pytest.raises(ma.MaskTypeError, match="depends on score in `if`"):
        ma.score(lambda s, b, h, q, k: s if s > 0 else -s)
    with pytest.raises(ma.MaskTypeError, match=r"score_mod\(score, b, h, q_idx, kv_idx\)"):
        ma.score(None, opaque=True)


RANDOM = {
    "dropout": lambda s: torch.nn.functional.dropout(s, 0.1),
    "module": lambda s: torch.nn.Dropout(0.1)(s),
    "randn_like": torch.randn_like,
    "rand_like": torch.rand_like,
    "bernoulli": torch.bernoulli,
}


@pytest.mark.parametrize("name", list(RANDOM))
def test_scores_are_not_random(name):
    with pytest.raises(ma.MaskTypeError, match="draws new numbers at each call"):
        ma.score(lambda s, b, h, q, k: s + RANDOM[name](s))


def test_float64_entries_of_a_condition_in_a_score():
    """Where it masks; a bias may read them."""
    apart = ma.score(lambda s, b, h, q, k: s - (TIMES[q] - TIMES[k]).abs())
    assert isinstance(apart, ma.Bias)
    with pytest.raises(ma.MaskValueError, match="float64 entries of TIMES"):
        ma.score(lambda s, b, h, q, k: torch.where(TIMES[q] - TIMES[k] < 0.02, s, -float("inf")))


def test_float64_entries_that_a_call_moves_are_told():
    query = torch.randn(1, 1, 8, 8)
    apart = ma.score(lambda s, b, h, q, k: s - (TIMES[q] - TIMES[k]).abs())
    with pytest.warns(UserWarning, match=r"float64 entries of TIMES .* moves some by 0\.07"):
        ma.attention(query, query, query, apart)
    later = (ma.table(TIMES, "times")[ma.q_idx] - ma.table(TIMES, "times")[ma.kv_idx]) >= 0
    with pytest.warns(UserWarning, match="entries of times"):
        ma.attention(query, query, query, later)
    small = torch.rand(8, dtype=torch.float64)
    fill = small.masked_fill(small < 0.5, torch.finfo(torch.float64).min)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for entries in (small, fill, small * 1000 - 1e12):
            ma.attention(query, query, query, ma.bias(ma.table(entries)[ma.kv_idx]))
        ma.attention(query.double(), query.double(), query.double(), apart)
    with pytest.warns(UserWarning, match="entries of TIMES"):  # its last call fitted
        ma.attention(query, query, query, apart)
    with pytest.warns(UserWarning, match="entries of times"):  # masks are computed in float32
        ma.attention(query.double(), query.double(), query.double(), later)


def test_float64_entries_of_another_function_with_the_same_code(monkeypatch):
    def within(times):
        return lambda b, h, q, k: times[q] - times[k] < 0.02

    halves = torch.arange(8, dtype=torch.float64) / 2
    assert ma.mask(within(halves)).to_dense(8).any()
    with monkeypatch.context() as patched:
        patched.setattr(trace, "_attempt", None)
        ma.mask(within(halves * 2))  # remembered
    with pytest.raises(ma.MaskValueError, match="float64 entries of times"):
        ma.mask(within(TIMES))
    with FakeTensorMode() as fake:
        ma.mask(within(fake.from_tensor(TIMES)))


def test_opaque_scores_capture_no_tensor_that_learns():
    weights = torch.rand(2, requires_grad=True)
    module = torch.nn.Embedding(8, 2)
    functions = (
        lambda s, b, h, q, k: torch.lgamma(s.abs() + 1) + weights[h],
        lambda s, b, h, q, k: s + module.weight[k, h],
    )
    for function in functions:
        with pytest.raises(ma.MaskValueError, match=r"requires a gradient.*tensor\.detach\(\)"):
            ma.score(function, opaque=True)
    gated = ma.causal + ma.score(lambda s, b, h, q, k: s * PAIR[0] if q > k else s, opaque=True)
    assert ma.attention(*torch.randn(3, 1, 2, 4, 8), gated, backend="cpu").isfinite().all()
    with pytest.raises(ma.MaskValueError, match="requires a gradient"):
        ma.score(lambda s, b, h, q, k: s * weights[h] if q > k else s, opaque=True)
    fixed = weights.detach()
    taken = ma.score(lambda s, b, h, q, k: torch.lgamma(s) + fixed[h], opaque=True)
    assert isinstance(taken, ma.Bias)


def test_bound_values_are_checked():
    size = 4
    mask = ma.mask(lambda b, h, q, k: q // size == k // size)
    with pytest.raises(ma.MaskValueError, match="size must be an integer >= 1, got 0"):
        mask.bind(size=0)


def test_torch_fx_is_not_imported_with_the_package():
    """Only where torch itself does not import it."""
    import subprocess
    import sys

    code = (
        "import torch, sys; a = set(sys.modules); import maskalg; maskalg.mask; "
        "print(set(sys.modules) - a)"
    )
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "maskalg.tracing" in out.stdout
    assert "torch.fx" not in out.stdout and "maskalg.tracing.trace" not in out.stdout
