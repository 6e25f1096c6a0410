"""A mask next to the oracle's matrix of it; both compose with the same operators."""

from __future__ import annotations

import operator
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import torch

from ..values import by_hand, choice
from ..values.algebra import Mask
from ..values.by_hand import Bools, Ints
from .assertions import describe, function_matrix

BATCH: Final = by_hand.BATCH_SIZE
"""Batch entries of the cases that strategies draw."""

HEADS: Final = by_hand.HEADS
"""Heads of the cases that strategies draw."""

Matrix = Callable[[int, int, int, int], Bools]  # of q_len, kv_len, q_shift, kv_shift


@dataclass(frozen=True, eq=False)
class Case:
    """A mask, and the oracle's matrix of the pairs that it must keep.

    Attributes:
        mask: built from the package.
        matrix: the same mask at `(q_len, kv_len, q_shift, kv_shift)`, as a Boolean matrix that
            broadcasts to `[BATCH, HEADS, q_len, kv_len]`.
        over_positions: whether it reads tensors at positions, which must not become negative.
    """

    mask: Mask
    matrix: Matrix
    over_positions: bool = False

    @classmethod
    def of(cls, mask: Mask, mask_mod: Callable[..., Any]) -> Case:
        """A mask of your own, and the pairs it must keep as `mask_mod(b, h, q_idx, kv_idx)`."""
        reads_tensors = any(isinstance(v, torch.Tensor) for v in mask.parameters.values())
        return cls(mask, lambda *at: function_matrix(mask_mod, BATCH, HEADS, *at), reads_tensors)

    @classmethod
    def by_hand(cls, mask: Mask, function: Callable[..., Bools]) -> Case:
        """A mask, and its second definition in the oracle with its arguments filled in."""
        reads = [node for node in mask.mask_node.walk() if node.op == "read"]
        places = set().union(*[arg.indices() for node in reads for arg in node.args])
        return cls(mask, matrix_of(function), bool(places & {"q_idx", "kv_idx"}))

    def dense(self, q_len: int, kv_len: int) -> Bools:
        """The oracle's matrix of `q_len` queries and `kv_len` keys."""
        return self.matrix(q_len, kv_len, 0, 0)

    def __repr__(self) -> str:
        return f"Case({describe(self.mask)})"

    def _repr_pretty_(self, printer: Any, cycle: bool) -> None:
        """How hypothesis prints a failing case."""
        printer.text(repr(self))

    def __and__(self, other: Case) -> Case:
        return self._with(other, operator.and_)

    def __or__(self, other: Case) -> Case:
        return self._with(other, operator.or_)

    def __xor__(self, other: Case) -> Case:
        return self._with(other, operator.xor)

    def _with(self, other: Case, operation: Callable[[Any, Any], Any]) -> Case:
        return Case(
            operation(self.mask, other.mask),
            lambda *at: operation(self.matrix(*at), other.matrix(*at)),
            self.over_positions or other.over_positions,
        )

    def __invert__(self) -> Case:
        return Case(~self.mask, lambda *at: ~self.matrix(*at), self.over_positions)

    def shift(self, q: int = 0, kv: int = 0, *, as_tensor: bool = False) -> Case:
        """The case moved by numbers, or with `as_tensor` by 0-d tensors."""
        moves: dict[str, Any] = {"q": q, "kv": kv}
        if as_tensor:
            moves = {name: torch.tensor(move) for name, move in moves.items() if move}
        return Case(
            self.mask.shift(**moves),
            lambda q_len, kv_len, q_shift, kv_shift: self.matrix(
                q_len, kv_len, q_shift + q, kv_shift + kv
            ),
            self.over_positions,
        )

    def at(self, q: list[int], kv: list[int]) -> Case:
        """The case with query i at position `q[i]`, and key j at `kv[j]`; each below `LONGEST`."""

        def matrix(q_len: int, kv_len: int, q_shift: int, kv_shift: int) -> Bools:
            rows = np.asarray([q[i + q_shift] for i in range(q_len)], dtype=np.int64)
            columns = np.asarray([kv[j + kv_shift] for j in range(kv_len)], dtype=np.int64)
            of_all = self.matrix(by_hand.LONGEST, by_hand.LONGEST, 0, 0)
            whole = np.broadcast_to(of_all, (*of_all.shape[:2], by_hand.LONGEST, by_hand.LONGEST))
            inside = (rows >= 0)[:, None] & (columns >= 0)
            found: Bools = whole[:, :, rows[:, None].clip(0), columns.clip(0)] & inside
            return found

        return Case(self.mask.at(q=torch.tensor(q), kv=torch.tensor(kv)), matrix, True)

    def shift_each(self, moves: list[int]) -> Case:
        """The case with the queries of batch entry b moved by `moves[b]`."""

        def matrix(q_len: int, kv_len: int, q_shift: int, kv_shift: int) -> Bools:
            parts = [self.matrix(q_len, kv_len, q_shift + move, kv_shift) for move in moves]
            return np.stack([part[min(b, len(part) - 1)] for b, part in enumerate(parts)])

        return Case(self.mask.shift(q=torch.tensor(moves)), matrix, self.over_positions)


def where(condition: Case, then: Case, otherwise: Case) -> Case:
    """`maskalg.where` of three cases."""
    return Case(
        choice.where(condition.mask, then.mask, otherwise.mask),
        lambda *at: np.where(condition.matrix(*at), then.matrix(*at), otherwise.matrix(*at)),
        any(case.over_positions for case in (condition, then, otherwise)),
    )


def matrix_of(function: Callable[..., Bools], *args: Any, **options: Any) -> Matrix:
    """A mask function of the oracle with its arguments, as a matrix of lengths and shifts."""
    return lambda q_len, kv_len, q_shift, kv_shift: function(
        *args, q_len=q_len, kv_len=kv_len, q_shift=q_shift, kv_shift=kv_shift, **options
    )


def grid(q_len: int, kv_len: int, q_shift: int, kv_shift: int) -> tuple[Ints, Ints, Ints, Ints]:
    """Query, key, batch and head index of every element, broadcastable against each other."""
    return (
        (np.arange(q_len) + q_shift).reshape(1, 1, -1, 1),
        (np.arange(kv_len) + kv_shift).reshape(1, 1, 1, -1),
        np.arange(BATCH).reshape(-1, 1, 1, 1),
        np.arange(HEADS).reshape(1, -1, 1, 1),
    )
