"""FlashAttention-4 as a contender, with modules in its place: what it is asked for, and how."""

import sys
from collections import namedtuple
from dataclasses import replace
from types import ModuleType, SimpleNamespace

import pytest
import torch

from maskalg.bench import cases as rows
from maskalg.bench import flash_attention_4 as peer
from maskalg.bench import measure
from maskalg.bench.cases import SHAPES, Case, Shape, cases, mask_of
from maskalg.cli import bench, main

BlockSparseTensorsTorch = namedtuple(
    "BlockSparseTensorsTorch",
    "mask_block_cnt mask_block_idx full_block_cnt full_block_idx cu_total_m_blocks "
    "cu_block_idx_offsets block_size dq_write_order dq_write_order_full spt",
    defaults=[None] * 10,
)


@pytest.fixture
def calls(monkeypatch):
    """The calls of a library of which each returns its queries."""
    made = []

    def function(name):
        def call(q, k, v, **options):
            made.append((name, (q, k, v), options))
            return q * 2, None

        return call

    modules = {
        "flash_attn": {},
        "flash_attn.cute": {
            name: function(name) for name in ("flash_attn_func", "flash_attn_varlen_func")
        },
        "flash_attn.cute.interface": {},
        "flash_attn.cute.block_sparsity": {"BlockSparseTensorsTorch": BlockSparseTensorsTorch},
        "flash_attn.cute.utils": {"scalar_to_ssa": lambda value, dtype: value[None].to(dtype)},
        "cutlass": {"Int32": torch.int32, "Float32": torch.float32},
        "cutlass.cute": {"jit": lambda f: f, "math": SimpleNamespace(exp2=torch.exp2)},
    }
    for name, members in modules.items():
        module = ModuleType(name)
        module.__dict__.update(members)
        monkeypatch.setitem(sys.modules, name, module)
        parent, _, last = name.rpartition(".")
        if parent:
            setattr(sys.modules[parent], last, module)
    monkeypatch.delitem(sys.modules, "maskalg.bench.cute_mods", raising=False)
    peer.missing.cache_clear()
    yield made
    sys.modules.pop("maskalg.bench.cute_mods", None)
    peer.missing.cache_clear()


def short(name: str) -> Case:
    """A case of few heads and little memory, with the lengths it has."""
    case = cases("cpu")[name]
    return replace(case, shape=Shape(2, 4, 2, case.shape.length, 8))


def made(case: Case, gradients: bool = False):
    shape = case.shape
    inputs = tuple(
        torch.randn(shape.batch, heads, shape.length, shape.dim, requires_grad=gradients)
        for heads in (shape.heads, shape.kv_heads, shape.kv_heads)
    )
    return inputs, {name: make() for name, make in peer.flash_attention_4(case, inputs).items()}


ASKED = {
    "full": ("flash_attn_func", {}),
    "causal": ("flash_attn_func", {"causal": True}),
    "window": ("flash_attn_func", {"causal": True, "window_size": (1023, 0)}),
    "window of 4096": ("flash_attn_func", {"causal": True, "window_size": (4095, 0)}),
    "document": ("flash_attn_varlen_func", {"causal": True}),
    "document & window": ("flash_attn_varlen_func", {"causal": True, "window_size": (1023, 0)}),
    "documents of 256": ("flash_attn_varlen_func", {"causal": True}),
    "documents of 5000": ("flash_attn_varlen_func", {"causal": True}),
    "log-normal documents": ("flash_attn_varlen_func", {"causal": True}),
    "window & softcap": (
        "flash_attn_func",
        {"causal": True, "window_size": (4095, 0), "softcap": 50.0},
    ),
    "alibi": ("flash_attn_func", {"causal": True}),
    "softcap": ("flash_attn_func", {"causal": True, "softcap": 30.0}),
}


AS_FUNCTIONS = [row for row, spelling in peer.SPELLINGS.items() if spelling.mask]


@pytest.mark.parametrize("row", list(peer.SPELLINGS))
def test_what_it_is_asked_for(row, calls):
    case = short(f"D128 {row}")
    _, contenders = made(case)
    assert list(contenders) == [
        *([peer.BUILT_IN] if row in ASKED else []),
        *([peer.WITH_MASK_MOD] if row in AS_FUNCTIONS else []),
    ]
    for contender in contenders.values():
        assert contender.run().shape == (2, 4, case.shape.length, 8)
    if row in ASKED:
        name, _, options = calls[0]
        wanted, arguments = ASKED[row]
        assert name == wanted and options.items() >= arguments.items()
        assert ("score_mod" in options) == (row == "alibi") and "mask_mod" not in options
    if row in AS_FUNCTIONS:
        name, _, options = calls[-1]
        assert name == "flash_attn_func" and not options.keys() & {"causal", "window_size"}
        assert options.get("softcap") == (30.0 if row == "softcap" else None)
        assert ("score_mod" in options) == ("score_mod_bwd" in options) == (row == "alibi")
        forward, backward = (
            options[f"block_sparse_tensors{side}"].block_size for side in ("", "_bwd")
        )
        assert (forward, backward) == peer.tiles(8)


@pytest.mark.parametrize("row", ["causal", "document", "window & softcap"])
def test_gradients_of_the_same_bits(row, calls):
    """A contender of its own where gradients are asked for, otherwise the same call."""
    case = short(f"D128 {row}")
    contenders = made(case, gradients=True)[1]
    for name in (peer.BUILT_IN, peer.DETERMINISTIC):
        assert contenders[name].run().shape == (2, 4, case.shape.length, 8)
    (default, _, usual), (same, _, options) = calls
    assert default == same and options.pop("deterministic") is True
    assert options.keys() == usual.keys() and options["causal"] and "deterministic" not in usual


def test_every_row_is_said():
    """But those that came later: tables, canvases, and more biases."""
    rows = {case.row for case in cases("cpu").values()}
    later = {"global tokens", "block table", "neighborhood", "sliding tiles"}
    later |= {"padded", "window & alibi", "t5", "dense mask", "dense bias"}
    assert rows == set(peer.SPELLINGS) | later


@pytest.mark.parametrize("row", AS_FUNCTIONS)
def test_masks_keep_the_same(row, calls):
    """Every pair of the call."""
    case = cases("cpu")[f"D128 {row}"]
    _, contenders = made(replace(case, shape=replace(case.shape, heads=1, kv_heads=1, dim=8)))
    contenders[peer.WITH_MASK_MOD].run()
    options = calls[-1][2]
    zero, keys = torch.zeros(1, dtype=torch.int64), torch.arange(case.shape.length)
    for query in keys[:, None]:
        kept = options["mask_mod"](zero, zero, query, keys, None, options["aux_tensors"])
        assert torch.equal(kept, case.mask_mod(0, 0, query, keys)), query


def test_alibi(calls):
    case = cases("cpu")["D128 alibi"]
    small = replace(case, shape=replace(SHAPES["D128"], heads=16, kv_heads=1, dim=8, batch=1))
    made(small)[1][peer.BUILT_IN].run()
    options = calls[-1][2]
    score, gradient = torch.randn(1), torch.randn(1)
    for head in (0, 3, 15):
        at = (torch.tensor([0]), torch.tensor([head]), torch.tensor([700]), torch.tensor([31]))
        wanted = case.score_mod(score, *at)
        assert torch.allclose(options["score_mod"](score, *at, None, ()), wanted)
        assert options["score_mod_bwd"](gradient, score, *at, None, ()) is gradient


def test_its_layout(calls):
    """Heads after positions in memory, so that nothing is copied, with the same values."""
    case = short("D128 document")
    inputs, contenders = made(case, gradients=True)
    for name, contender in contenders.items():
        assert torch.equal(contender.inputs[0], inputs[0])
        assert torch.equal(contender.run(), inputs[0] * 2)
        given = calls[-1][1]
        assert all(t.is_contiguous() for t in given)
        assert given[1].shape[-2:] == (2, 8)
        assert given[0].data_ptr() == contender.inputs[0].data_ptr()
        grad = torch.autograd.grad(contender.run().sum(), contender.inputs[0])[0]
        assert torch.equal(grad, torch.full_like(grad, 2)), name


def test_documents_as_sequences(calls):
    case = short("D128 documents of 256")
    made(case)[1][peer.BUILT_IN].run()
    options, length = calls[0][2], case.shape.length
    ends = options["cu_seqlens_q"]
    assert ends.dtype == torch.int32 and ends is options["cu_seqlens_k"]
    sizes = case.ids.unique(return_counts=True)[1]
    assert torch.equal(ends.diff(), sizes.repeat(2).to(torch.int32))
    assert (int(ends[0]), int(ends[-1])) == (0, 2 * length)
    assert options["max_seqlen_q"] == options["max_seqlen_k"] == int(sizes.max())


def test_block_lists(calls):
    """Lists of the blocks that its forward and backward take, the backward's by block of keys."""
    case = replace(short("D128 causal"), shape=replace(SHAPES["D128"], heads=1, kv_heads=1))
    made(case)[1][peer.WITH_MASK_MOD].run()
    forward, backward = (calls[-1][2][f"block_sparse_tensors{side}"] for side in ("", "_bwd"))
    (q, kv), (q_back, kv_back) = peer.tiles(128)
    labels = mask_of(case).blocks(8192, block=(q, kv)).labels
    assert torch.equal(forward.mask_block_cnt, (labels == 1).sum(-1, dtype=torch.int32))
    assert torch.equal(forward.full_block_cnt, (labels == 2).sum(-1, dtype=torch.int32))
    labels = mask_of(case).blocks(8192, block=(q_back, kv_back)).labels
    assert torch.equal(backward.mask_block_cnt, (labels == 1).sum(-2, dtype=torch.int32))
    assert torch.equal(backward.full_block_cnt, (labels == 2).sum(-2, dtype=torch.int32))
    assert backward.spt is backward.cu_total_m_blocks is None


def test_a_line_says_that_it_is_missing(capsys, monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda: "a GPU")
    monkeypatch.setattr(bench, "_tuned", lambda: "")
    monkeypatch.setattr(peer, "missing", lambda: "not installed")
    monkeypatch.setattr(rows, "cases", lambda device, **shapes: cases("cpu"))

    def stop(*arguments, **options):
        raise KeyboardInterrupt

    monkeypatch.setattr(measure, "measure", stop)
    with pytest.raises(KeyboardInterrupt):
        main(["bench"])
    assert "\nFlashAttention-4: not installed\n" in capsys.readouterr().out
