"""Expressions from code: what a place may hold, and what is said when it holds something else."""

from __future__ import annotations

from pathlib import Path

import pytest

import maskalg as ma
from maskalg import causal, errors, sliding
from maskalg.parsing import is_place, read

CODE = """
from maskalg import alibi, causal, sliding
import torch

mask = causal & sliding(4)
score = mask + alibi(torch.ones(2))
number = 3

def made():
    return causal & sliding(4)

def with_default(window=4):
    return causal & sliding(window)

def mask_mod(b, h, q_idx, kv_idx):
    return (q_idx >= kv_idx) & (q_idx - kv_idx < 4)

def score_mod(score, b, h, q_idx, kv_idx):
    return score + q_idx - kv_idx

def one(x):
    return x

def refused():
    return sliding(0)

def broken():
    raise KeyError("no such window")

class Model:
    mask = causal
"""


@pytest.fixture
def path(tmp_path: Path) -> Path:
    file = tmp_path / "their_masks.py"
    file.write_text(CODE)
    return file


@pytest.mark.parametrize("name", ["mask", "made", "with_default"])
def test_masks(path: Path, name: str) -> None:
    assert read(f"{path}:{name}") == causal & sliding(4)


def test_functions_of_flex_attention_are_traced(path: Path) -> None:
    mask = read(f"{path}:mask_mod")
    assert isinstance(mask, ma.Mask) and ma.equivalent(mask, causal & sliding(4))
    assert isinstance(read(f"{path}:score_mod"), ma.Bias)


def test_scores_attributes_and_modules(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert isinstance(read(f"{path}:score"), ma.Score)
    assert read(f"{path}:Model.mask") == causal
    assert read("maskalg.values.masks:causal") == causal
    monkeypatch.chdir(path.parent)
    assert read("their_masks:mask") == causal & sliding(4)


def test_places() -> None:
    assert is_place("a.b:c") and is_place("dir/x.py:c.d") and is_place(" ./x.py:c ")
    for text in ("causal", "scalar(3, 'a:b') > q_idx", "table([1])[0:2]", "lambda: 3"):
        assert not is_place(text)


@pytest.mark.parametrize(
    "name, says",
    [
        ("number", "it holds a value of type int, not a mask"),
        ("one", "its function needs (x); it may need nothing"),
        ("refused", "their_masks.py:refused': sliding(0): window must be an integer >= 1"),
        ("broken", "running it raised KeyError: 'no such window'"),
        ("maks", "it holds no 'maks'. Did you mean mask"),
    ],
)
def test_refuses(path: Path, name: str, says: str) -> None:
    with pytest.raises(errors.MaskValueError) as caught:
        read(f"{path}:{name}")
    assert says in str(caught.value)


def test_code_that_cannot_be_run(tmp_path: Path) -> None:
    for number, (code, says) in enumerate(
        [("1 +", "SyntaxError"), ("raise SystemExit(3)", "SystemExit"), ("import nowhere_", "nowh")]
    ):
        file = tmp_path / f"broken_{number}.py"
        file.write_text(code)
        with pytest.raises(errors.MaskValueError, match=says):
            read(f"{file}:mask")
    with pytest.raises(errors.MaskValueError, match="there is no module 'nowhere_at_all'"):
        read("nowhere_at_all:mask")
