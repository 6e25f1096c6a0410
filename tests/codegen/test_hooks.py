"""Rendered hooks: their text, their arguments, and that values stay out of them."""

import torch

import maskalg as ma
from maskalg import causal, sliding
from maskalg.codegen import store
from maskalg.codegen.hooks import hooks_of
from maskalg.normalform import bound


def source(expression):
    return ma.render(expression)


def test_causal_window():
    text = source(causal & sliding(256))
    assert "tiles((q0 - S[0] + 1), q1, True, kv_len, BLOCK)" in text
    assert "tiles(0, (q1 - S[0]), True, kv_len, BLOCK)" in text
    assert "tiles((q0 + 1), kv_len - 1, True, kv_len, BLOCK)" in text
    assert "(q_idx >= kv_idx)" in text
    assert "256" not in text


def test_same_structure_renders_the_same():
    ids = torch.zeros(8, dtype=torch.int64)
    one = sliding(3) & ma.document(ids) & causal + ma.alibi(torch.ones(2))
    other = causal & (ma.document(ids + 1) & sliding(99)) + ma.alibi(torch.zeros(2))
    assert source(one) == source(other)


def test_documents_read_their_step_tables():
    ids = torch.zeros(8, dtype=torch.int64)
    hooks = hooks_of(bound(causal & ma.document(ids)).structure)
    assert [table.step for table in hooks.tables] == [None, "first", "start"]


def test_absolute_distance_is_two_sided():
    """CUDA 13's assembler miscompiles an integer absolute value in a predicate."""
    text = source(abs(ma.q_idx - ma.kv_idx) <= 5)
    kept = text[text.index("def kept") : text.index("def next_run")]
    assert "maximum" not in kept and "abs" not in kept and "&" in kept


def test_whole_masks_need_no_predicate():
    assert "def kept" not in source(ma.everything)
    assert "touched = ()" in source(ma.nothing)


def test_floor_division_of_a_difference_rounds_down():
    assert "floor_div(" in source((ma.q_idx - ma.kv_idx) // 4 >= -1)
    assert "(q_idx // " in source(ma.chunked(4))


def test_store_writes_once_and_survives_a_read_only_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    module = store.load("ANSWER = 41 + 1\n", "test_written")
    assert module.ANSWER == 42 and str(tmp_path) in module.__file__
    assert store.load("ANSWER = 0\n", "test_written") is module
    blocked = tmp_path / "file"
    blocked.write_text("")
    monkeypatch.setenv("XDG_CACHE_HOME", str(blocked))
    module = store.load("def f():\n    return 7\n", "test_memory")
    import inspect

    assert module.f() == 7 and "return 7" in inspect.getsource(module.f)
