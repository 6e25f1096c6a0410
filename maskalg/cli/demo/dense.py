"""The dense way, written by hand, for checks of the demo's result and comparisons.

Nothing here uses the package: the mask and the bias of the demo are spelled out in torch.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Final

import torch
from torch.nn.functional import scaled_dot_product_attention

# Rows of the matrix filled at once.
_ROWS_AT_ONCE: Final = 256


@dataclass(frozen=True, eq=False)
class Inputs:
    """Inputs of the demo, `[1, heads, tokens, head_dim]`, and the parts of its score.

    Attributes:
        ids: the document of each position, `[tokens]`.
        slopes: of ALiBi, `[heads]`, float32.
        window: of the sliding window.
    """

    query: torch.Tensor
    key: torch.Tensor
    value: torch.Tensor
    ids: torch.Tensor
    slopes: torch.Tensor
    window: int

    @property
    def tokens(self) -> int:
        return self.query.shape[2]

    @property
    def heads(self) -> int:
        return self.query.shape[1]


def reference(inputs: Inputs, start: int, end: int) -> torch.Tensor:
    """Attention of queries `start..end-1` in float64, `[1, heads, end - start, head_dim]`."""
    query, key, value = (
        tensor.to(torch.float64)
        for tensor in (inputs.query[:, :, start:end], inputs.key, inputs.value)
    )
    distance, kept = _distance_and_kept(inputs, (start, end), (0, inputs.tokens))
    scores = query @ key.mT / math.sqrt(query.shape[-1])
    scores += inputs.slopes.to(torch.float64)[:, None, None] * distance
    return scores.masked_fill_(~kept, float("-inf")).softmax(dim=-1) @ value


def matrix_bytes(inputs: Inputs) -> int:
    """Bytes of the dense matrix of one head."""
    return inputs.tokens**2 * inputs.query.element_size()


def distance_matrix(inputs: Inputs) -> torch.Tensor:
    """k - q where the mask keeps, -inf elsewhere, `[tokens, tokens]`: ALiBi of slope 1."""
    tokens, query = inputs.tokens, inputs.query
    dropped = float("-inf")
    matrix = torch.full((tokens, tokens), dropped, dtype=query.dtype, device=query.device)
    for start in range(0, tokens, _ROWS_AT_ONCE):
        rows = (start, min(start + _ROWS_AT_ONCE, tokens))
        columns = (max(0, start - inputs.window + 1), rows[1])
        distance, kept = _distance_and_kept(inputs, rows, columns)
        band = distance.to(query.dtype).masked_fill_(~kept, dropped)
        matrix[slice(*rows), slice(*columns)] = band
    return matrix


def sdpa_heads(inputs: Inputs) -> Iterator[Callable[[], torch.Tensor]]:
    """For each head its call of torch's SDPA with the dense matrix; `[1, 1, tokens, head_dim]`.

    One matrix serves all heads: it is rescaled in place from one slope to the next, so each call is
    valid only until the next one is made.
    """
    matrix = distance_matrix(inputs)
    scaled_by = 1.0
    for head, slope in enumerate(inputs.slopes.tolist()):
        matrix *= slope / scaled_by
        scaled_by = slope
        one = slice(head, head + 1)
        query, key, value = inputs.query[:, one], inputs.key[:, one], inputs.value[:, one]
        yield partial(scaled_dot_product_attention, query, key, value, attn_mask=matrix)


def _distance_and_kept(
    inputs: Inputs, rows: tuple[int, int], columns: tuple[int, int]
) -> tuple[torch.Tensor, torch.Tensor]:
    """k - q, and whether the mask keeps the pair, for half-open ranges of queries and keys."""
    q = torch.arange(*rows, dtype=torch.int32, device=inputs.query.device)[:, None]
    k = torch.arange(*columns, dtype=torch.int32, device=inputs.query.device)[None, :]
    same = inputs.ids[q] == inputs.ids[k]
    return k - q, (k <= q) & (q - k < inputs.window) & same
