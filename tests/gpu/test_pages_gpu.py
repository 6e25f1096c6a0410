"""Keys in pages on a GPU: random tables, lengths, masks and biases against float64."""

import random

import pytest
import torch

from tests.cases.paged import MASKS, check, paged

pytestmark = pytest.mark.gpu

TOLERANCE = {torch.float32: 2e-5, torch.float16: 4e-3, torch.bfloat16: 3e-2}


def drawn(seed, name):
    """The arguments of a random case."""
    draw = random.Random(seed)
    page, dim = draw.choice([(16, 64), (16, 128), (64, 128), (128, 128), (48, 64)])
    requests = draw.randint(1, 5)
    lengths = [draw.choice([0, 1, draw.randint(1, 1500)]) for _ in range(requests)]
    lengths[0] = max(lengths[0], 1)
    few = 8 if name == "tree" else draw.choice([1, 1, 1, 3, 8, 130])
    counts = [min(draw.randint(0, few), n) for n in lengths]
    counts[0] = max(counts[0], 1)
    packed = draw.random() < 0.5
    if not packed:
        counts = [max(counts)] * requests
    return {
        "lengths": lengths,
        "counts": counts,
        "page": page,
        "heads": draw.choice([(8, 2), (4, 4)]),
        "dims": (dim, dim),
        "dtype": draw.choice([torch.bfloat16, torch.bfloat16, torch.float16]),
        "packed": packed,
        "device": "cuda",
        "spare": draw.choice([0, 3, 60]),
        "seed": seed,
    }


@pytest.mark.parametrize("name", MASKS)
def test_random_cases(name):
    for seed in range(24):
        how = drawn(seed, name)
        case = paged(name, how.pop("lengths"), how.pop("counts"), how.pop("page"), **how)
        for _ in range(2):
            check(case, "triton", TOLERANCE[case.query.dtype])


def test_tables_that_point_outside_read_nothing_elsewhere():
    case = paged("causal", [700, 300], [1, 1], 16, dims=(128, 128), heads=(8, 2),
                 dtype=torch.bfloat16, device="cuda")  # fmt: skip
    case.pages.table.fill_(2**31 - 1)
    case.attend()
    case.pages.table.fill_(-5)
    case.pages.lengths.fill_(2**31 - 1)
    case.attend()
    torch.cuda.synchronize()


@pytest.mark.parametrize("packed", [False, True])
def test_in_a_graph_whose_lengths_change(packed):
    how = {"dims": (128, 128), "heads": (8, 2), "dtype": torch.bfloat16, "device": "cuda"}
    first, second = (
        paged("window", n, [1, 1, 1], 16, packed=packed, spare=s, seed=1, **how)
        for n, s in (([700, 300, 9], 10), ([850, 123, 64], 0))
    )
    assert first.pages.table.shape == second.pages.table.shape
    pool = max(first.key_pages.shape[0], second.key_pages.shape[0])
    for name in ("key_pages", "value_pages"):
        pages = getattr(first, name)
        setattr(first, name, pages.new_full((pool, *pages.shape[1:]), torch.nan))
        getattr(first, name)[: len(pages)] = pages
    offset = next(t for _, t in ma_tables(first.score))
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        for _ in range(3):
            first.attend()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        out, _ = first.attend()
    for name in ("query", "key_pages", "value_pages"):
        other = getattr(second, name)
        getattr(first, name)[: len(other)] = other
    first.pages.table.copy_(second.pages.table)
    first.pages.lengths.copy_(second.pages.lengths)
    offset.copy_(next(t for _, t in ma_tables(second.score)))
    graph.replay()
    want, _ = second.wanted()
    torch.testing.assert_close(out.double(), want, atol=3e-2, rtol=3e-2)


def ma_tables(score):
    """Names and tensors of an expression."""
    return [(n, t) for n, t in score.parameters.items() if isinstance(t, torch.Tensor)]
