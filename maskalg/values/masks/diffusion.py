"""Training masks of block diffusion."""

from __future__ import annotations

from ...formula import nodes
from ...formula.nodes import SCORE, K, Q
from ...formula.printing import called
from ..algebra import Mask
from ..arguments import integer, shown
from ..by_hand import Bools, MaskRows, pairs, row

__all__ = ["block_diffusion"]


def block_diffusion(length: int, block: int) -> Mask:
    """Noisy tokens at 0 … length - 1, the clean ones at length … 2 * length - 1, in blocks.

    A noisy query keeps the noisy keys of its own block and the clean keys of earlier blocks. A
    clean query keeps the clean keys of its own and of earlier blocks (block-causal), and no noisy
    keys.

    Args:
        length: tokens of one half, >= 1.
        block: tokens of a block, >= 1; blocks count from the start of each half.

    Source: BD3-LM (Arriola et al., 2025).
    """
    call = f"block_diffusion({shown(length)}, {shown(block)})"
    n, printed_length = integer(call, "length", length, low=1)
    c, printed_block = integer(call, "block", block, low=1)
    noisy_q, noisy_k = nodes.floordiv(Q, c), nodes.floordiv(K, c)
    clean_q, clean_k = (nodes.floordiv(nodes.subtract(i, n), c) for i in (Q, K))
    is_noisy_q, is_noisy_k = nodes.gt(n, Q), nodes.gt(n, K)
    is_clean_q, is_clean_k = nodes.ge(Q, n), nodes.ge(K, n)
    node = nodes.disjunction(
        nodes.conjunction(is_noisy_q, is_noisy_k, nodes.eq(noisy_q, noisy_k)),
        nodes.conjunction(is_noisy_q, is_clean_k, nodes.gt(noisy_q, clean_k)),
        nodes.conjunction(is_clean_q, is_clean_k, nodes.ge(clean_q, clean_k)),
    )
    return Mask(node, SCORE, called("block_diffusion", printed_length, printed_block))


# The second definition, and the rows of the catalogue.


def block_diffusion_by_hand(n: int, c: int, **at: int) -> Bools:
    """A half of noisy tokens beside a half of clean ones, in blocks of `c`."""

    def keep(b: int, h: int, q: int, k: int) -> bool:
        q_block, k_block = (q if q < n else q - n) // c, (k if k < n else k - n) // c
        if q < n:
            return q_block == k_block if k < n else k_block < q_block
        return False if k < n else k_block <= q_block

    return pairs(keep, **at)


def rows() -> MaskRows:
    return {
        "block diffusion": row(block_diffusion, block_diffusion_by_hand, 20, 4),
        "block diffusion with a cut block": row(block_diffusion, block_diffusion_by_hand, 17, 5),
    }
