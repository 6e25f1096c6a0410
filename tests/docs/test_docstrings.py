"""Public names: each has a docstring that says what its arguments are, and its examples run."""

from __future__ import annotations

import copy
import doctest
import inspect
import math
import pickle
import pydoc
from typing import Any

import pytest
import torch

import maskalg as ma
from maskalg import testing
from maskalg.values.helped import Ways

from .session import Session

VALUES = (ma.Mask, ma.Bias, ma.Weight, type(ma.q_idx))
CLASSES = [ma.Bias, ma.FireParameters, ma.Mask, ma.Score, ma.Weight, ma.nn.Attention]


def documented() -> dict[str, Any]:
    """Everything public with a docstring of its own: functions, classes and their methods."""
    found = {name: getattr(ma, name) for name in ma.__all__}
    found = {name: v for name, v in found.items() if not isinstance(v, VALUES) and name != "nn"}
    found |= {f"testing.{name}": getattr(testing, name) for name in testing.__all__}
    # `document` and its like are values of a private class of their own.
    namespaces = [type(v) for v in found.values() if isinstance(v, Ways)]
    for owner in [*CLASSES, *namespaces]:
        for name, member in inspect.getmembers(owner, callable):
            own = str(getattr(member, "__module__", "")).startswith("maskalg")
            called = name == "__call__" and owner in namespaces  # others refuse it
            if own and (not name.startswith("_") or called):
                found[f"{owner.__name__}.{name}"] = member
    return found | {owner.__name__: owner for owner in CLASSES}


PUBLIC = documented()
EXAMPLES = [name for name, value in PUBLIC.items() if ">>> " in (inspect.getdoc(value) or "")]


@pytest.mark.parametrize("name", EXAMPLES)
def test_examples_run(name: str) -> None:
    torch.manual_seed(0)
    q, k, v = (torch.randn(1, 2, 16, 8) for _ in range(3))
    names = {name: getattr(ma, name) for name in ma.__all__}
    given = {"ma": ma, "torch": torch, "math": math, "q": q, "k": k, "v": v}
    given |= {"ids": torch.arange(16) // 6, "slopes": torch.tensor([0.5, 0.25])}
    session = Session(name, names | given)
    for example in doctest.DocTestParser().get_examples(inspect.getdoc(PUBLIC[name]) or ""):
        session.example(example, 1)


@pytest.mark.parametrize("name", ["causal", "everything", "nothing"])
def test_help_of_a_mask_says_what_it_keeps(name: str) -> None:
    text = pydoc.render_doc(getattr(ma, name), renderer=pydoc.plaintext)
    assert text.count("\n") < 12 and "quer" in text and "help(maskalg.Mask)" in text


@pytest.mark.parametrize("name", [n for n in ma.__all__ if isinstance(getattr(ma, n), Ways)])
def test_help_of_a_name_with_several_ways(name: str) -> None:
    value = getattr(ma, name)
    text = pydoc.render_doc(value, renderer=pydoc.plaintext)
    assert "__call__(self" in text and "Data descriptors" not in text
    assert f"class {name}" in text and repr(value) == f"maskalg.{name}"
    with pytest.raises(TypeError, match=rf"^{name}\(\) missing \d"):
        value()
    assert pickle.loads(pickle.dumps(value)) is value and copy.deepcopy(value) is value


@pytest.mark.parametrize("name", ["q_idx", "head", "linear", "relu", "softmax", "softmax_plus_one"])
def test_help_of_a_value_says_what_it_is(name: str) -> None:
    text = pydoc.render_doc(getattr(ma, name), renderer=pydoc.plaintext)
    assert text.count("\n") < 8 and "help(" in text


def test_there_are_examples() -> None:
    assert {"attention", "sliding", "prefix", "where", "implies", "mask"} <= set(EXAMPLES)


@pytest.mark.parametrize("name", PUBLIC)
def test_docstring_says_what_the_arguments_are(name: str) -> None:
    value = PUBLIC[name]
    text = inspect.getdoc(value) or ""
    assert len(text) > 20, f"{name} has no docstring"
    # "Takes what `blocks` takes" and "as for `implies`" refer to another docstring.
    elsewhere = ("akes what", "as for `", "describes the arguments")
    if inspect.isfunction(value) and not any(words in text for words in elsewhere):
        ours = [p for p in inspect.signature(value).parameters if p not in ("self", "named")]
        common = ("q_len", "kv_len", "batch", "heads", "block")
        missing = [p for p in ours if p not in text and p not in common]
        assert not missing, f"the docstring of {name} does not say what {missing} are"
