"""The guide for users of FlexAttention: both sides of every pair keep and compute the same."""

from __future__ import annotations

import pytest
import torch
from snippets import last_name, run, snippets

import maskalg as ma
from maskalg.testing import assert_labels_exact, assert_same_mask
from maskalg.tracing.pointwise import pointwise

PAGE = "from_flexattention.md"
B, H, L = 2, 4, 48

# Of the posts' functions; the page has further ones.
POSTS = {
    *("noop", "relative", "alibi_mod", "soft_cap", "causal_score", "mask_as_score", "shifted"),
    *("learned", "causal_mask", "sliding_causal", "prefix_lm", "document_mask"),
    *("causal_documents", "prefix_documents", "neighbors", "decoding", "score_with_offset"),
    *("paged", "ragged"),
}


def value(expression: ma.Mask | ma.Bias | ma.Score, score: torch.Tensor, grid) -> torch.Tensor:
    if isinstance(expression, ma.Mask):
        kept = pointwise(expression.to_mask_mod(), *grid)
        return torch.where(kept, score, -torch.inf)
    return pointwise(expression.to_score_mod(), score, *grid)


def check_pair(function, expression) -> None:
    """The same matrix as the function itself, and as the function traced."""
    views = [(-1, 1, 1, 1), (1, -1, 1, 1), (1, 1, -1, 1), (1, 1, 1, -1)]
    grid = [torch.arange(n).view(v) for n, v in zip((B, H, L, L), views, strict=True)]
    if function.__code__.co_argcount == 4:
        assert isinstance(expression, ma.Mask)
        for mask in (expression, ma.mask(function)):
            assert_same_mask(mask, function, L, batch=B, heads=H)
            assert_labels_exact(mask, L, block=8, batch=B, heads=H)
        return
    score = 3 * torch.randn(B, H, L, L)
    wanted = pointwise(function, score, *grid)
    for found in (expression, ma.score(function)):
        torch.testing.assert_close(value(found, score, grid), wanted, rtol=2e-5, atol=2e-5)


def test_the_page() -> None:
    torch.manual_seed(0)
    names: dict[str, object] = {}
    seen = set()
    for snippet in snippets(PAGE):
        for part in snippet.parts:
            run(part, names, PAGE, snippet.line)
        if len(snippet.parts) == 2:
            ours, theirs = (names[last_name(part)] for part in reversed(snippet.parts))
            check_pair(theirs, ours)
            seen.add(last_name(snippet.parts[0]))
    assert seen >= POSTS


def test_a_wrong_pair_is_found() -> None:
    def near(b, h, q, k):
        return q - k <= 3

    with pytest.raises(AssertionError, match="differ"):
        check_pair(near, ma.window(2, None))
    with pytest.raises(AssertionError):
        check_pair(lambda s, b, h, q, k: s + q - k, ma.bias(ma.kv_idx - ma.q_idx))


def test_lines_fit() -> None:
    """Two columns of code stand beside each other on a page."""
    for snippet in snippets(PAGE):
        if len(snippet.parts) == 2:
            for part in snippet.parts:
                assert max(map(len, part.splitlines())) <= 74
