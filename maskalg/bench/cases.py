"""Cases of the bench: shapes, masks and biases people train with, and ways to compute them."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping, Sequence
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
    padding,
    prefix,
    sliding,
    sliding_tile,
)
from .families import SHORTEST, families

Run = Callable[[], torch.Tensor]


@dataclass(frozen=True)
class Contender:
    """A contender: a function that computes the output of a case, and its inputs.

    Attributes:
        run: gives the output `[batch, heads, length, dim]`.
        inputs: query, key and value that `run` reads, `[batch, heads, length, dim]` in its layout.
    """

    run: Run
    inputs: tuple[torch.Tensor, ...]

    def backward(self) -> Callable[[], Any]:
        """The backward pass alone, from a fixed gradient of the output."""
        return backward_of(self.run, self.inputs)


def backward_of(run: Run, inputs: tuple[torch.Tensor, ...]) -> Callable[[], Any]:
    """The backward pass of a function of `inputs`, from a fixed gradient of its output."""
    out = run()
    torch.manual_seed(1)
    values = torch.randn(out.shape, device=out.device).to(out.dtype)
    # In the layout of the output: a gradient in another layout would be copied at each call.
    gradient = torch.empty_like(out).copy_(values)
    return lambda: torch.autograd.grad(out, inputs, gradient, retain_graph=True)


def why_absent(module: str, install: str) -> str | None:
    """Why the module of a peer does not run here, None where it does."""
    try:
        importlib.import_module(module)
    except ModuleNotFoundError as problem:
        own = problem.name is not None and f"{module}.".startswith(f"{problem.name}.")
        return f"not installed (pip install '{install}')" if own else str(problem)
    except Exception as problem:
        return f"{type(problem).__name__}: {problem}".splitlines()[0]
    return None


def heads_inside(inputs: tuple[torch.Tensor, ...]) -> tuple[torch.Tensor, ...]:
    """Copies of inputs `[batch, heads, length, dim]` whose heads follow positions in memory."""
    return tuple(
        t.detach().transpose(1, 2).contiguous().transpose(1, 2).requires_grad_(t.requires_grad)
        for t in inputs
    )


_LONGEST_TABLE: Final = 8192  # a table of 256 MiB, which leaves room for a peer's table of blocks

Mod = Callable[..., Any]


@dataclass(frozen=True)
class Shape:
    """Sizes of query, key and value.

    Attributes:
        batch: number of sequences.
        heads: query heads.
        kv_heads: heads of keys and values, each shared by a group of query heads.
        length: number of queries, and of keys.
        dim: head dimension of queries and keys.
        value_dim: head dimension of values and of the output, None where it is `dim`.
    """

    batch: int
    heads: int
    kv_heads: int
    length: int
    dim: int
    value_dim: int | None = None

    @property
    def of_values(self) -> int:
        return self.dim if self.value_dim is None else self.value_dim

    def __str__(self) -> str:
        dims = self.dim if self.value_dim is None else f"{self.dim} and {self.value_dim}"
        return f"[{self.batch}, {self.heads} on {self.kv_heads}, {self.length}, {dims}]"


SHAPES: Final = {
    "D128": Shape(2, 16, 16, 8192, 128),
    "D64": Shape(2, 32, 32, 8192, 64),
    "GQA32k": Shape(1, 32, 8, 32768, 128),
}
FURTHER_SHAPES: Final = {
    "D256": Shape(2, 8, 8, 8192, 256),
    "D256 grouped": Shape(2, 8, 4, 8192, 256),
    "D192/128": Shape(2, 16, 16, 8192, 192, 128),
    "D160": Shape(2, 16, 16, 8192, 160),
    "D112": Shape(2, 16, 16, 8192, 112),
    "D96": Shape(2, 16, 16, 8192, 96),
    "D80": Shape(16, 16, 16, 1024, 80),
    "ViT": Shape(64, 12, 12, 197, 64),
    "short": Shape(32, 16, 16, 512, 128),
    "GQA16k": Shape(1, 32, 8, 16384, 128),
    "GQA64k": Shape(1, 16, 4, 65536, 128),
    "GQA64k D64": Shape(1, 16, 4, 65536, 64),
    "MHA64k": Shape(1, 8, 8, 65536, 128),
    "GQA4k": Shape(4, 32, 8, 4096, 128),
    "MQA8k": Shape(1, 8, 1, 8192, 128),
    "MQA8k D64": Shape(1, 8, 1, 8192, 64),
    "MQA32k": Shape(1, 8, 1, 32768, 128),
}
"""Measured where `--cases` names them: other head dimensions, short and long calls, and the one key
head that tensor parallelism leaves to a GPU."""


@dataclass(frozen=True)
class Case:
    """One row of the bench: our expression, and the same in the terms of the peers.

    Attributes:
        shape: shape of the inputs.
        expression: a mask or a score.
        mask_mod, score_mod: FlexAttention's functions; None is everything, and no bias.
        sdpa_causal: `is_causal` of `scaled_dot_product_attention`, None where it has no such mask.
        ids: ids of the documents, ascending; None where there are no documents.
        row: the name of the case without that of the shape.
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
    return _packed(torch.randint(low, high, (count,), generator=generator), length, device)


def log_normal_documents(length: int, device: str) -> torch.Tensor:
    """Ids of documents of log-normal lengths from a fixed seed: median 490, mean 1190."""
    drawn = torch.randn(length // 64 + 1, generator=torch.Generator().manual_seed(0))
    return _packed((490 * torch.exp(1.33 * drawn)).long().clamp(1), length, device)


def _packed(sizes: torch.Tensor, length: int, device: str) -> torch.Tensor:
    ids = torch.repeat_interleave(torch.arange(len(sizes)), sizes)[:length]
    return ids.to(device, torch.int32)


def blocks(length: int, device: str) -> torch.Tensor:
    """The blocks of 128 that a sparse pattern keeps: a tenth of all, and the diagonal."""
    side = -(-length // 128)
    chosen = torch.rand(side, side, generator=torch.Generator().manual_seed(0)) < 0.1
    return (chosen | torch.eye(side, dtype=torch.bool)).to(device)


def marked_tokens(length: int, device: str) -> torch.Tensor:
    """Eight tokens that all later ones see."""
    places = torch.randperm(length, generator=torch.Generator().manual_seed(0))[:8]
    marks = torch.zeros(length, dtype=torch.bool)
    marks[places] = True
    return marks.to(device)


def cases(device: str, shapes: Mapping[str, Shape] = SHAPES) -> dict[str, Case]:
    """The rows by name, such as "D128 causal"."""
    return {
        f"{name} {row}": replace(case, row=row)
        for name, shape in shapes.items()
        for row, case in rows(shape, device).items()
    }


def catalogue(device: str, named: Sequence[str] = ()) -> dict[str, Case]:
    """A row for each family of masks of the catalogue, such as "D64 drafts".

    FlexAttention gets the function that `to_mask_mod` writes.

    Args:
        device: of the masks' tensors.
        named: parts of names. Shapes other than D128 and D64 have rows if a part begins with their
            name, such as "MHA64k drafts".
    """
    every = SHAPES | FURTHER_SHAPES
    usual = {name: SHAPES[name] for name in ("D128", "D64")}
    wanted = {part.split()[0] for part in named if part.strip()} & set(every)
    return {
        f"{name} {family}": Case(shape, mask, mask.to_mask_mod())
        for name, shape in ({n: every[n] for n in every if n in wanted} or usual).items()
        if shape.length.bit_count() == 1 and shape.length >= SHORTEST
        for family, build in families(shape.length, device, shape.heads).items()
        for mask in (build().to(device),)
    }


def mask_of(case: Case) -> Mask:
    """The mask of a case, without its bias."""
    return Mask(case.expression.mask_node, SCORE, case.expression.label)


def rows(shape: Shape, device: str) -> dict[str, Case]:
    """The cases of one shape, by name, such as "causal"."""
    length = shape.length
    ids, short, long = (documents(length, mean, device) for mean in (1000, 256, 5000))
    mixed = log_normal_documents(length, device)
    filled = length - torch.arange(shape.batch, device=device) * length // (2 * shape.batch)
    slopes = torch.exp2(-8 * torch.arange(1, shape.heads + 1, device=device) / shape.heads)
    quarter = length // 4
    kept, marks = blocks(length, device), marked_tokens(length, device)

    def is_causal(b: Any, h: Any, q: Any, k: Any) -> Any:
        return q >= k

    def window(b: Any, h: Any, q: Any, k: Any) -> Any:
        return (q >= k) & (q - k < 1024)

    def within(of: torch.Tensor) -> Mod:
        def of_document(b: Any, h: Any, q: Any, k: Any) -> Any:
            return (q >= k) & (of[q] == of[k])

        return of_document

    def three(b: Any, h: Any, q: Any, k: Any) -> Any:
        return (q >= k) & (q - k < 1024) & (ids[q] == ids[k])

    def padded(b: Any, h: Any, q: Any, k: Any) -> Any:
        return (q >= k) & (q < filled[b]) & (k < filled[b])

    def wide_window(b: Any, h: Any, q: Any, k: Any) -> Any:
        return (q >= k) & (q - k < 4096)

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

    def capped_at_50(s: Any, b: Any, h: Any, q: Any, k: Any) -> Any:
        return 50 * torch.tanh(s / 50)

    def packed(of: torch.Tensor) -> Mask:
        return causal & document.from_lengths(torch.bincount(of).tolist(), device=device)

    bounded = causal & document(ids) & sliding(1024)
    return {
        "full": Case(shape, everything, sdpa_causal=False),
        "causal": Case(shape, causal, is_causal, sdpa_causal=True),
        "window": Case(shape, causal & sliding(1024), window),
        "window of 4096": Case(shape, causal & sliding(4096), wide_window),
        "document": Case(shape, causal & document(ids), within(ids), ids=ids),
        "document & window": Case(shape, bounded, three, ids=ids),
        "documents of 256": Case(shape, causal & document(short), within(short), ids=short),
        "documents of 5000": Case(shape, packed(long), within(long), ids=long),
        "log-normal documents": Case(shape, packed(mixed), within(mixed), ids=mixed),
        "padded": Case(shape, causal & padding(filled, queries=True), padded),
        "prefix": Case(shape, causal | prefix(quarter), prefixed),
        "sinks": Case(shape, causal & (sliding(1024) | prefix(4)), sinks),
        "global tokens": Case(shape, causal & (sliding(1024) | table(marks)[kv_idx]), marked),
        "block table": Case(shape, block_table(kept, 128), of_blocks),
        "alibi": Case(shape, causal + alibi(slopes), is_causal, biased),
        "window & alibi": Case(shape, causal & sliding(1024) + alibi(slopes), window, biased),
        "softcap": Case(shape, causal + softcap(30.0), is_causal, capped),
        "window & softcap": Case(
            shape, causal & sliding(4096) + softcap(50.0), wide_window, capped_at_50
        ),
        **(_canvases_and_buckets(shape, device) if length % _LONGEST_TABLE == 0 else {}),
        **(_tables_of_pairs(shape, device) if length <= _LONGEST_TABLE else {}),
    }


@lru_cache(maxsize=2)
def _tables(length: int, device: str) -> tuple[torch.Tensor, torch.Tensor]:
    """A mask that keeps half of all pairs, and a bias for each pair."""
    generator = torch.Generator(device).manual_seed(0)
    drawn = torch.randn(length, length, generator=generator, device=device, dtype=torch.bfloat16)
    return drawn > 0, drawn


def _tables_of_pairs(shape: Shape, device: str) -> dict[str, Case]:
    """Masks and biases that are given pair by pair, the same for all heads."""
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
    across = video[2] // 8  # tiles of 4 x 8 x 8 tokens; a column of the video has 4 of them
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
