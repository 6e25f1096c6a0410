"""Printed masks are read back as themselves, and garbage raises the package's errors alone."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from maskalg import errors
from maskalg.parsing import NAMES, is_place, parse
from maskalg.values.algebra import Bias, Mask, Score

ATOMS = st.one_of(
    st.sampled_from(["causal", "everything", "nothing"]),
    st.builds("{}({})".format, st.sampled_from(["sliding", "dilated", "chunked", "block_causal"]),
              st.integers(1, 99)),
    st.builds("prefix({})".format, st.integers(0, 99)),
    st.builds("window({}, {})".format, *[st.none() | st.integers(0, 9)] * 2),
    st.builds("neighborhood(({0}, {1}), {2})".format, *[st.integers(5, 9)] * 2, st.integers(1, 5)),
    st.builds("(q_idx - kv_idx) % {} == {}".format, st.integers(2, 9), st.integers(0, 1)),
    st.builds("{}*q_idx + {} >= kv_idx".format, st.integers(1, 5), st.integers(-9, 9)),
)  # fmt: skip


def composed(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    return st.one_of(
        st.builds("({}) & ({})".format, inner, inner),
        st.builds("({}) | ({})".format, inner, inner),
        st.builds("~({})".format, inner),
        st.builds("({}).shift(q={}, kv={})".format, inner, *[st.integers(0, 9)] * 2),
        st.builds("where(head % 2 == 0, {}, {})".format, inner, inner),
    )


@settings(max_examples=150, deadline=None)
@given(st.recursive(ATOMS, composed, max_leaves=6))
def test_a_printed_mask_is_read_as_itself(text: str) -> None:
    mask = parse(text)
    again = parse(str(mask))
    assert str(again) == str(mask)
    assert isinstance(mask, Mask) and isinstance(again, Mask)
    if ".shift(" not in text:
        assert again == mask
    else:
        assert again.to_dense(24, heads=2).equal(mask.to_dense(24, heads=2))


def test_printed_biases_are_read_as_themselves() -> None:
    for text in ("softcap(30.0)", "causal & sliding(4) + softcap(30.0)", "2.0 * softcap(3.0)"):
        assert parse(str(parse(text))) == parse(text)


PIECES = st.sampled_from(
    [*NAMES, *"()[]&|~+-*/%@<>=,.:'\"!#{}\\;^ \n\x00é", "**", "//", "==", "0", "1", "-1", "2.5",
     "1e999", "True", "None", "q_idx", "kv_idx", ".shift(q=", ".bind(", "lambda", " and ", " if ",
     "[1, 2]", "(2, 3)", "for x in ", "9" * 25, "__class__", "'a'"]
)  # fmt: skip


def raises_only_ours(text: str) -> None:
    try:
        assert isinstance(parse(text), (Mask, Bias, Score))
    except errors.MaskalgError as problem:
        assert "\n" not in str(problem)


@settings(max_examples=400, deadline=None)
@given(st.lists(PIECES, max_size=12).map("".join))
def test_garbage_raises_errors_of_ours(text: str) -> None:
    raises_only_ours(text)


@settings(max_examples=100, deadline=None)
@given(st.text(max_size=30))
def test_any_text_raises_errors_of_ours(text: str) -> None:
    raises_only_ours(text)
    is_place(text)


VALUES = st.sampled_from(
    ["1", "-1", "0", "3", "2.5", "True", "None", "'a'", "(2, 3)", "[1, 2, 3]", "[0.5]", "[[1, 2]]",
     "[True]", "q_idx", "causal", "softcap(3)", "arange(6)", "lengths(2, 4)", "[]", "()"]
)  # fmt: skip
CALLED = [name for name, value in NAMES.items() if callable(value)]


@pytest.mark.parametrize("name", CALLED)
@settings(max_examples=12, deadline=None)
@given(st.lists(VALUES, max_size=4))
def test_calls_with_any_values(name: str, values: list[str]) -> None:
    raises_only_ours(f"{name}({', '.join(values)})")
