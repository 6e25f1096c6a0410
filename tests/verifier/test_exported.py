"""What other libraries are given, proved, and wrong functions that are not."""

import inspect
import itertools
import random

import pytest
import torch

import maskalg as ma
from maskalg.engine.normal_form import bound
from maskalg.export.flex_functions import flex_function, interval_function
from maskalg.schedule.block_map import BlockMap
from maskalg.testing.catalogue import BIASES, CATALOGUE
from maskalg.verifier import exported, tables_of_calls
from maskalg.verifier.exported import claims_of_function, of_intervals

from .mutants import masks
from .mutation import of_triton

pytest.importorskip("z3")

q, k = ma.q_idx, ma.kv_idx


@pytest.mark.parametrize("name", CATALOGUE)
def test_functions_of_the_catalogue(name):
    found = list(claims_of_function(CATALOGUE[name].mask, 3000))
    assert len(found) == 2 and {claim.outcome for claim in found} == {"proved"}, found


@pytest.mark.parametrize("name", BIASES)
def test_functions_of_biases(name):
    case = BIASES[name]
    found = list(claims_of_function(case.build(*case.tensors()), 3000))
    assert {claim.outcome for claim in found} == {"proved"}, found


@pytest.mark.parametrize("mask", [q + (2**31 - 2) >= k, 300 * q >= k, (q % 4) * 10**9 >= k])
def test_indices_of_32_bits_are_made_longer_where_a_formula_leaves_them(mask):
    """FlexAttention's kernels count positions in 32 bits, where these wrapped."""
    found = list(claims_of_function(mask, 3000))
    assert {claim.outcome for claim in found} == {"proved"}, found
    place = torch.tensor([2**24 - 1, 5], dtype=torch.int32)
    wanted = mask.to_mask_mod()(0, 0, place.long()[:, None], place.long())
    assert torch.equal(mask.to_mask_mod()(0, 0, place[:, None], place), wanted)
    plain = list(
        claims_of_function(mask, 3000, lambda text: text.replace("longs.index(q_idx)", "q_idx"))
    )
    assert [claim.outcome for claim in plain] == ["proved", "wrong"]


def test_python_integers_are_indices_too():
    assert [(300 * q >= k).to_mask_mod()(0, 0, 5, key) for key in (3, 1500, 1501)] == [1, 1, 0]


@pytest.mark.parametrize("dtype", [torch.int32, torch.int64])
def test_tensors_without_axes_make_indices_longer(dtype):
    """They make no tensor of 32 bits longer."""
    mask = ma.mask(lambda b, h, q, k: q + torch.tensor(2**31 - 1, dtype=dtype) >= k)
    place = torch.arange(6, dtype=torch.int32)
    assert mask.to_mask_mod()(0, 0, place[:, None], place).all()


@pytest.mark.parametrize(
    "mask",
    [
        ma.floor(q + 2**24) >= ma.floor(k + 2**24),
        ma.floor(q + 2**24) > ma.floor(k + 2**24),
    ],
)
def test_functions_of_integers_are_those_of_their_float32(mask):
    """torch.floor of integers is an integer."""
    assert {claim.outcome for claim in claims_of_function(mask, 3000)} == {"proved"}
    place = torch.arange(6)
    assert torch.equal(mask.to_mask_mod()(0, 0, place[:, None], place), mask.to_dense(6)[0, 0])
    plain = claims_of_function(mask, 3000, lambda text: text.replace(".float()", ""))
    assert not any(claim.outcome == "proved" for claim in plain)


def test_an_index_outside_of_its_table_is_wrong():
    mask = ma.table(torch.arange(9))[q - 3] >= k
    assert {claim.outcome for claim in claims_of_function(mask, 3000)} == {"proved"}

    def without_clamp(text):
        assert "torch.clamp((-3 + q_idx), 0, 8)" in text
        return text.replace("torch.clamp((-3 + q_idx), 0, 8)", "(-3 + q_idx)")

    found = list(claims_of_function(mask, 3000, without_clamp))
    assert {claim.outcome for claim in found} == {"wrong"}


@pytest.mark.parametrize("name", ["key_intervals", "to_cudnn"])
def test_tables_of_intervals_that_are_wrong_are_told(name, monkeypatch):
    right = getattr(tables_of_calls, name)
    if name == "key_intervals":
        monkeypatch.setattr(tables_of_calls, name, lambda *at: right(ma.sliding(4), *at[1:]))
    else:
        other = exported.key_intervals(ma.sliding(4), exported.Lengths(20, 20, 1, 1), None)
        monkeypatch.setattr(tables_of_calls, name, lambda ends, *at: right(other, *at))
    found = list(exported.claims_of_intervals(ma.sliding(3), 20, 3000))
    outcomes = {claim.text.partition(",")[0]: claim.outcome for claim in found}
    assert outcomes["cuDNN's ends of rows"] == "wrong"


EVERY = [
    "FlexAttention's score_mod",
    "FlexAttention's mask_mod",
    "FlexAttention's mask_mod of intervals",
    "FlexAttention's blocks of keys of each row",
    "FlexAttention's blocks of queries of each column",
    "FlashAttention-4's blocks of keys of each row",
    "FlashAttention-4's blocks of queries of each column",
    "slices",
    "FlashMask's ranges of queries",
    "cuDNN's ends of rows",
    "FlashInfer's blocks",
    "FlashInfer's blocks of any size",
    "FlashInfer's bits",
    "vLLM's function with its hint",
    "vLLM's ranges",
]


def test_what_other_libraries_are_given_is_proved():
    ids = torch.arange(40) // 9
    found = ma.verify((ma.causal & ma.document(ids)) + ma.alibi(torch.rand(2)), targets=["torch"])
    assert found.whole, str(found)
    texts = [claim.text.partition(",")[0] for claim in found.claims]
    assert list(dict.fromkeys(texts)) == EVERY


@pytest.mark.parametrize("length", [70, 71])
@pytest.mark.parametrize("name", ["causal sliding", "strided"])
def test_what_is_not_made_is_told(name, length):
    """Every format has a claim, of any length; a refusal is one, with its reason."""
    found = ma.verify(CATALOGUE[name].mask, targets=["torch"], length=length)
    of = {claim.text.partition(",")[0]: claim for claim in found.claims}
    assert list(of) == EVERY[1:] and found.whole
    absent = {text: claim.by for text, claim in of.items() if claim.outcome == "not made"}
    assert {claim.outcome for claim in of.values()} == {"proved", "not made"}
    assert absent["vLLM's ranges"].startswith('to_vllm(form="ranges"): query ')
    assert of["FlashInfer's blocks"].outcome == "proved"
    assert f"{len(found.claims) - len(absent)} claims in" in str(found)
    assert f"s; {len(absent)} not made" in str(found)


def wrong_lists(rows, name, change):
    return rows._replace(**{name: change(getattr(rows, name).clone())})


@pytest.mark.parametrize("turned", [False, True])
@pytest.mark.parametrize(
    "name, change",
    [
        ("mask_block_cnt", lambda count: count - (count > 0).int()),  # a block less
        ("full_block_cnt", lambda count: count - (count > 0).int()),
        ("mask_block_idx", lambda at: at[..., :1].expand_as(at)),  # one block again and again
        ("full_block_idx", lambda at: at + 1),
    ],
)
def test_wrong_lists_of_blocks_are_refuted(name, change, turned, monkeypatch):
    right = BlockMap.to_fa4

    def wrong(blocks):
        lists = list(right(blocks))
        lists[turned] = wrong_lists(lists[turned], name, change)
        return lists

    monkeypatch.setattr(BlockMap, "to_fa4", wrong)
    found = exported.claims_of_intervals(ma.sliding(100), 300, 3000)
    refuted = [claim.text.partition(",")[0] for claim in found if not claim.holds]
    title = "queries of each column" if turned else "keys of each row"
    assert refuted == [f"FlashAttention-4's blocks of {title}"]


@pytest.mark.parametrize(
    "writer, change",
    [
        ("to_attention_slices", lambda q, k, kinds: (q, k, kinds * 0)),
        ("to_attention_slices", lambda q, k, kinds: (q, k - 1 + (k == 0).int(), kinds)),
        ("to_attention_slices", lambda *parts: [torch.cat([part, part[:1]]) for part in parts]),
        ("to_flashmask", lambda ends, causal: (ends + 1, causal)),
        ("to_flashmask", lambda ends, causal: (ends, not causal)),
    ],
)
def test_wrong_slices_and_ranges_are_refuted(writer, change, monkeypatch):
    right = getattr(tables_of_calls, writer)
    monkeypatch.setattr(tables_of_calls, writer, lambda *args, **of: change(*right(*args, **of)))
    for mask in (ma.causal & ma.document(torch.arange(60) // 9), ma.sliding(7)):
        found = exported.claims_of_intervals(mask, 50, 3000)
        refuted = [claim.text for claim in found if not claim.holds]
        assert len(refuted) == 1, refuted


def test_a_wrong_function_of_intervals_is_refuted():
    mask = ma.causal & ma.sliding(3)
    intervals = mask._key_intervals(ma.engine.extents.Lengths(9, 9), 8)
    right = interval_function(intervals)
    starts, ends = (inspect.getclosurevars(right).nonlocals[name] for name in ("starts", "ends"))

    def wrong(b, h, q_idx, kv_idx):
        at = (b * 0, h * 0, q_idx)
        return (kv_idx >= starts[0][at]) & (kv_idx <= ends[0][at])

    outcomes = [of_intervals(bound(mask).structure, intervals, f, "", 3000) for f in (right, wrong)]
    assert [claim.outcome for claim in outcomes] == ["proved", "wrong"]


def answers(function, numbers, entries, tables):
    """A function at pairs, each with batch entry and head, where tensors hold these entries."""
    before = {name: tensor.clone() for name, tensor in tables.items()}
    for (name, at), entry in entries.items():
        if name in tables:
            tables[name].flatten()[at] = entry
    columns = torch.tensor(numbers).T
    try:
        found = [function(*row) for row in (columns, columns.int())]
        return [torch.as_tensor(part).expand(len(numbers)).tolist() for part in found]
    except (IndexError, RuntimeError) as problem:  # outside of a tensor, or a division by 0
        return [str(problem)]
    finally:
        for name, tensor in tables.items():
            tensor.copy_(before[name])


@pytest.mark.parametrize("name", masks())
def test_no_mutant_is_accepted_that_answers_otherwise(name):
    mask = masks()[name]
    form = bound(mask)
    tables = {f"t{i}": v for i, v in enumerate(form.values) if isinstance(v, torch.Tensor)}
    texts = []
    right = flex_function(mask, lambda text: (texts.append(text), text)[1])
    length = min([8, *[table.shape[-1] for table in tables.values()]])
    pairs = list(itertools.product(range(2), range(2), range(length), range(length)))
    every = list(of_triton(texts[0]))
    refuted = 0
    for mutant in random.Random(1).sample(every, min(len(every), 40)):
        try:
            wrong = flex_function(mask, lambda text, changed=mutant.text: changed)
        except IndexError:  # a number that is not passed
            continue
        for claim in claims_of_function(mask, 10_000, lambda text, changed=mutant.text: changed):
            told = f"{mutant.before} => {mutant.after}: {claim}"
            if claim.model is not None:
                at = [claim.model.values.get(i, 0) for i in ("batch", "head", "q_idx", "kv_idx")]
                call = [at], claim.model.entries, tables
            else:
                call = pairs, {}, tables
            if claim.outcome == "proved":
                assert answers(wrong, *call) == answers(right, *call), told
            elif claim.outcome == "wrong":
                refuted += 1
                assert answers(wrong, *call) != answers(right, *call), told
            else:  # a text that is not read, or a question that takes z3 too long
                assert "not read" in claim.by or "z3 did not decide it" in claim.by, told
    assert refuted > 10
