"""Texts of C++ and Triton that look like others and mean something else: none is read as these."""

import ctypes
from dataclasses import replace

import pytest

from maskalg.backends.cpu.native.compile import compiler, library
from maskalg.backends.cpu.native.text import PRELUDE
from maskalg.engine.normal_form import bound
from maskalg.verifier import terms
from maskalg.verifier.claims import claims, subject_of
from maskalg.verifier.meaning import NotDefined
from maskalg.verifier.reading.cpp import Array, CppHooks
from maskalg.verifier.reading.triton import Module, Reader, kernel_source
from maskalg.verifier.reading.values import INT32, INT64, Number
from maskalg.verifier.terms import Table, variable
from maskalg.verifier.walk.blocks import skeleton
from maskalg.verifier.walk.claims import walk_claims

from .mutants import masks

HEAD = """extern "C" void bounds(const I* S, I batch, I head, I q0, I q1, I kv_len, I* found) {
  const int32_t* const t = (const int32_t*)S[1];
  const uint8_t* const u = (const uint8_t*)S[2];
  const float* const w = (const float*)S[3];
"""
PASSED = {
    0: Number(variable("n"), INT64),
    1: Array(Table("t", "int", -(2**31), 2**31 - 1), "int32_t"),
    2: Array(Table("u", "int", 0, 255), "uint8_t"),
    3: Array(Table("w", "real"), "float"),
}
REFUSED = """
found[0] = ~(q0 >= q1);
found[0] = -(q0 >= q1);
found[0] = --q0;
found[0] = q0-- - q1;
found[0] = q0---q1;
found[0] = q0 - --q1;
found[0] = 010 + q0;
found[0] = (I)010LL;
found[0] = 2147483647 + 1 + q0;
found[0] = 65536 * 65536 + q0;
found[0] = t[0] + 1;
found[0] = t[0] * 2 + q0;
found[0] = -t[0];
found[0] = (q0 > 0 ? 2147483647 : 1) + 1;
found[0] = (int32_t)q0 + 1;
int32_t x = q1; x++; found[0] = x;
I x = q0; { const I x = q1; } found[0] = x;
I x = q0; if (q1 > 3) I x = 5; found[0] = x;
found[0] = not(q0) == q1;
found[0] = w[0] > 0.1;
found[0] = w[0] > 0x1.999999999999ap-4;
found[0] = q0; // \\
""".strip().split("\n")
READ = """
found[0] = (q0 & q1) == S[0]; found[1] = q0 & q1 == S[0];
found[0] = !q0 == q1;
found[0] = q0 < q1 < S[0]; found[1] = q0 == q1 == S[0];
found[0] = q0 > q1 ? q1 > S[0] ? 1 : 2 : 3; found[1] = q0 > q1 ? 1 : q1 > S[0] ? 2 : 3;
found[0] = (q0 || q1) + q0; found[1] = q0 | q1 & S[0] ^ q0;
found[0] = -(I)u[0]; found[1] = u[0] - q0;
found[0] = (q0 > 0 ? (uint8_t)200 : (int8_t)-1);
found[0] = (int32_t)q0; found[1] = (int8_t)q0 + q1;
found[0] = q0 - -q1; found[1] = q0 - ~q1;
int32_t x = 0; x = q0; found[0] = x;
int32_t x = 0; x += q0; found[0] = x;
bool x = false; x = q0; found[0] = x + q1;
uint8_t x = 5; x -= q0; found[0] = x;
I x = q0; if (q1 > 3) x = 5; else x -= 6; found[0] = x;
found[0] = q0; // }
found[0] = q0; // {
""".strip().split("\n")


def hook(body):
    return f"{PRELUDE}{HEAD}  {body}\n  found[0] += 0;\n}}\n"


def read(body):
    row = {name: variable(name) for name in ("batch", "head", "q0", "q1", "kv_len")}
    return CppHooks(hook(body), PASSED).bounds(row)


@pytest.mark.parametrize("body", REFUSED)
def test_what_is_not_read(body):
    with pytest.raises((NotDefined, SyntaxError)):
        read(body)


@pytest.mark.skipif(compiler() is None, reason="needs a C++ compiler")
@pytest.mark.parametrize("body", READ)
def test_what_is_read_is_what_compilers_make_of_it(body):
    found, built = read(body), library(hook(body))
    tables = (ctypes.c_int32 * 1)(7), (ctypes.c_uint8 * 1)(200), (ctypes.c_float * 1)(0.5)
    ends = [0, 1, -1, 5, -7, 200, 2**31 - 1, -(2**31), 2**40 + 3]
    for q0 in ends:
        for q1 in ends:
            for n in (0, 1, q0):
                passed = (ctypes.c_int64 * 4)(n, *map(ctypes.addressof, tables))
                out = (ctypes.c_int64 * 2)()
                built.bounds(passed, *map(ctypes.c_int64, (0, 0, q0, q1, 9)), out)
                values = {"n": n, "q0": q0, "q1": q1, "kv_len": 9, "batch": 0, "head": 0}
                for place, term in found.items():
                    told = terms.computed(term, values, lambda *_: 200, None)
                    assert told == out[place], (q0, q1, n)


PAIRS = "s[at] = t9 ? s[at] : -__builtin_inff();"
HOOKS = [
    ("for (I other = 0;", "for (int8_t other = 0;"),
    ("I of_lane_t3[64]", "I of_lane_t3[16]"),
    (PAIRS, PAIRS.replace("s[at] :", "raw[at] :")),
    ("float* s, const float* raw", "const float* raw, float* s"),
    ("float* s, const float* raw", "double* s, const float* raw"),
    ("const I* S, I batch", "const int32_t* S, I batch"),
    ('extern "C" void mask_q', 'extern "C" bool mask_q'),
    ('extern "C" void mask_q', '#define q_idx kv_idx\nextern "C" void mask_q'),
    ("typedef int64_t I;", "typedef int32_t I;"),
    ("I* found) {\n", "int32_t* found) {\n"),
    ("found[0] = ", "found[100] = 0; found[0] = "),
    ("found[0] = ", "found[-1] = 0; found[0] = "),
]  # fmt: skip


@pytest.mark.parametrize(("old", "new"), HOOKS)
def test_wrong_hooks_are_not_proved(old, new):
    subject = subject_of(bound(masks()["chunks"]))
    text = subject.cpp.source
    start = 0 if "typedef" in old else text.index('extern "C"')
    changed = text[:start] + text[start:].replace(old, new, 1)
    assert changed != text
    found = claims(replace(subject, rendered=lambda _: changed), ("cpu",), 300)
    assert {claim.outcome for claim in found} != {"proved"}


IN_TURN = [
    # Every lane writes to all lanes.
    ("    of_lane_t3[lane] = t3;",
     "    for (I x = 0; x < lanes; x++) {\n      of_lane_t3[x] = t3;\n    }"),
    ("      s[at] = t9 ? s[at] : -__builtin_inff();",
     "      for (I x = 0; x < lanes; x++) {\n"
     "        s[other * lanes + x] = t9 ? s[other * lanes + x] : -__builtin_inff();\n      }"),
    # What the last of the others wrote is read for all of them.
    ("  lanes &= ~(I)15;\n", """  lanes &= ~(I)15;
  I of_lane_t2[64];
  for (I other = 0; other < others; other++) {
    const I t2 = quotient(other0 + other, t1);
    for (I lane = 0; lane < lanes; lane++) {
      of_lane_t2[lane] = t2;
    }
  }
"""),
]  # fmt: skip


@pytest.mark.parametrize(("old", "new"), IN_TURN)
def test_hooks_whose_turns_overwrite_others_are_not_proved(old, new):
    subject = subject_of(bound(masks()["chunks"]))
    text = subject.cpp.source
    changed = text.replace(old, new, 1)
    if "of_lane_t2" in new:
        changed = changed.replace("(t2 == of_lane_t3", "(of_lane_t2[lane] == of_lane_t3", 1)
    found = claims(replace(subject, rendered=lambda _: changed), ("cpu",), 300)
    (of_pairs,) = [claim for claim in found if "mask_q" in claim.text]
    assert of_pairs.by.startswith("not read: ")


LOOPS = [
    ("clip", "clip(I* at, I count", "clip(int32_t* at, I count"),
    ("clip", "clip(I* at, I count", "clip(I* at, int8_t count"),
    ("clip", "I i = 0; i < count; i++) {\n    at[2 * i] = most", "int8_t i = 0; i < count; i++) {\n    at[2 * i] = most"),  # noqa: E501
    ("listed", "const int32_t* first", "const int8_t* first"),
    ("listed", "I count, I keys", "I count, int32_t keys"),
    ("joined", "I kept = 0;", "int8_t kept = 0;"),
    ("joined", "static I joined", "static int8_t joined"),
    ("joined", "if (first >= end) continue;", "{ if (first >= end) continue; }"),
    ("united", "I kept = joined", "bool kept = joined"),
    ("may_drop", "return !holds", "return ~holds"),
    ("over_blocks", "I nk = least", "I BLOCK = 32; I nk = least"),
]  # fmt: skip


@pytest.mark.parametrize(("name", "old", "new"), LOOPS)
def test_wrong_loops_are_not_proved(name, old, new):
    pytest.importorskip("z3")
    text = skeleton()
    assert text.count(old) == 1
    changed = {"skeleton": text.replace(old, new)}
    found = walk_claims(changed, 300, lambda function: function == f"skeleton.{name}")
    assert {claim.outcome for claim in found} != {"proved"}


TRITON = [
    "return -(x >= y)", "return x << 40", "return x >> 32", "return less(x, y, 1)",
    "for i in tl.static_range(3):\n    x += i\n  else:\n    x = y\n  return x",
]  # fmt: skip


def read_triton(body):
    text = f"def less(a, b):\n  return a - b\ndef f(x, y):\n  {body}\n"
    numbers = [Number(variable(name), INT32) for name in "xy"]
    return Reader(Module(f"import triton.language as tl\n{text}", "a text")).call("f", *numbers)


@pytest.mark.parametrize("body", TRITON)
def test_what_is_not_read_of_triton(body):
    with pytest.raises(NotDefined):
        read_triton(body)


def test_an_assignment_to_two_names():
    assert read_triton("z = w = x\n  z = w = y\n  return w").term is variable("y")


ROW = "        if i > first:\n            acc = multiplied(i - 1"
TURN = "            run = next_tile(run, span, NEXT_RUN, BLOCK_N)\n        if not FREED"
HOPPER = [
    (ROW, f"        i += 1\n{ROW}"),
    (ROW, f"        first = i = i + 1\n{ROW}"),
    (ROW, f"        if i > 5:\n            i += 1\n        if i > 5:\n            i -= 1\n{ROW}"),
    (TURN, TURN.replace("BLOCK_N", "2 * BLOCK_N")),
    (TURN, TURN.replace("NEXT_RUN", "OTHER")),
    (TURN, TURN.replace("BLOCK_N)", "BLOCK_N) if FREED else run")),
    (TURN, f"            span = other\n{TURN}"),
]


@pytest.mark.parametrize(("old", "new"), HOPPER)
def test_wrong_loops_of_hopper_are_not_proved(old, new):
    pytest.importorskip("z3")
    text = kernel_source("hopper_forward")
    assert text.count(old) == 1
    changed = {"hopper_forward": text.replace(old, new)}
    (claim,) = walk_claims(changed, 300, lambda name: name == "hopper_forward._consume_row")
    assert claim.outcome != "proved"
