"""Masks, biases and scores: values composed with `&`, `|`, `^`, `~`, `+`, `@`.

`Mask & | ^ ~` keep sets of (query, key) pairs; `Mask + Bias` is a `Score`; biases add with `+` and
nest with `@`. Python binds `+` tighter than `&`, so `a & b + bias` is `a & (b + bias)`; `Mask &
Score` is defined so that both spellings mean the same.

Operators that are always an error have no types: a type checker refuses them, and at run time the
error says what to write.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Literal, NoReturn, TypeGuard, overload

import numpy as np
import torch

from .. import errors
from ..engine.extents import Lengths
from ..formula import nodes
from ..formula.entries import is_listed
from ..formula.expression import Expression, both, complement, either, exclusive
from ..formula.nodes import SCORE, TRUE, Node, added, composed, joined
from ..formula.parameters import Scalar, no_nan, plain_number, whole_number
from ..formula.printing import Label, named
from ..formula.watched import asked
from . import messages
from .drawn import Drawn, WithMask, not_joined
from .helped import helped
from .messages import raised, refusing

if TYPE_CHECKING:
    from ..export.cudnn import CudnnEndpoints
    from ..export.flashinfer import FlashInferBits, FlashInferBlocks, FlashInferVariable
    from ..export.vllm import VllmMask, VllmRanges
    from ..proof.proof import Proof
    from ..questions.cost import Cost
    from ..questions.rows import Bandwidth, KeptRuns
    from ..questions.search import Place
    from ..schedule.block_map import BlockMap, Segments

__all__ = ["Bias", "Mask", "Score"]


def _is_number(value: object) -> TypeGuard[int | float]:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def _no_bias(what: object, sign: str, other: object) -> errors.MaskTypeError | None:
    """The error for an operand that was meant as a bias; None for foreign types."""
    if sign in "+-" and _is_number(plain_number(other)):
        return errors.MaskTypeError(
            f"`{what!r} {sign} {other!r}`: a number that is added to each score is a bias. Write "
            f"`ma.bias({other!r})`; a softmax is the same without it."
        )
    if sign == "@" and _is_number(plain_number(other)):
        return errors.MaskTypeError(
            f"`{what!r} @ {other!r}`: `@` applies a bias to the result of another bias or score. "
            "Write `bias * number` for a multiple of what a bias adds."
        )
    if isinstance(other, (bool, np.bool_)):
        return errors.MaskTypeError(
            f"`{what!r} {sign} {other}`: {other} is no bias. Write `ma.bias({int(other)})` for a "
            "number that is added to each score."
        )
    if is_listed(other):
        return messages.tensor_for_bias(what, sign, other)
    if errors.instead(other):
        return messages.stranger_for_bias(what, sign, other)
    return None


def _no_factor(bias: Bias, factor: object) -> errors.MaskTypeError | None:
    """The error for a factor that is a number for each head or position."""
    if is_listed(factor) or isinstance(factor, (Expression, str, bool, np.bool_)):
        return errors.MaskTypeError(
            f"`{bias!r} * {type(factor).__name__}`: a bias takes a number as its factor. Write "
            "`ma.bias(ma.table(tensor)[head] * (kv_idx - q_idx))` for one of each head, "
            "`ma.where(condition, bias, 0)` for a bias of some pairs only."
        )
    return None


def _no_difference(left: object, sign: str, right: object) -> errors.MaskTypeError | None:
    """The error for `-` where `a & ~b` or `a + (-b)` is meant."""
    if isinstance(right, (Mask, Score)):
        return errors.MaskTypeError(
            f"`{left!r} - {right!r}` subtracts a mask. Write `a & ~b` for what a keeps and b does "
            "not."
        )
    if isinstance(right, Bias):
        return errors.MaskTypeError(
            f"`{left!r} - {right!r}` subtracts a bias from a mask. Write `mask + (-bias)`."
        )
    return _no_bias(left, sign, right)


class Mask(WithMask):
    """Which (query, key) pairs are kept, as a formula over `batch, head, q_idx, kv_idx`.

    `operands` are the masks joined by its `&`, `|`, `^` or `~`; a mask that was bound, shifted,
    moved or pickled has none.
    """

    kind = "mask"

    if not TYPE_CHECKING:  # type checkers report missing operators themselves
        __sub__, __radd__ = refusing(_no_difference, "-")[0], refusing(_no_bias, "+")[0]

    @overload
    def __and__(self, other: Mask) -> Mask: ...
    @overload
    def __and__(self, other: Score) -> Score: ...
    def __and__(self, other: object) -> Mask | Score:
        if isinstance(other, Mask):
            return both(self, other)
        if isinstance(other, Score):
            return _combined(self, other)
        return raised(not_joined(self, "&", other))

    def __or__(self, other: Mask) -> Mask:
        return (
            either(self, other) if isinstance(other, Mask) else raised(not_joined(self, "|", other))
        )

    def __xor__(self, other: Mask) -> Mask:
        return (
            exclusive(self, other)
            if isinstance(other, Mask)
            else raised(not_joined(self, "^", other))
        )

    def __invert__(self) -> Mask:
        return complement(self)

    def complement(self) -> Mask:
        """`~mask`, for compiled functions: torch.compile does not follow `~` (torch 2.13)."""
        return self.__invert__()

    def __add__(self, other: Bias | Score) -> Score:
        if isinstance(other, Bias):
            label = Label("+", (self.label, other.label))
            return Score(self.mask_node, other.bias_node, label)
        if isinstance(other, Score):  # such as ma.score of a function that returns -inf
            return _combined(self, other)
        if isinstance(other, Mask):
            raise errors.MaskTypeError(
                f"`{self!r} + {other!r}` adds two masks. Write `a & b` for what both keep or `a | "
                "b` for what either keeps; `+` is for a bias."
            )
        return raised(_no_bias(self, "+", other))

    @asked
    def prove(self) -> Proof:
        """The closed forms of the empty and the full blocks, for all values of the parameters."""
        from ..proof.proof import prove

        return prove(self)

    @asked
    def blocks(
        self,
        q_len: int,
        kv_len: int | None = None,
        *,
        block: int | tuple[int, int] = 128,
        batch: int | None = None,
        heads: int | None = None,
    ) -> BlockMap:
        """The label of each block of the attention matrix, equal to dense evaluation.

        Blocks that the proof leaves open are evaluated; `segments` leaves them PARTIAL.

        Args:
            q_len: number of queries.
            kv_len: number of keys; `None` means `q_len`.
            block: side of a block, or `(block_q, block_kv)`. The last row and column of blocks
                may be cut by the length; a block is full when every element in range is kept.
            batch: batch size, where the mask depends on it; inferred from bound tensors.
            heads: number of heads, likewise; required when the formula computes with `head`.

        Returns:
            A `BlockMap` with `labels` uint8 `[batch, heads, rows, columns]`, EMPTY=0, PARTIAL=1,
            FULL=2, size 1 where the mask does not depend on batch or head.

        Examples:
            >>> (causal & sliding(4)).blocks(8, block=2).labels[0, 0].tolist()
            [[1, 0, 0, 0], [2, 1, 0, 0], [1, 2, 1, 0], [0, 1, 2, 1]]
        """
        from ..schedule.block_map import blocks

        return blocks(self, Lengths(q_len, kv_len, batch, heads), block)

    @asked
    def segments(
        self,
        q_len: int,
        kv_len: int | None = None,
        *,
        block: int | tuple[int, int] = 128,
        batch: int | None = None,
        heads: int | None = None,
    ) -> Segments:
        """The ranges of key tiles that each tile of queries visits.

        Takes the arguments of `blocks`. Time and memory grow with the rows, not with the blocks.
        No element is evaluated: a tile that the proof leaves open is PARTIAL here, and `blocks`
        may call it EMPTY or FULL.

        Returns:
            `Segments` with int32 arrays `row_start`, `first`, `end`, `label`: compressed rows,
            disjoint and in order, without padding.
        """
        from ..schedule.block_map import segments

        return segments(self, Lengths(q_len, kv_len, batch, heads), block)

    @asked
    def is_empty(
        self,
        q_len: int | None = None,
        kv_len: int | None = None,
        *,
        batch: int | None = None,
        heads: int | None = None,
        for_all: bool = False,
    ) -> bool | None:
        """Whether no pair is kept: True, False, or None if neither was proved.

        Without lengths the question ranges over every position from 0 on that bound tensors hold;
        `ma.implies` describes the arguments, `for_all` among them.
        """
        from ..questions.decide import empty

        return empty(self, Lengths(q_len, kv_len, batch, heads), for_all=for_all)

    @asked
    def witness(
        self,
        other: Mask,
        q_len: int | None = None,
        kv_len: int | None = None,
        *,
        batch: int | None = None,
        heads: int | None = None,
    ) -> Place | None:
        """A pair `(batch, head, q_idx, kv_idx)` that exactly one of this mask and `other` keeps.

        None if no such pair was found; `ma.equivalent` proves that there is none. Without lengths,
        small positions and positions near the numbers of the formulas are tried.
        """
        from ..questions.decide import witness

        return witness(self, other, Lengths(q_len, kv_len, batch, heads))

    @asked
    def cost(
        self,
        q_len: int,
        kv_len: int | None = None,
        *,
        block: int | tuple[int, int] = 128,
        batch: int | None = None,
        heads: int | None = None,
    ) -> Cost:
        """Kept elements, blocks by label and operations of attention under the mask.

        Takes the arguments of `blocks`, and counts all batch entries and heads. Kept elements are
        counted from intervals, boxes or clauses of the mask, and evaluated piece by piece only if
        none of these decides. More than 1,048,576 blocks are labelled only if intervals decide
        them; otherwise they are counted as `segments` labels them, and `Cost.labelled` says so.

        Raises:
            MaskValueError: more elements to evaluate than a minute or two allows.
        """
        from ..questions.cost import cost

        return cost(self, Lengths(q_len, kv_len, batch, heads), block)

    def bandwidth(self) -> Bandwidth:
        """The smallest band around the diagonal that holds every kept pair, at all positions.

        Returns:
            `Bandwidth(left, right)` with `-left <= kv_idx - q_idx <= right` for each kept pair;
            None on a side where no limit was proved. An empty mask has the band (0, 0).
        """
        from ..questions.rows import bandwidth

        return bandwidth(self)

    @asked
    def rows_have_a_key(
        self,
        q_len: int,
        kv_len: int | None = None,
        *,
        batch: int | None = None,
        heads: int | None = None,
    ) -> bool | None:
        """Whether each query keeps at least one key, in every batch entry and head.

        A query without a key has output 0. None if the closed forms leave too many elements open to
        evaluate them (2**28). Takes the arguments of `blocks`.
        """
        from ..questions.rows import rows_have_a_key

        return rows_have_a_key(self, Lengths(q_len, kv_len, batch, heads))

    def simplify(self) -> Mask:
        """An equivalent mask without superfluous parts.

        Equivalent for the values bound now, at every position that bound tensors hold. The mask
        itself is returned if no part could be left out.

            >>> (causal & (sliding(4) | ~causal) & sliding(9)).simplify()
            causal & sliding(4)
        """
        from ..questions.simplify import Simplifier

        return Simplifier(everything, nothing).simplified(self)

    @asked
    def to_dense(
        self,
        q_len: int,
        kv_len: int | None = None,
        *,
        batch: int | None = None,
        heads: int | None = None,
    ) -> torch.Tensor:
        """The Boolean matrix `[batch, heads, q_len, kv_len]`, True where kept: the oracle.

        Batch and heads have size 1 where the mask does not depend on them.
        """
        from ..engine.dense import to_dense

        return to_dense(self, Lengths(q_len, kv_len, batch, heads))

    def to_mask_mod(
        self,
        q_len: int | None = None,
        kv_len: int | None = None,
        *,
        form: Literal["formula", "intervals"] = "formula",
        most: int = 8,
        batch: int | None = None,
        heads: int | None = None,
    ) -> Callable[..., torch.Tensor]:
        """The mask as FlexAttention's `mask_mod(b, h, q_idx, kv_idx)`, with the values bound now.

        Args:
            q_len: number of queries; for intervals only.
            kv_len: number of keys; None means `q_len`.
            form: "formula" writes the formula of the mask. "intervals" writes the same mask as a
                few intervals of keys for each query, read from tensors: for kernels that take
                nothing else, such as torch's FLASH backend, which rejects `doc[q] == doc[k]`.
            most: the most intervals of a query; torch's FLASH backend takes 8.
            batch: batch size, as in `blocks`; for intervals only.
            heads: number of heads, as in `blocks`; for intervals only.

        Raises:
            MaskValueError: more intervals than `most`, or, if the proof gives no intervals, too
                many elements to evaluate.

        Examples:
            >>> mask_mod = (causal & document([0, 0, 1, 1])).to_mask_mod(4, form="intervals")
        """
        if form == "intervals":
            from ..export.flex_functions import interval_function

            if q_len is None:
                raise errors.MaskValueError(
                    'to_mask_mod(form="intervals"): intervals of keys depend on the lengths. Write '
                    'mask.to_mask_mod(q_len, form="intervals"), or to_mask_mod(q_len, kv_len, …).'
                )
            lengths = Lengths(q_len, kv_len, batch, heads)
            most = whole_number("to_mask_mod", "most", plain_number(most), 1)
            return interval_function(self._key_intervals(lengths, most))
        if form != "formula":
            raise messages.unknown_form("to_mask_mod", form, ("formula", "intervals"))
        from ..export.flex_functions import flex_function

        return flex_function(self)

    @asked
    def to_cudnn(
        self,
        q_len: int,
        kv_len: int | None = None,
        *,
        batch: int | None = None,
        heads: int | None = None,
    ) -> CudnnEndpoints:
        """The mask as row endpoints of `cudnn.flex_attention`: intervals of keys for each query.

        `create_mask_plan(found.mask_func, q, k, v)` takes them. `found.to_dense()` reads them back.

        Args:
            q_len: number of queries.
            kv_len: number of keys; None means `q_len`.
            batch: batch size; by default that of the mask's tensors, or 1.
            heads: number of query heads; needed if the mask computes with `head` and no tensor
                gives their number.

        Raises:
            MaskValueError: too many elements to evaluate, if the proof gives no intervals.

        Examples:
            >>> (causal & document([0, 0, 1, 1])).to_cudnn(4).mask_func.tolist()
            [[[1, 2, 0, 0], [1, 2, 2, 2], [1, 2, 3, 4]]]

        Source: nvidia-cudnn-frontend 1.32, `cudnn.flex_attention`.
        """
        from ..export.cudnn import to_cudnn

        found = self._key_intervals(Lengths(q_len, kv_len, batch, heads), None)
        return to_cudnn(found, batch or found.shape[1], q_len if kv_len is None else kv_len)

    @asked
    def to_flashinfer(
        self,
        q_len: int,
        kv_len: int | None = None,
        *,
        form: Literal["blocks", "variable", "bits"] = "blocks",
        block: int | tuple[int, int] = 64,
        batch: int | None = None,
        heads: int | None = None,
    ) -> FlashInferBlocks | FlashInferVariable | FlashInferBits:
        """The mask in one of FlashInfer's formats, with fields named as its arguments.

        `found.to_dense()` reads them back; for bits, `found.to_dense(q_len, kv_len)`.

        Args:
            q_len: number of queries.
            kv_len: number of keys; None means `q_len`.
            form: "blocks" lists the blocks that are not empty, with the elements of each, for
                `BlockSparseAttentionWrapper.plan(**found._asdict(), …)`. "variable" lists blocks
                of any size that are kept whole or not at all, for
                `VariableBlockSparseAttentionWrapper.plan`. "bits" packs all elements as bits, for
                `packed_custom_mask` of its prefill functions.
            block: side of a block, or `(block_q, block_kv)`; for "blocks" only.
            batch: batch size, for "bits" only; each entry has its own bits.
            heads: number of key heads, for "variable" only; each is listed.

        Raises:
            MaskValueError: a mask that differs between batch entries or heads where the format has
                one mask; a number of keys that the block does not divide; too many blocks or
                elements to list.

        Source: FlashInfer 0.7, `flashinfer.sparse` and `flashinfer.prefill`.
        """
        from ..export import flashinfer
        from ..export.elements import refuse_untold

        if form == "blocks":
            refuse_untold("to_flashinfer", self, "batch", "head")
            return self.blocks(q_len, kv_len, block=block).to_flashinfer()
        if form == "variable":
            refuse_untold("to_flashinfer", self, "batch")
            intervals = self._key_intervals(Lengths(q_len, kv_len, None, heads), None)
            keys = q_len if kv_len is None else kv_len
            return flashinfer.to_variable(self, intervals, keys, heads)
        if form == "bits":
            return flashinfer.to_bits(self, Lengths(q_len, kv_len, batch))
        raise messages.unknown_form("to_flashinfer", form, ("blocks", "variable", "bits"))

    @asked
    def to_vllm(
        self,
        length: int,
        *,
        form: Literal["function", "ranges"] = "function",
        block_size: int = 16,
        batch: int | None = None,
    ) -> VllmMask | VllmRanges:
        """The mask as vLLM's FlexAttention backend takes it: over the positions of one request.

        Args:
            length: the most positions of a request, such as `max_model_len`.
            form: "function" is a `logical_mask_mod` and the function of a `BlockSparsityHint`, for
                causal masks. "ranges" is `mm_prefix_range` of `causal | spans(ids)`, by request.
            block_size: positions of a block of vLLM's cache; for "function" only.
            batch: number of requests, for "ranges" only; by default that of the mask's tensors.

        Raises:
            MaskValueError: a mask that keeps keys after the query, or, for "ranges", one that is
                not `causal` outside the ranges; one that differs between batch entries or heads.

        Source: vLLM 0.33, `vllm.v1.attention.backends.flex_attention`.
        """
        from ..export import vllm
        from ..export.elements import refuse_untold

        refuse_untold("to_vllm", self, "head", *["batch"] * (form == "function"))
        if form == "ranges":
            intervals = self._key_intervals(Lengths(length, length, batch), None)
            return vllm.to_ranges(self, intervals, length, batch)
        if form != "function":
            raise messages.unknown_form("to_vllm", form, ("function", "ranges"))
        after = nodes.conjunction(self.mask_node, nodes.gt(nodes.K, nodes.Q))
        if not Mask(after, SCORE, self.label).is_empty(length):
            raise errors.MaskValueError(
                f"to_vllm: vLLM computes a prompt in parts, and a query of {self} may keep keys "
                f"after it, which are not there yet. Write (mask & causal).to_vllm({length}), or "
                f'to_vllm({length}, form="ranges") for `causal | spans(ids)`.'
            )
        block_size = whole_number("to_vllm", "block_size", plain_number(block_size), 1)
        found = self.segments(length, block=block_size)
        return vllm.to_vllm(
            self, found.shape, (found.row_start, found.first, found.end), block_size, length
        )

    def _kept_runs(self, lengths: Lengths, by_key: bool = False) -> KeptRuns:
        """For exports: the intervals of keys each query keeps, or of queries that keep each key."""
        from ..questions.rows import kept_runs

        return kept_runs(self, lengths, by_key)

    def _key_intervals(self, lengths: Lengths, most: int | None) -> torch.Tensor:
        from ..questions.rows import key_intervals

        return key_intervals(self, lengths, most)


class Bias(Drawn):
    """A change of scores: a function f(s) of the scaled score s, and of the indices.

    `f + g` is f(s) + g(s) - s, so additive biases add in any order; `f @ g` is f(g(s)).
    """

    kind = "bias"

    @overload
    def __add__(self, other: Bias | float) -> Bias: ...
    @overload
    def __add__(self, other: Mask | Score) -> Score: ...
    def __add__(self, other: object) -> Bias | Score:
        if isinstance(other, Bias):
            node = joined(self.bias_node, other.bias_node)
            return Bias(TRUE, node, Label("+", (self.label, other.label)))
        if isinstance(other, (Mask, Score)):
            return other + self
        other = plain_number(other)
        if _is_number(other):
            return self if other == 0 else self + constant(other)
        return raised(_no_bias(self, "+", other))

    def __radd__(self, other: float) -> Bias:
        if _is_number(plain_number(other)):
            return self + other
        return raised(_no_bias(self, "+", other))

    def __sub__(self, other: Bias | float) -> Bias:
        if isinstance(other, Bias) or _is_number(plain_number(other)):
            return self + (-other)
        return raised(_no_difference(self, "-", other))

    def __rsub__(self, other: float) -> Bias:
        if _is_number(plain_number(other)):
            return -self + other
        return raised(_no_bias(self, "-", other))

    def to_score_mod(self) -> Callable[..., torch.Tensor]:
        """The bias as FlexAttention's `score_mod(score, b, h, q_idx, kv_idx)`, with its values."""
        from ..export.flex_functions import flex_function

        return flex_function(self)

    def __neg__(self) -> Bias:
        return self * -1

    def __mul__(self, other: float) -> Bias:
        other = plain_number(other)
        if not _is_number(other):
            return raised(_no_factor(self, other))
        no_nan("bias * number", other)
        amount = Scalar("factor", float(other))
        rest = nodes.mul(nodes.scalar(amount), added(self.bias_node))
        return Bias(TRUE, nodes.add(SCORE, rest), Label("*", (amount, self.label)))

    __rmul__ = __mul__

    def __truediv__(self, other: float) -> Bias:
        other = plain_number(other)
        if not _is_number(other):
            return raised(_no_factor(self, other))
        if other == 0:
            raise messages.divided_by_zero(self)
        return self * (1 / other)

    @overload
    def __matmul__(self, other: Bias) -> Bias: ...
    @overload
    def __matmul__(self, other: Score) -> Score: ...
    def __matmul__(self, other: object) -> Bias | Score:
        if not isinstance(other, (Bias, Score)):
            return raised(_no_bias(self, "@", other))
        node = composed(self.bias_node, other.bias_node)
        label = Label("@", (self.label, other.label))
        if isinstance(other, Bias):
            return Bias(TRUE, node, label)
        return Score(other.mask_node, node, label)

    @overload
    def of(self, inner: Bias) -> Bias: ...
    @overload
    def of(self, inner: Score) -> Score: ...
    def of(self, inner: Bias | Score) -> Bias | Score:
        """`self @ inner`, for compiled functions: torch.compile does not follow `@` (torch 2.13).

        Raises:
            TypeError: `inner` is neither a bias nor a score.
        """
        if not isinstance(inner, (Bias, Score)):
            raise errors.MaskTypeError(
                f"({self!r}).of({inner!r}) takes the bias or score inside, got "
                f"{type(inner).__name__}. Write `softcap(30).of(alibi(slopes))` for `softcap(30) @ "
                "alibi(slopes)`."
            )
        return self.__matmul__(inner)

    def __invert__(self) -> NoReturn:
        raise messages.not_of_bias(self)


class Score(WithMask):
    """A mask and a bias: everything attention does to its scores before the softmax."""

    kind = "score"

    if not TYPE_CHECKING:  # type checkers report missing operators themselves
        __sub__, __radd__ = refusing(_no_difference, "-")[0], refusing(_no_bias, "+")[0]

    def to_score_mod(self) -> Callable[..., torch.Tensor]:
        """The score as FlexAttention's `score_mod(score, b, h, q_idx, kv_idx)`: -inf where dropped.

        FlexAttention skips blocks by the mask alone: give it `score.mask.to_mask_mod()` too.
        """
        from ..export.flex_functions import flex_function

        return flex_function(self)

    @asked
    def to_dense(
        self,
        q_len: int,
        kv_len: int | None = None,
        *,
        batch: int | None = None,
        heads: int | None = None,
    ) -> torch.Tensor:
        """The bias added to each score, float32 `[batch, heads, q_len, kv_len]`; -inf drops.

        Batch and heads have size 1 where the score does not depend on them. The result can be the
        `attn_mask` of `scaled_dot_product_attention`.

        Raises:
            MaskValueError: a bias that does more than adding, such as `softcap`.
        """
        from ..engine.dense import dense_score

        return dense_score(self, Lengths(q_len, kv_len, batch, heads))

    @property
    def mask(self) -> Mask:
        return Mask(self.mask_node, SCORE, Label("name", (f"({self.label}).mask", self.label)))

    @property
    def bias(self) -> Bias:
        return Bias(TRUE, self.bias_node, Label("name", (f"({self.label}).bias", self.label)))

    def __and__(self, other: Mask | Score) -> Score:
        if isinstance(other, (Mask, Score)):
            return _combined(self, other)
        return raised(not_joined(self, "&", other))

    def __add__(self, other: Bias | Mask) -> Score:
        if isinstance(other, Bias):
            node = joined(self.bias_node, other.bias_node)
            return Score(self.mask_node, node, Label("+", (self.label, other.label)))
        if isinstance(other, Score):
            raise errors.MaskTypeError(
                f"`({self!r}) + ({other!r})` adds two scores that both hold a mask. Write `a & b`: "
                "masks combine and biases add."
            )
        if isinstance(other, Mask):  # as in mask + score
            return self & other
        return raised(_no_bias(self, "+", other))

    def __invert__(self) -> NoReturn:
        raise messages.not_of_bias(self)


def named_mask(name: str, node: Node, says: str) -> Mask:
    """A mask with a name of its own; `help` prints `says` instead of the class."""
    return helped(Mask(node, SCORE, named(name)), says)


everything = named_mask("everything", TRUE, "Every query keeps every key.")
"""Every query keeps every key."""

nothing = named_mask("nothing", nodes.FALSE, "No query keeps a key: outputs are 0.")
"""No query keeps a key: outputs are 0."""


def formula(node: Node) -> Mask:
    """A mask from a Boolean formula, printed as the formula."""
    return Mask(node, SCORE, Label("formula", (node,)))


def additive(node: Node) -> Bias:
    """The bias that adds a real formula to the score, printed as the formula."""
    return Bias(TRUE, nodes.add(SCORE, node), Label("formula", (node,)))


def _combined(left: Expression, right: Expression) -> Score:
    return Score(
        nodes.conjunction(left.mask_node, right.mask_node),
        joined(left.bias_node, right.bias_node),
        Label("&", (left.label, right.label)),
    )


def constant(value: int | float) -> Bias:
    """The bias that adds a number, which is an argument of the kernel."""
    no_nan("bias + number", value)
    number = nodes.scalar(Scalar("constant", float(value)))
    return Bias(TRUE, nodes.add(SCORE, number), Label("formula", (number,)))
