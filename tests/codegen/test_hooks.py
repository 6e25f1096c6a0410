"""Rendered hooks: their text, their arguments, and that values stay out of them."""

import py_compile

import pytest
import torch

import maskalg as ma
from maskalg import causal, sliding
from maskalg.codegen import store
from maskalg.codegen.entries import entries_of, slot_of
from maskalg.codegen.hooks import Style, hooks_of
from maskalg.engine.normal_form import bound


def source(expression):
    return ma.render(expression)


def in_style(expression, grain):
    return hooks_of(bound(expression).structure, Style(ptx=True, grain=grain)).source


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


def test_sets_of_positions_are_left_to_the_mask():
    """Bounds on the next member of a set are dropped: kernels are given those without it."""
    flags = ma.table(torch.zeros(8, dtype=torch.bool), "flags")
    text = source(causal & sliding(4) & flags[ma.q_idx] & flags[ma.kv_idx])
    assert "tiles((q0 - S[0] + 1), q1, True, kv_len, BLOCK)" in text
    assert "next(" not in text and "previous(" not in text


def test_absolute_distance_is_two_sided():
    """CUDA 13's assembler miscompiles an integer absolute value in a predicate."""
    text = source(abs(ma.q_idx - ma.kv_idx) <= 5)
    masked = text[text.index("def masked") : text.index("def next_run")]
    assert "maximum" not in masked and "abs" not in masked and "&" in masked
    assembly = ma.render(abs(ma.q_idx - ma.kv_idx) <= 5, ptx=True)
    assert "tl.maximum((q_idx - 5), 0)" in assembly and "abs" not in assembly


def test_whole_masks_need_no_predicate():
    assert "tl.where(kv_idx < kv_len, score" in source(ma.everything)
    assert "touched = ()" in source(ma.nothing)


def test_inline_assembly_makes_one_comparison_of_all_bounds():
    text = ma.render(causal & sliding(256), ptx=True)
    assert "selp.f32 $0, $1, 0fFF800000" in text
    assert text.count("setp.") == 1 and "setp.lt.u32 p0, distance, $4" in text
    assert "kv_len - 1" in text


def test_inline_assembly_compares_the_rest_with_keys_on_one_side():
    text = ma.render(causal & (sliding(256) | ma.prefix(4)) & ma.chunked(64), ptx=True)
    assert text.count("setp.") == 4 and "or.pred" in text
    assert "quotient(q_idx, S[" in text and "quotient(kv_idx, S[" in text


def test_what_is_read_of_a_row_is_held():
    slopes, starts = torch.ones(2), torch.zeros(8, dtype=torch.int32)
    mask = ma.kv_idx >= ma.table(starts, "starts")[ma.q_idx]
    text = ma.render(mask + ma.alibi(slopes))
    hold = text[text.index("def hold") : text.index("def masked")]
    assert hold.count("tl.load") == 2
    assert "tl.load" not in text[text.index("def masked") : text.index("def next_run")]


def test_contiguous_documents_are_bounds():
    """Ids are compared only where equal ones are scattered, which a number on the device says."""
    text = ma.render(causal & ma.document(torch.zeros(8, dtype=torch.int32)), ptx=True)
    masked = text[text.index("def masked") : text.index("def next_run")]
    by_bounds, by_ids = masked.split("if (T[-3] == 0):")
    assert "tl.load" not in by_bounds and by_ids.count("tl.load") == 2


def test_documents_among_alternatives_have_a_branch_of_their_own():
    mask = causal & (ma.document(torch.zeros(8, dtype=torch.int32)) | ma.prefix(3))
    text = ma.render(mask, ptx=True)
    masked = text[text.index("def masked") : text.index("def next_run")]
    by_bounds, by_ids = masked.split("else:")
    assert "tl.load" not in by_bounds and by_ids.count("tl.load") == 2


def test_rows_of_many_entries_are_read_line_by_line():
    mask = ma.dense(torch.ones(64, 64, dtype=torch.bool))
    for grain, length in ((8, "S[1] // 8 * 8"), (2, "S[1] // 2 * 2"), (1, "S[1]")):
        masked = in_style(mask, grain).split("def next_run")[0]
        assert length in masked and "+ kv_idx, mask=kv_idx < " in masked
        # What is not loaded is not kept: nothing else asks whether the key exists.
        assert "kv_len - 1" not in masked and masked.count("setp") == 1
    both = in_style(~mask & causal, 8).split("def next_run")[0]
    assert "kv_len - 1" in both


def test_lengths_matter_to_tables_of_keys_alone():
    by_key = causal + ma.key_bias(torch.zeros(72))
    found = [bound(by_key).grain(kv_len) for kv_len in (72, 64, 66, 65)]
    assert found == [8, 8, 2, 1]
    assert bound(causal + ma.key_bias(torch.zeros(70))).grain(64) == 2
    of_queries = ma.kv_idx < ma.table(torch.zeros(72, dtype=torch.int64))[ma.q_idx]
    for expression in (causal, of_queries, causal + ma.alibi(torch.ones(4))):
        assert bound(expression).grain(64) == 1


def test_entries_of_pairs_begin_to_be_loaded_ahead_of_time():
    bias = ma.dense_bias(torch.zeros(4, 64, 64))
    hooks = hooks_of(bound(bias).structure, Style(ptx=True, grain=8))
    assert hooks.ahead
    ahead = hooks.source.split("def ahead(")[1].split("\n\n")[0]
    biased = hooks.source.split("def biased_ahead(")[1].split("\n\n")[0]
    assert ahead.count("tl.load") == 1 and "tl.load" not in biased and "S[-1]" in biased
    assert not hooks_of(bound(bias).structure, Style(ptx=True, grain=2)).ahead
    by_key = bound(ma.causal + ma.key_bias(torch.zeros(64))).structure
    assert not hooks_of(by_key, Style(ptx=True, grain=8)).ahead


def test_gradients_of_many_rows_are_added_up_by_few_kernels():
    layers = [torch.ones(5), torch.ones(5), torch.ones(2, 5), torch.ones(2)]
    form = bound(ma.fire(ma.FireParameters(*layers, *torch.ones(2, 1))))
    found = entries_of(form.structure, tuple(range(6)), Style())
    assert [len(reads.readings) for reads in found] == [8, 8, 2]
    assert {reads.mode for reads in found} == {"rows"}
    # The longest derivatives come last.
    last = {slot_of(reading) for reading in found[-1].readings}
    assert last == {slot.index for slot, _ in form.tensors() if slot.name in ("c", "threshold")}


def test_real_comparisons_take_the_natural_form():
    mask = ma.table(torch.rand(8))[ma.kv_idx] > ma.table(torch.rand(8))[ma.q_idx]
    assert "inline_asm" not in ma.render(mask, ptx=True)


def test_floor_division_of_a_difference_rounds_down():
    assert "floor_div(" in source((ma.q_idx - ma.kv_idx) // 4 >= -1)
    assert "quotient_of_any(" in source((ma.q_idx - ma.kv_idx) // ma.scalar(4, low=1) >= -1)


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


@pytest.mark.parametrize("planted", [b"ANSWER = 13\n", b"\xff\xfe no text", b""])
def test_what_lies_in_the_cache_folder_never_runs(tmp_path, monkeypatch, planted):
    """Neither another source, nor a compiled file that claims to be of the right one."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    source, digest = "ANSWER = 42\n", f"test_planted_{len(planted)}"
    path = tmp_path / "maskalg" / "hooks" / f"maskalg_hooks_{digest}.py"
    path.parent.mkdir(parents=True)
    path.write_text("ANSWER = 13\n")
    mode = py_compile.PycInvalidationMode.UNCHECKED_HASH
    py_compile.compile(str(path), invalidation_mode=mode)
    path.write_bytes(planted)
    module = store.load(source, digest)
    assert module.ANSWER == 42 and path.read_text() == source
