"""Keys in pages on a GPU: random tables, lengths, masks and biases against float64."""

import pytest
import torch

from tests.cases.paged import MASKS, check, check_int8, drawn, paged

pytestmark = pytest.mark.gpu

TOLERANCE = {torch.float32: 2e-5, torch.float16: 4e-3, torch.bfloat16: 3e-2}


@pytest.mark.parametrize("name", MASKS)
def test_random_cases(name):
    """67 of each mask, 1,005 in all; a part of them with int8 pages. Twice: the second call is one
    that was launched before."""
    for seed in range(67):
        dtype = (torch.bfloat16, torch.bfloat16, torch.float16)[seed % 3]
        case = paged(name, **drawn(seed, name), dtype=dtype, device="cuda")
        for _ in range(2):
            (check_int8 if seed % 5 == 4 else check)(case, "triton", TOLERANCE[dtype])


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
