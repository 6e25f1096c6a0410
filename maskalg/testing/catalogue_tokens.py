"""The part of the catalogue that tensors over tokens, patterns and other formats make up."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import numpy as np
import torch

from ..values import masks as atom
from ..values.algebra import Mask
from . import oracle_patterns as patterns
from . import oracle_tokens as tokens
from .case import BATCH, ENTRIES, HEADS, Bools, Case, matrix_of
from .oracle import causal, document, sliding

_random: Final = np.random.default_rng(21)


def _bits(*shape: int, share: float = 0.5) -> Any:
    return _random.random(shape) < share


def _tensor(array: Any) -> torch.Tensor:
    return torch.from_numpy(np.ascontiguousarray(array).copy())


def _case(mask: Mask, oracle: Callable[..., Bools], *args: Any, **options: Any) -> Case:
    return Case(mask, matrix_of(oracle, *args, **options), over_positions=True)


_IDS: Final = np.repeat(np.arange(7), (9, 5, 1, 14, 8, 16, 11))
_RECURRING: Final = _random.integers(0, 4, ENTRIES)
_DOCUMENTS: Final = np.array([-1, 0, 0, -1, 3, 4, 3])
_SPANS: Final = np.where(np.isin(_IDS, (1, 3, 5)), _IDS, -1)
_CUTS: Final = ((0, 9, 9, 12, 30, 41, 60), (0, 14, 17, 17, 25, 50, 58))
_FLAGS: Final = _bits(ENTRIES, share=0.08)
_PADDED: Final = np.stack([np.arange(ENTRIES) >= 11, np.arange(ENTRIES) < 17])
_KINDS: Final = _random.integers(0, 3, ENTRIES)
_ALLOWED: Final = np.array([[True, False, False], [True, True, False], [True, False, True]])
_RANK: Final = _random.permutation(ENTRIES)
_PROMPT: Final = 6


def _depth_first(count: int) -> list[int]:
    """Random parents numbered depth first: each is an ancestor of the node before, or it."""
    parents = [-1]
    for node in range(1, count):
        line = [node - 1]
        while parents[line[-1]] >= 0:
            line.append(parents[line[-1]])
        parents.append(int(_random.choice([*line, -1])))
    return parents


_ORDERED: Final = np.array([_depth_first(ENTRIES - _PROMPT)])[0]
_BY_LEVEL: Final = np.array([(node - 1) // 3 for node in range(ENTRIES - _PROMPT)])
_BY_LEVEL[0] = -1
_TREES: Final = np.stack([_ORDERED, _BY_LEVEL])
_STARTS: Final = np.array([0, 4, 4, 11, 19, 20, 33, 40, 50, 61, 62])
_MEDIUM: Final = 6
_BLOCKS: Final = _bits(BATCH, HEADS, 8, 11)
_COUNTS: Final = _random.integers(0, 5, (HEADS, 8))
_LISTS: Final = np.stack(
    [np.stack([_random.permutation(11) for _ in range(8)]) for _ in range(HEADS)]
)
_COLUMNS: Final = _bits(BATCH, HEADS, ENTRIES, share=0.1)
_DIAGONALS: Final = _bits(HEADS, ENTRIES, share=0.15)
_LTS: Final = _random.integers(0, ENTRIES + 1, (BATCH, HEADS, ENTRIES, 1))
_FOUR: Final = np.sort(_random.integers(0, ENTRIES + 1, (BATCH, 1, ENTRIES, 4)), axis=-1)
_SLICES: Final = (
    ((0, 9), (9, 20), (9, 20), (20, 31), (31, 40), (31, 40), (40, 64)),
    ((0, 12), (0, 9), (12, 30), (9, 31), (2, 8), (20, 40), (40, 47)),
    (0, 1, 2, 3, 3, 1, 1),
)


def _listed(counts: Any, lists: Any) -> Any:
    table = np.zeros((HEADS, 8, 11), np.bool_)
    for h, row in np.ndindex(HEADS, 8):
        table[h, row, lists[h, row, : counts[h, row]]] = True
    return table


def _window(w: Any) -> Case:
    return Case(atom.sliding(_tensor(w)), matrix_of(patterns.sliding_per_head, w))


def _table(table: Any, block: int | tuple[int, int]) -> Case:
    sides = block if isinstance(block, tuple) else (block, block)
    return _case(atom.block_table(_tensor(table), block), patterns.block_table, table, sides)


def _flashmask(indices: Any, is_causal: bool) -> Case:
    mask = atom.flashmask(_tensor(indices).int(), causal=is_causal)
    return _case(mask, patterns.flashmask, indices, is_causal)


def _slash(vertical: Any, slash: Any) -> Case:
    mask = atom.vertical_slash(_tensor(vertical), _tensor(slash))
    return _case(mask, patterns.vertical_slash, vertical, slash)


def _tree(parents: Any, prompt: int) -> Case:
    return _case(atom.tree(_tensor(parents), prompt), tokens.tree, parents, prompt)


def _restarted(mask: Mask, inner: Callable[[int, int], bool], ids: Any) -> Case:
    return _case(atom.per_document(mask, _tensor(ids)), tokens.per_document, inner, ids)


def _varlen(mask: Mask, inner: Callable[[int, int], bool]) -> Case:
    bounds = [torch.tensor(cut, dtype=torch.int32) for cut in _CUTS]
    built = atom.per_document.from_cu_seqlens(mask, *bounds, total=ENTRIES)
    return _case(built, tokens.varlen, inner, *_CUTS)


_causal: Final = Case(atom.causal, matrix_of(causal))
_spans: Final = _case(atom.spans(_tensor(_SPANS)), tokens.spans, _SPANS)
_global: Final = _case(atom.global_tokens(_tensor(_FLAGS)), tokens.global_tokens, _FLAGS)
_local: Final = Case(atom.sliding(4), matrix_of(sliding, 4))

TOKENS: Final[dict[str, Case]] = {
    "padding on either side": _case(
        atom.padding.from_mask(_tensor(_PADDED)), tokens.padding_mask, _PADDED
    ),
    "padding on either side, of queries": _case(
        atom.padding.from_mask(_tensor(_PADDED).int(), queries=True),
        tokens.padding_mask,
        _PADDED,
        queries=True,
    ),
    "padding on either side, of both": _case(
        atom.padding.from_mask(_tensor(_PADDED), queries=_tensor(_PADDED).flip(1)),
        tokens.padding_mask,
        _PADDED,
        queries=np.flip(_PADDED, 1),
    ),
    "sliding per head": _window(np.array([1, 4, 9])),
    "sliding per batch and head": _window(np.array([[2, 0, 5], [30, 1, 3]])),
    "causal sliding per head": _causal & _window(np.array([6, 2, 13])),
    "strided pattern": Case(atom.strided(5), matrix_of(patterns.strided, 5)),
    "strided pattern of every key": Case(atom.strided(1), matrix_of(patterns.strided, 1)),
    "prefix LM per document": _restarted(
        atom.causal | atom.prefix(3), lambda q, k: k <= q or k < 3, _IDS
    ),
    "chunks per document": _restarted(
        atom.causal & atom.chunked(4), lambda q, k: k <= q and q // 4 == k // 4, _IDS
    ),
    "prefix per document that recurs": _restarted(
        atom.prefix(4) | atom.sliding(2), lambda q, k: k < 4 or abs(q - k) < 2, _RECURRING
    ),
    "prefix per document per batch": _restarted(
        atom.prefix(2), lambda q, k: k < 2, np.stack([_IDS, _RECURRING])
    ),
    "causal per document, of other keys": _varlen(atom.causal, lambda q, k: k <= q),
    "window per document, of other keys": _varlen(
        atom.window(5, 1), lambda q, k: q - 5 <= k <= q + 1
    ),
    "prefix LM per document, of other keys": _varlen(
        atom.causal | atom.prefix(3), lambda q, k: k <= q or k < 3
    ),
    "documents of other keys": Case(
        atom.document.from_cu_seqlens(*map(torch.tensor, _CUTS), total=ENTRIES),
        matrix_of(tokens.varlen, lambda q, k: True, *_CUTS),
        over_positions=True,
    ),
    "shared prefix": _case(
        atom.shared_prefix(_tensor(_IDS), _tensor(_DOCUMENTS)),
        tokens.shared_prefix,
        _IDS,
        _DOCUMENTS,
    ),
    "shared prefix in any order": _case(
        atom.shared_prefix(_tensor(np.stack([_IDS, 6 - _IDS])), _tensor(_DOCUMENTS)),
        tokens.shared_prefix,
        np.stack([_IDS, 6 - _IDS]),
        _DOCUMENTS,
    ),
    "tree numbered depth first": _tree(_ORDERED, _PROMPT),
    "tree numbered by level": _tree(_BY_LEVEL, _PROMPT),
    "tree without a prompt": _tree(np.append(_BY_LEVEL, [-1] * _PROMPT), 0),
    "trees per batch": _tree(_TREES, _PROMPT),
    "tree after prompts per batch": _case(
        atom.tree(_tensor(_ORDERED), torch.tensor([_PROMPT, 50])),
        tokens.tree,
        np.append(_ORDERED, [-1] * 50),
        (_PROMPT, 50),
    ),
    "Longformer": _local | _global,
    "causal Longformer": _causal & (_local | _global),
    "global tokens per batch": _case(
        atom.global_tokens(_tensor(np.stack([_FLAGS, ~_FLAGS]))),
        tokens.global_tokens,
        np.stack([_FLAGS, ~_FLAGS]),
    ),
    "image spans": _spans,
    "Transfusion": _causal | _spans,
    "Transfusion in documents": (_causal | _spans)
    & _case(atom.document(_tensor(_IDS // 2)), document, _IDS // 2),
    "modality": _case(
        atom.modality(_tensor(_KINDS), _tensor(_ALLOWED)), tokens.modality, _KINDS, _ALLOWED
    ),
    "media before the text": _case(
        atom.media(_tensor(_STARTS), _MEDIUM), tokens.media, _STARTS, _MEDIUM
    ),
    "media with both ends": _case(
        atom.media(_tensor(_STARTS), _MEDIUM, _tensor(_STARTS + 9)),
        tokens.media,
        _STARTS,
        _MEDIUM,
        _STARTS + 9,
    ),
    "permutation": _case(atom.permutation(_tensor(_RANK)), tokens.permutation, _RANK),
    "permutation, query stream": _case(
        atom.permutation(_tensor(_RANK), strict=True), tokens.permutation, _RANK, strict=True
    ),
    "block table": _table(_BLOCKS[0, 0], (8, 6)),
    "block table per batch and head": _table(_BLOCKS, (8, 6)),
    "block table of numbers": _table(_random.integers(0, 3, (HEADS, 8, 8)), 8),
    "causal block table": _causal & _table(_BLOCKS[:, :1], (9, 6)),
    "block table from lists": _case(
        atom.block_table.from_kv_indices(
            _tensor(_LISTS), (8, 6), columns=11, kv_num_blocks=_tensor(_COUNTS)
        ),
        patterns.block_table,
        _listed(_COUNTS, _LISTS),
        (8, 6),
    ),
    "BigBird": _local | _global | _table(_bits(8, 8, share=0.2), 8),
    "block diffusion": Case(
        atom.block_diffusion(20, 4), matrix_of(patterns.block_diffusion, 20, 4)
    ),
    "block diffusion with a cut block": Case(
        atom.block_diffusion(17, 5), matrix_of(patterns.block_diffusion, 17, 5)
    ),
    "vertical and slash": _slash(_COLUMNS, _DIAGONALS),
    "vertical and slash for all heads": _slash(_COLUMNS[0, 0], _DIAGONALS[0]),
    "FlashMask, causal from a row on": _flashmask(_LTS, True),
    "FlashMask, causal between rows": _flashmask(_FOUR[..., 1:3], True),
    "FlashMask, from below and above": _flashmask(_FOUR[..., 2:0:-1], False),
    "FlashMask, two ranges": _flashmask(_FOUR[..., (2, 3, 0, 1)], False),
    "attention slices": _case(atom.attention_slices(*_SLICES), patterns.attention_slices, *_SLICES),
}
