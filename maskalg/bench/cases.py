"""Cases of the bench: shapes of training, and masks and biases people train with."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import lru_cache
from math import log
from typing import Any, Final

import torch

from ..formula.expression import Expression
from ..formula.nodes import SCORE
from ..values.algebra import Mask, everything
from ..values.biases import alibi, dense_bias, softcap, t5
from ..values.index import kv_idx, table
from ..values.masks import (
    block_table,
    causal,
    dense,
    document,
    neighborhood,
    prefix,
    sliding,
    sliding_tile,
)

_LONGEST_TABLE: Final = 8192  # of 256 MiB, beside which a peer's table of blocks is made

Mod = Callable[..., Any]


@dataclass(frozen=True)
class Shape:
    """Sizes of query, key and value; `kv_heads` are shared by groups of query heads."""

    batch: int
    heads: int
    kv_heads: int
    length: int
    dim: int

    def __str__(self) -> str:
        return f"[{self.batch}, {self.heads} on {self.kv_heads}, {self.length}, {self.dim}]"


SHAPES: Final = {
    "D128": Shape(2, 16, 16, 8192, 128),
    "D64": Shape(2, 32, 32, 8192, 64),
    "GQA32k": Shape(1, 32, 8, 32768, 128),
}


@dataclass(frozen=True)
class Case:
    """One row: our expression, and what the peers need to say the same.

    Attributes:
        shape: of the inputs.
        expression: a mask or a score.
        mask_mod, score_mod: FlexAttention's functions; None is everything, and no bias.
        sdpa_causal: `is_causal` of `scaled_dot_product_attention`, None where it has no such mask.
        ids: of the documents, ascending, None where there are none.
        row: the name without the shape's.
    """

    shape: Shape
    expression: Expression
    mask_mod: Mod | None = None
    score_mod: Mod | None = None
    sdpa_causal: bool | None = None
    ids: torch.Tensor | None = None
    row: str = ""


def documents(length: int, mean: int, device: str) -> torch.Tensor:
    """Ids of documents of half to one and a half of `mean` tokens, from a fixed seed."""
    generator = torch.Generator().manual_seed(0)
    low, high, count = mean // 2, mean + mean // 2, 2 * length // mean + 2
    sizes = torch.randint(low, high, (count,), generator=generator)
    ids = torch.repeat_interleave(torch.arange(len(sizes)), sizes)[:length]
    return ids.to(device, torch.int32)


def blocks(length: int, device: str) -> torch.Tensor:
    """Which blocks of 128 a sparse pattern keeps: a tenth, and those of the diagonal."""
    side = -(-length // 128)
    chosen = torch.rand(side, side, generator=torch.Generator().manual_seed(0)) < 0.1
    return (chosen | torch.eye(side, dtype=torch.bool)).to(device)


def marked_tokens(length: int, device: str) -> torch.Tensor:
    """Eight tokens that all later ones see."""
    places = torch.randperm(length, generator=torch.Generator().manual_seed(0))[:8]
    marks = torch.zeros(length, dtype=torch.bool)
    marks[places] = True
    return marks.to(device)


def cases(device: str) -> dict[str, Case]:
    """The rows by name, such as "D128 causal"."""
    return {
        f"{name} {row}": replace(case, row=row)
        for name, shape in SHAPES.items()
        for row, case in rows(shape, device).items()
    }


def mask_of(case: Case) -> Mask:
    """The mask of a case, without its bias."""
    return Mask(case.expression.mask_node, SCORE, case.expression.label)


def rows(shape: Shape, device: str) -> dict[str, Case]:
    """The cases of one shape, by name, such as "causal"."""
    length = shape.length
    ids, short, long = (documents(length, mean, device) for mean in (1000, 256, 5000))
    lengths = torch.bincount(long).tolist()
    slopes = torch.exp2(-8 * torch.arange(1, shape.heads + 1, device=device) / shape.heads)
    quarter = length // 4
    kept, marks = blocks(length, device), marked_tokens(length, device)

    def is_causal(b: Any, h: Any, q: Any, k: Any) -> Any:
        return q >= k

    def window(b: Any, h: Any, q: Any, k: Any) -> Any:
        return (q >= k) & (q - k < 1024)

    def of_document(b: Any, h: Any, q: Any, k: Any) -> Any:
        return (q >= k) & (ids[q] == ids[k])

    def three(b: Any, h: Any, q: Any, k: Any) -> Any:
        return (q >= k) & (q - k < 1024) & (ids[q] == ids[k])

    def of_short(b: Any, h: Any, q: Any, k: Any) -> Any:
        return (q >= k) & (short[q] == short[k])

    def of_long(b: Any, h: Any, q: Any, k: Any) -> Any:
        return (q >= k) & (long[q] == long[k])

    def prefixed(b: Any, h: Any, q: Any, k: Any) -> Any:
        return (q >= k) | (k < quarter)

    def sinks(b: Any, h: Any, q: Any, k: Any) -> Any:
        return (q >= k) & ((q - k < 1024) | (k < 4))

    def of_blocks(b: Any, h: Any, q: Any, k: Any) -> Any:
        return kept[q // 128, k // 128]

    def marked(b: Any, h: Any, q: Any, k: Any) -> Any:
        return (q >= k) & ((q - k < 1024) | marks[k])

    def biased(s: Any, b: Any, h: Any, q: Any, k: Any) -> Any:
        return s + slopes[h] * (k - q)

    def capped(s: Any, b: Any, h: Any, q: Any, k: Any) -> Any:
        return 30 * torch.tanh(s / 30)

    bounded = causal & document(ids) & sliding(1024)
    return {
        "full": Case(shape, everything, sdpa_causal=False),
        "causal": Case(shape, causal, is_causal, sdpa_causal=True),
        "window": Case(shape, causal & sliding(1024), window),
        "document": Case(shape, causal & document(ids), of_document, ids=ids),
        "document & window": Case(shape, bounded, three, ids=ids),
        "documents of 256": Case(shape, causal & document(short), of_short, ids=short),
        "documents of 5000": Case(
            shape, causal & document.from_lengths(lengths, device=device), of_long, ids=long
        ),
        "prefix": Case(shape, causal | prefix(quarter), prefixed),
        "sinks": Case(shape, causal & (sliding(1024) | prefix(4)), sinks),
        "global tokens": Case(shape, causal & (sliding(1024) | table(marks)[kv_idx]), marked),
        "block table": Case(shape, block_table(kept, 128), of_blocks),
        "alibi": Case(shape, causal + alibi(slopes), is_causal, biased),
        "window & alibi": Case(shape, causal & sliding(1024) + alibi(slopes), window, biased),
        "softcap": Case(shape, causal + softcap(30.0), is_causal, capped),
        **_canvases_and_buckets(shape, device),
        **(_tables_of_pairs(shape, device) if length <= _LONGEST_TABLE else {}),
    }


@lru_cache(maxsize=2)
def _tables(length: int, device: str) -> tuple[torch.Tensor, torch.Tensor]:
    """Which half of all pairs is kept, and a bias of each."""
    generator = torch.Generator(device).manual_seed(0)
    drawn = torch.randn(length, length, generator=generator, device=device, dtype=torch.bfloat16)
    return drawn > 0, drawn


def _tables_of_pairs(shape: Shape, device: str) -> dict[str, Case]:
    """Masks and biases that are told pair by pair, the same for all heads."""
    kept, drawn = _tables(shape.length, device)

    def looked_up(b: Any, h: Any, q: Any, k: Any) -> Any:
        return kept[q, k]

    def added(s: Any, b: Any, h: Any, q: Any, k: Any) -> Any:
        return s + drawn[q, k]

    return {
        "dense mask": Case(shape, dense(kept), looked_up),
        "dense bias": Case(shape, dense_bias(drawn), None, added),
    }


def _canvases_and_buckets(shape: Shape, device: str) -> dict[str, Case]:
    """A window on an image, tiles of a video, and T5's buckets of distances."""
    length = shape.length
    image, video = (length // 128, 128), (8, 32, length // 256)
    across = video[2] // 8  # tiles of 4 x 8 x 8 tokens, 4 of which are one above another
    learned = torch.randn(32, shape.heads, generator=torch.Generator().manual_seed(0)).to(device)

    def around(b: Any, h: Any, q: Any, k: Any) -> Any:
        row = (q // 128 - 6).clamp(0, length // 128 - 13)
        column = (q % 128 - 6).clamp(0, 128 - 13)
        below, beside = k // 128 - row, k % 128 - column
        return (below >= 0) & (below < 13) & (beside >= 0) & (beside < 13)

    def of_tiles(b: Any, h: Any, q: Any, k: Any) -> Any:
        q, k = q // 256, k // 256
        row, column = (q // across % 4 - 1).clamp(0, 1), (q % across - 1).clamp(0, across - 3)
        below, beside = k // across % 4 - row, k % across - column
        same = q // (4 * across) == k // (4 * across)
        return same & (below >= 0) & (below < 3) & (beside >= 0) & (beside < 3)

    def bucketed(s: Any, b: Any, h: Any, q: Any, k: Any) -> Any:
        distance = (k - q).abs()
        far = 8 + (torch.log(distance.clamp(min=1) / 8) / log(128 / 8) * 8).to(torch.int32)
        bucket = torch.where(distance < 8, distance, far.clamp(max=15))
        return s + learned[bucket + torch.where(k > q, 16, 0), h]

    return {
        "neighborhood": Case(shape, neighborhood(image, (13, 13)), around),
        "sliding tiles": Case(shape, sliding_tile(video, (4, 8, 8), (1, 3, 3)), of_tiles),
        "t5": Case(shape, t5(learned), None, bucketed),
    }
