"""`maskalg bench` without a GPU: its cases, its report, and its errors."""

import inspect
import os
import time
from concurrent.futures.process import BrokenProcessPool
from dataclasses import replace
from functools import partial
from itertools import combinations, pairwise, product
from pathlib import Path

import pytest
import torch

from maskalg import causal
from maskalg.bench import cudnn, flash_attention_4, workers
from maskalg.bench.cases import (
    FURTHER_SHAPES,
    SHAPES,
    Case,
    Contender,
    cases,
    catalogue,
    documents,
    mask_of,
)
from maskalg.bench.contenders import contenders
from maskalg.bench.families import families
from maskalg.bench.measure import Row, first_calls, kept_pairs
from maskalg.bench.report import line, markdown, summary
from maskalg.cli import main
from maskalg.cli.options import named_by
from maskalg.values import masks


def test_needs_a_gpu(capsys, monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert main(["bench"]) == 2
    found = capsys.readouterr()
    assert found.out == "" and found.err.startswith("maskalg bench: no CUDA device was found")


@pytest.mark.parametrize(
    "peer, contenders, package",
    [
        (cudnn, cudnn.cudnn_flex_attention, "cudnn"),
        (flash_attention_4, flash_attention_4.flash_attention_4, "flash_attn"),
    ],
    ids=["cudnn", "flash_attention_4"],
)
@pytest.mark.parametrize("name", ["itself", "cutlass", None])
def test_why_a_contender_is_missing(peer, contenders, package, name, monkeypatch):
    def refuse(module):
        if name is None:
            raise RuntimeError("no driver\nat all")
        absent = package if name == "itself" else name
        raise ModuleNotFoundError(f"No module named {absent!r}", name=absent)

    monkeypatch.setattr(peer.importlib, "import_module", refuse)
    peer.missing.cache_clear()
    why = {"itself": "not installed (pip install '", "cutlass": "No module named 'cutlass'"}
    assert peer.missing().startswith(why.get(name, "RuntimeError: no driver"))
    assert "\n" not in peer.missing()
    assert contenders(Case(SHAPES["D64"], causal, row="causal"), ()) == {}
    peer.missing.cache_clear()


def test_a_whole_name_is_that_case_alone():
    known = ["D64 window", "D64 window of 4096", "D128 window", "D128 causal"]
    assert named_by(["D64 window", "causal"], known) == ["D64 window", "D128 causal"]
    assert named_by(["window"], known) == known[:3]
    assert named_by([], known) == known


def test_a_case_that_is_not_there(capsys, monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    assert main(["bench", "--cases", "causl"]) == 2
    assert "--cases causl names no case. The cases: D128 full" in capsys.readouterr().err
    assert main(["bench", "--catalogue", "--cases", "causl"]) == 2
    assert "The cases: D128 everything, D128 causal" in capsys.readouterr().err


def test_peers_by_name(capsys, monkeypatch):
    case = cases("cpu")["D128 causal"]
    found = contenders(case, (torch.ones(1, 1, 4, 2),) * 3, ["cuDNN", "FlexAttention"])
    assert list(found) == ["maskalg", "FlexAttention", "cuDNN"]
    assert {"FlashAttention-2", *found} <= set(contenders(case, (torch.ones(1, 1, 4, 2),) * 3))
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    assert main(["bench", "--peers", "cuDNN,FlashAttention-9"]) == 2
    assert "--peers FlashAttention-9 names no contender. Those there are: Flex" in (
        capsys.readouterr().err
    )


@pytest.mark.parametrize("rounds", ["0", "x"])
def test_rounds(rounds, capsys):
    assert main(["bench", "--rounds", rounds]) == 2
    assert "expected a positive integer" in capsys.readouterr().err


def dense_of(mod, shape, length):
    b, h, q, k = torch.meshgrid(
        *(torch.arange(n) for n in (shape.batch, shape.heads, length, length)), indexing="ij"
    )
    return mod(b, h, q, k)


@pytest.mark.parametrize("shapes", [SHAPES, FURTHER_SHAPES], ids=["usual", "further"])
def test_functions_for_the_peers_keep_the_same(shapes):
    for name, case in cases("cpu", shapes).items():
        if case.mask_mod is None or not name.startswith(("D128", "D80", "ViT", "GQA16k")):
            continue
        shape = replace(case.shape, heads=2)
        length = min(shape.length, 300)
        ours = mask_of(case).to_dense(length, batch=shape.batch, heads=2)
        theirs = dense_of(case.mask_mod, shape, length)
        assert torch.equal(*torch.broadcast_tensors(ours, theirs)), name


def test_every_family_has_a_function_that_keeps_the_same():
    found = {name: case for name, case in catalogue("cpu").items() if name.startswith("D128")}
    assert len(found) > 50
    for name, case in found.items():
        shape = case.shape
        ours = case.expression.to_dense(128, batch=shape.batch, heads=shape.heads)
        theirs = dense_of(case.mask_mod, shape, 128)
        assert torch.equal(*torch.broadcast_tensors(ours, theirs)), name


def test_the_catalogue_at_other_shapes():
    found = catalogue("cpu", ["GQA4k drafts", "causal", "D80"])
    assert {name.split()[0] for name in found} == {"GQA4k"} and "GQA4k drafts" in found
    assert not catalogue("cpu", ["ViT"])


def test_the_catalogue_is_benched_whole():
    text = inspect.getsource(families)
    assert [name for name in masks.__all__ if name not in text] == ["nothing", "dense"]


def test_kept_pairs():
    found = cases("cpu")
    of_all = 2 * 16
    assert kept_pairs(found["D128 causal"]) == of_all * 8192 * 8193 // 2
    window = 1024 * 1025 // 2 + (8192 - 1024) * 1024
    assert kept_pairs(found["D128 window"]) == of_all * window
    sizes = documents(8192, 256, "cpu").unique(return_counts=True)[1]
    kept = of_all * int((sizes * (sizes + 1) // 2).sum())
    assert kept_pairs(found["D128 documents of 256"]) == kept


def contenders_of(**results):
    """Contenders that give twice their input and something, or raise it."""
    q = torch.ones(1, 1, 4, 2, requires_grad=True)

    def make(found):
        if isinstance(found, Exception):
            raise found
        return Contender(lambda: q * 2 + found * q * q, (q,))

    return {name: partial(make, found) for name, found in results.items()}


@pytest.mark.parametrize("backward", [False, True])
def test_a_peer_that_fails_or_differs_is_left_out(backward):
    problem = RuntimeError("no such mask\nin any kernel")
    found = contenders_of(maskalg=0.0, other=1e-3, wrong=1.0, absent=problem)
    functions, distances, missing = first_calls(found, backward=backward)
    assert list(functions) == ["maskalg", "other"]
    assert distances["other"] == pytest.approx(1e-3 if backward else 5e-4, rel=1e-3)
    assert missing["absent"] == "RuntimeError: no such mask"
    assert missing["wrong"].startswith("ArithmeticError: its result is ")
    with pytest.raises(RuntimeError, match="no such mask"):
        first_calls(contenders_of(maskalg=problem, other=0.0), backward=backward)


def test_report():
    times = {"maskalg": [1.0, 2.0, 1.5], "FlexAttention": [3.0, 3.0, 3.0]}
    missing = {"cuDNN": "RuntimeError: no"}
    row = Row("D64 causal", times, 1.5e12, {"FlexAttention": 1e-3}, missing)
    assert "maskalg 1.500 [1.000-2.000] 1000T" in line(row)
    assert "FlexAttention 3.000 [3.000-3.000] 500T x2.00" in line(row)
    assert "cuDNN failed (RuntimeError: no)" in line(row)
    assert line(row).endswith("farthest result 1.0e-03 from ours")
    assert summary([row]) == "times faster than  FlexAttention 2.00 (2.00-2.00)"
    assert line(replace(row, times={"maskalg": [1.0]})).endswith("cuDNN failed (RuntimeError: no)")


def test_markdown_says_why_there_is_no_time():
    times = {"maskalg": [1.0, 2.0, 1.5], "FlexAttention": [3.0, 3.0, 3.0]}
    sparse, why = "FlashAttention-4 mask_mod", "AssertionError: no " + "x" * 300
    both = [
        Row("causal", {**times, sparse: [6.0]}, 1.5e12, {}, {}),
        Row("sinks", times, 1.5e12, {}, {sparse: why, "cuDNN": "RuntimeError: no"}),
        Row("window", times, 1.5e12, {}, {sparse: why}),
    ]
    ours = "1.500 [1.000-2.000] 1000T | 3.000 x2.00"
    lines = markdown(both).splitlines()
    assert lines[0] == f"| case | maskalg | FlexAttention | cuDNN | {sparse} |"
    assert lines[2:5] == [
        f"| causal | {ours} | – | 6.000 x4.00 |",
        f"| sinks | {ours} | – [1] | – [2] |",
        f"| window | {ours} | – | – [2] |",
    ]
    assert lines[6] == "[1] cuDNN: RuntimeError: no"
    assert lines[8] == f"[2] {sparse}: {why[:160]}" and len(lines) == 9


def turns(_device):
    """Cases whose names say in which process they are built."""
    from multiprocessing import parent_process

    return {f"case {i}": (i, parent_process() is not None) for i in range(6)}


def row_of(name, case, rounds, *, backward, peers):
    """A row whose times say who measured it, and when; turns overlap if processes do not wait."""
    from maskalg.bench.measure import ALONE, BESIDE

    with BESIDE:
        first = [time.monotonic()]
        if (marks := os.environ.get("MARKS")) is not None:
            Path(marks, str(os.getpid())).touch()
            while len(os.listdir(marks)) < 2 and time.monotonic() - first[0] < 60:
                time.sleep(0.01)  # until another process stands here too
        first.append(time.monotonic())
    with ALONE:
        begin = time.monotonic()
        time.sleep(0.02)
        times = {"maskalg": [begin, time.monotonic()], "first": first, "case": case}
        return Row(name, times, rounds, {}, {"backward": backward, "peers": peers})


def turns_beside(device):
    workers.measure.measure = row_of  # in the process that is told to begin
    return turns(device)


def no_turns(_device):
    raise RuntimeError("no cases here")


@pytest.fixture
def new_processes(monkeypatch):
    """New processes find the functions of this file, however pytest was started."""
    monkeypatch.syspath_prepend(Path(__file__).parents[2])
    monkeypatch.setenv("TORCHINDUCTOR_COMPILE_THREADS", "1")


@pytest.mark.parametrize("count", [1, 3])
def test_workers_take_turns_on_the_gpu(count, monkeypatch, tmp_path, new_processes):
    monkeypatch.setattr(workers.measure, "measure", row_of)
    if count > 1:
        monkeypatch.setenv("MARKS", str(tmp_path))
    names = [f"case {i}" for i in range(6)]
    rows = list(workers.measured(turns_beside, names, 4, count, backward=True, peers=["cuDNN"]))
    assert [row.name for row in rows] == names
    assert {row.times["case"] for row in rows} == {(i, count > 1) for i in range(6)}
    assert all(row.missing == {"backward": True, "peers": ["cuDNN"]} for row in rows)
    assert all(row.flops == 4 for row in rows)
    at = sorted(row.times["maskalg"] for row in rows)
    assert all(end <= begin for (_, end), (begin, _) in pairwise(at))
    first = [row.times["first"] for row in rows]
    assert not [pair for pair in product(at, first) if overlap(*pair)]
    assert count == 1 or any(overlap(*pair) for pair in combinations(first, 2))


def overlap(one, other):
    return one[0] < other[1] and other[0] < one[1]


def test_a_worker_that_cannot_begin_ends_the_bench(new_processes):
    with pytest.raises(BrokenProcessPool):
        list(workers.measured(no_turns, ["case 0"], 4, 2, backward=False))
