"""Prefix trees packed as segments: their mask, depths, and what is known of their paths."""

from __future__ import annotations

import itertools
import random

import pytest
import torch

import maskalg as ma
from maskalg.engine.extents import Extents
from maskalg.engine.normal_form import bound
from maskalg.schedule.intervals.rung import tiles_of_documents
from maskalg.testing import assert_labels_exact, oracle

Forest = tuple[list[int], list[int]]  # cumulative lengths, parents


def forests(count: int, most: int = 8) -> list[Forest]:
    """Random forests in depth-first order, empty segments among them."""
    draw, found = random.Random(0), []
    for _ in range(count):
        parents: list[int] = []
        path: list[int] = []
        for segment in range(draw.randint(1, most)):
            path = path[: draw.randint(0, len(path))]
            parents.append(path[-1] if path else -1)
            path.append(segment)
        lengths = [draw.randint(0, 5) for _ in parents]
        found.append(([0, *itertools.accumulate(lengths)], parents))
    return found


def is_depth_first(parents: list[int]) -> bool:
    path: list[int] = []
    for segment, parent in enumerate(parents):
        while path and path[-1] != parent:
            path.pop()
        if parent >= 0 and not path:
            return False
        path.append(segment)
    return True


@pytest.mark.parametrize("as_tensors", [False, True])
def test_random_trees(as_tensors: bool) -> None:
    for cu_seqlens, parents in forests(60):
        total = cu_seqlens[-1] + 2
        given: tuple[object, object] = (cu_seqlens, parents)
        if as_tensors:
            given = (torch.tensor(cu_seqlens, dtype=torch.int32), torch.tensor(parents))
        mask = ma.shared_prefix.from_cu_seqlens(*given, total=total)  # type: ignore[arg-type]
        depths = ma.shared_prefix.depths(*given, total=total)  # type: ignore[arg-type]
        ids = [s for s in range(len(parents)) for _ in range(cu_seqlens[s + 1] - cu_seqlens[s])]
        wanted = torch.zeros(total, total, dtype=torch.bool)
        if ids:
            kept = oracle.shared_prefix(ids, parents, q_len=len(ids), kv_len=len(ids))
            wanted[: len(ids), : len(ids)] = torch.from_numpy(kept)[0, 0]
        assert torch.equal(mask.to_dense(total)[0, 0], wanted)
        assert depths.tolist() == (wanted.sum(1) - 1).clamp(min=0).tolist()
        assert_labels_exact(mask, total, block=4)


def test_many_segments_are_compared_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    from maskalg.values.masks.documents import shared_prefix

    for cu_seqlens, parents in forests(20, most=30):
        wanted = ma.shared_prefix.from_cu_seqlens(cu_seqlens, parents).parameters["end"]
        with monkeypatch.context() as patch:
            patch.setattr(shared_prefix, "_PAIRS_AT_ONCE", 40)
            found = ma.shared_prefix.from_cu_seqlens(cu_seqlens, parents).parameters["end"]
        assert torch.equal(found, wanted)  # type: ignore[arg-type]


def test_other_orders_are_refused() -> None:
    """On the CPU by an error; elsewhere an assertion on the device does it."""
    draw = random.Random(1)
    for _ in range(300):
        parents = [draw.randint(-1, 4) for _ in range(draw.randint(1, 5))]
        parents = [min(parent, len(parents) - 1) for parent in parents]
        cu_seqlens = list(range(len(parents) + 1))
        if is_depth_first(parents):
            ma.shared_prefix.from_cu_seqlens(cu_seqlens, parents)
        else:
            with pytest.raises(ma.MaskValueError, match="Pack the segments depth first"):
                ma.shared_prefix.from_cu_seqlens(cu_seqlens, parents)


def test_what_is_not_waited_for_is_asserted(monkeypatch: pytest.MonkeyPatch) -> None:
    from maskalg.values.masks.documents import shared_prefix

    monkeypatch.setattr(shared_prefix, "readable", lambda tensor: False)
    parents = torch.tensor([-1, 0, 0, 1])  # segment 1 had ended
    with pytest.raises(RuntimeError, match="not packed depth first"):
        ma.shared_prefix.from_cu_seqlens(torch.arange(5), parents, total=4)
    mask = ma.shared_prefix.from_cu_seqlens(torch.arange(5), parents.clamp(max=0), total=4)
    assert mask.to_dense(4)[0, 0].int().tolist()[3] == [1, 0, 0, 1]


@pytest.mark.parametrize(
    "arguments, parts",
    [
        (([0, 2, 4], [-1]), ("parents", "[1]", "[2], one for each segment")),
        (([0, 2, 1], [-1, 0]), ("must start at 0 and never descend",)),
        (([0, 2], [[-1]]), ("parents", "[1, 1]")),
        (([0, 2, 4], [-1, 2]), ("segment 1 continues segment 2", "shared_prefix(ids, parents)")),
        (([0, 2, 4], [0, 0]), ("segment 0 continues segment 0",)),
    ],
)
def test_errors(arguments: tuple[list[int], list[int]], parts: tuple[str, ...]) -> None:
    for function in (ma.shared_prefix.from_cu_seqlens, ma.shared_prefix.depths):
        with pytest.raises(ma.MaskValueError) as raised:
            function(*arguments)
        assert all(part in str(raised.value) for part in parts), raised.value


def test_total() -> None:
    with pytest.raises(ma.MaskValueError, match="total"):
        ma.shared_prefix.from_cu_seqlens([0, 2, 4], [-1, 0], total=3)
    with pytest.raises(TypeError, match="total must be an integer"):
        ma.shared_prefix.from_cu_seqlens([0, 2, 4], [-1, 0], total=4.5)  # type: ignore[arg-type]


def test_paths_say_how_long_rows_are() -> None:
    """A prompt of 300 with two answers of 50: rows of 300 and 350 tokens."""
    mask = ma.shared_prefix.from_cu_seqlens([0, 300, 350, 400], [-1, 0, 0])
    mean = (300 * 300 + 2 * 50 * 350) / 400
    found = tiles_of_documents(bound(mask), Extents(400, 400, 1, 1), 1)
    assert found == pytest.approx(mean)
    windowed = mask & (ma.table(torch.arange(400))[ma.kv_idx] >= 0)
    assert tiles_of_documents(bound(windowed), Extents(400, 400, 1, 1), 1) == 0  # of another table


def test_moved_masks_keep_what_is_known_of_paths() -> None:
    mask = ma.shared_prefix.from_cu_seqlens([0, 300, 350, 400], [-1, 0, 0])
    there = mask.to("cpu" if not torch.cuda.is_available() else "cuda") & ma.everything
    copied = mask.bind(end=mask.parameters["end"].clone())  # type: ignore[union-attr]
    extents = Extents(400, 400, 1, 1)
    assert tiles_of_documents(bound(there), extents, 1) > 300
    assert tiles_of_documents(bound(copied), extents, 1) == 0


def test_windows_by_depth_compose() -> None:
    cu_seqlens, parents = [0, 4, 7, 10, 13], [-1, 0, 1, 0]
    mask = ma.shared_prefix.from_cu_seqlens(cu_seqlens, parents)
    depths = ma.shared_prefix.depths(cu_seqlens, parents)
    windowed = mask & ma.sliding(5).at(q=depths, kv=depths)
    apart = depths[:, None] - depths
    assert torch.equal(
        windowed.to_dense(13)[0, 0], mask.to_dense(13)[0, 0] & (apart < 5) & (apart >= 0)
    )
    assert_labels_exact(windowed, 13, block=4)


@pytest.mark.parametrize("backend", ["cpu", "reference"])
@pytest.mark.parametrize("sink", [False, True])
def test_each_path_is_a_sequence(backend: str, sink: bool) -> None:
    """Output and gradients are those of every path by itself, with caps and sinks."""
    torch.manual_seed(0)
    cu_seqlens, parents = [0, 70, 131, 150, 215], [-1, 0, 1, 0]
    mask = ma.shared_prefix.from_cu_seqlens(cu_seqlens, parents) + ma.softcap(3.0)
    weight = ma.softmax_with_sink(torch.tensor([0.5, -1.0])) if sink else ma.softmax
    q, k, v = (torch.randn(1, h, 215, 16, dtype=torch.float64).requires_grad_() for h in (2, 1, 1))
    paths = []
    for segment in range(4):
        path = [segment]
        while parents[path[0]] >= 0:
            path.insert(0, parents[path[0]])
        paths.append(torch.cat([torch.arange(*cu_seqlens[s : s + 2]) for s in path]))
    out = ma.attention(q, k, v, mask, weight=weight, backend=backend)
    alone = [
        ma.attention(
            *(x[:, :, at] for x in (q, k, v)), ma.causal + ma.softcap(3.0), weight=weight,
            backend="reference",
        )
        for at in paths
    ]  # fmt: skip
    for at, each in zip(paths, alone, strict=True):
        torch.testing.assert_close(out[:, :, at], each)
    change = [torch.randn_like(each) for each in alone]
    of_tree = sum((out[:, :, at] * c).sum() for at, c in zip(paths, change, strict=True))
    of_each = sum((each * c).sum() for each, c in zip(alone, change, strict=True))
    found = torch.autograd.grad(of_tree, (q, k, v))
    for ours, wanted in zip(found, torch.autograd.grad(of_each, (q, k, v)), strict=True):
        torch.testing.assert_close(ours, wanted)


def test_a_kernel_serves_where_all_lies_on_one_gpu():
    """Of lengths on the CPU torch's operations make the table, then for any device."""
    from maskalg.values.masks.documents.shared_prefix import _served

    here = torch.arange(3)
    assert not _served(torch.device("cuda"), here, here)
    assert not _served(torch.device("cuda", 0), here, here)
