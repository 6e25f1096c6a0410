"""Masks, biases and scores: values composed with `&`, `|`, `~`, `+`, `@`.

`Mask & | ~` keep sets of (query, key) pairs; `Mask + Bias` is a `Score`; biases add with `+` and
nest with `@`. Python binds `+` tighter than `&`, so `a & b + bias` is `a & (b + bias)`; `Mask &
Score` is defined so that both spellings mean the same.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cached_property
from typing import TYPE_CHECKING, NoReturn, TypeGuard, TypeVar

import torch

from . import errors, nodes
from .nodes import SCORE, TRUE, Node
from .parameters import INT32_MAX, Parameter, Scalar, Slot, Table
from .printing import Label, named

if TYPE_CHECKING:
    from .proof.proof import Proof
    from .reasoning.cost import Cost
    from .reasoning.rows import Bandwidth
    from .reasoning.search import Place
    from .schedule.block_map import BlockMap
    from .schedule.segments import Segments

Self = TypeVar("Self", bound="Expression")
Shift = int | torch.Tensor


class Expression:
    """What masks, biases and scores share: parameters, printing, equality. Never changed in place.

    Equality is that of structure, scalar values and identity of tensors; the hash is of structure
    and scalars. A pickled copy of an expression that holds tensors is therefore unequal to it.
    """

    mask_node: Node
    bias_node: Node
    label: Label

    def __init__(self, mask_node: Node, bias_node: Node, label: Label) -> None:
        self.mask_node = mask_node
        self.bias_node = bias_node
        self.label = label

    def __repr__(self) -> str:
        return str(self.label)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Expression):
            return NotImplemented
        return (
            type(self) is type(other)
            and self.mask_node == other.mask_node
            and self.bias_node == other.bias_node
        )

    def __hash__(self) -> int:
        scalars = sorted(p.value for p in self._params if isinstance(p, Scalar))
        return hash((self.mask_node.skeleton, self.bias_node.skeleton, *scalars))

    def __bool__(self) -> NoReturn:
        raise errors.used_as_bool(self)

    def __getstate__(self) -> tuple[Node, Node, Label]:
        return self.mask_node, self.bias_node, self.label

    def __setstate__(self, state: tuple[Node, Node, Label]) -> None:
        self.mask_node, self.bias_node, self.label = state

    @property
    def _params(self) -> tuple[Parameter, ...]:
        return self.mask_node.params + self.bias_node.params

    @cached_property
    def _named(self) -> dict[str, Scalar | Table]:
        """Parameters by a name that is unique: the second window is `window_2`."""
        found: dict[str, Scalar | Table] = {}
        seen: set[int] = set()
        for parameter in self._params:
            assert not isinstance(parameter, Slot)
            if id(parameter) in seen:
                continue
            seen.add(id(parameter))
            name, count = parameter.name, 1
            while name in found:
                count += 1
                name = f"{parameter.name}_{count}"
            found[name] = parameter
        return found

    @property
    def parameters(self) -> dict[str, int | float | torch.Tensor]:
        """The values bound to the expression, by name; `bind` takes the same names."""
        return {
            name: p.value if isinstance(p, Scalar) else p.tensor for name, p in self._named.items()
        }

    def bind(self: Self, values: Mapping[str, object] | None = None, /, **named: object) -> Self:
        """The same structure with other values: `mask.bind(window=512)`.

        The proof and the compiled kernel of the structure serve the new expression as they are.

        Raises:
            TypeError: a name the expression does not have, or a value of another kind.
            ValueError: a number below its declared bound, or a tensor of another rank.
        """
        replacement: dict[int, Parameter] = {}
        for name, value in {**(values or {}), **named}.items():
            if name not in self._named:
                raise errors.unknown_parameter(name, list(self._named))
            old = self._named[name]
            new = replacement[id(old)] = _rebound(name, old, value)
            if isinstance(old, Table) and isinstance(new, Table):
                self._check_broadcast(name, old, new)
        return self._replaced(replacement)

    def _check_broadcast(self, name: str, old: Table, new: Table) -> None:
        """A dimension read at one fixed entry, as a broadcast one is, must keep its size."""
        for formula in (self.mask_node, self.bias_node):
            for node in formula.walk():
                if node.op != "read" or node.own[0] is not old:
                    continue
                for axis, index in enumerate(node.args):
                    if index.op == "const" and old.tensor.shape[axis] != new.tensor.shape[axis]:
                        wanted = f"{old.tensor.shape[axis]} entries along dimension {axis}"
                        raise errors.tensor_shape("bind", name, list(new.tensor.shape), wanted)

    def to(self: Self, device: torch.device | str) -> Self:
        """The same expression with every tensor on `device`."""
        tables = [p for p in self._params if isinstance(p, Table)]
        tensors = {id(p.tensor): p.tensor.to(device) for p in tables}
        return self._replaced({id(p): Table(p.name, tensors[id(p.tensor)], p.low) for p in tables})

    def _replaced(self: Self, replacement: dict[int, Parameter]) -> Self:
        if not replacement:
            return self

        def other(parameter: Parameter) -> Parameter:
            return replacement.get(id(parameter), parameter)

        return type(self)(
            nodes.with_parameters(self.mask_node, other),
            nodes.with_parameters(self.bias_node, other),
            self.label.replace(replacement),
        )

    def shift(self: Self, q: Shift = 0, kv: Shift = 0) -> Self:
        """M'(q, k) = M(q + `q`, k + `kv`): a step of a KV cache, a shard, a chunk of prefill.

        Args:
            q: positions to add to the query index: an integer, or an integer tensor that is 0-d
                or per batch `[batch]`, on the device of the inputs.
            kv: the same for the key index.
        """
        offsets = {
            name: _offset(name, move) for name, move in (("q", q), ("kv", kv)) if not _is_zero(move)
        }
        if not offsets:
            return self
        moved = {
            index: nodes.add(Node("index", "int", data=index), offsets[name])
            for name, index in (("q", "q_idx"), ("kv", "kv_idx"))
            if name in offsets
        }

        def replace(node: Node) -> Node | None:
            return moved.get(str(node.data)) if node.op == "index" else None

        moves: list[Parameter | str] = []
        for name, offset in offsets.items():
            moves += [name, offset.params[0]]
        return type(self)(
            nodes.substitute(self.mask_node, replace),
            nodes.substitute(self.bias_node, replace),
            Label("shift", (self.label, *moves)),
        )


class Mask(Expression):
    """Which (query, key) pairs are kept, as a formula over `batch, head, q_idx, kv_idx`.

    `operands` are the masks that `&`, `|` or `~` made it from, for `simplify`; a mask that was
    bound, shifted, moved or pickled has none.
    """

    operands: tuple[Mask, ...] = ()

    def __init__(
        self, mask_node: Node, bias_node: Node, label: Label, operands: tuple[Mask, ...] = ()
    ) -> None:
        assert bias_node is SCORE or bias_node.op == "score"
        super().__init__(mask_node, SCORE, label)
        self.operands = operands

    def __and__(self, other: object) -> Mask | Score:
        if isinstance(other, Mask):
            node = nodes.conjunction(self.mask_node, other.mask_node)
            return Mask(node, SCORE, Label("&", (self.label, other.label)), (self, other))
        if isinstance(other, Bias):
            raise errors.mask_and_bias(self, other)
        if isinstance(other, Score):
            return _combined(self, other)
        return NotImplemented

    def __or__(self, other: object) -> Mask:
        if isinstance(other, Mask):
            node = nodes.disjunction(self.mask_node, other.mask_node)
            return Mask(node, SCORE, Label("|", (self.label, other.label)), (self, other))
        if isinstance(other, (Bias, Score)):
            raise errors.or_with_bias(self, other)
        return NotImplemented

    def __invert__(self) -> Mask:
        return Mask(nodes.negation(self.mask_node), SCORE, Label("~", (self.label,)), (self,))

    def __add__(self, other: object) -> Score:
        if isinstance(other, Bias):
            label = Label("+", (self.label, other.label))
            return Score(self.mask_node, other.bias_node, label)
        if isinstance(other, Mask):
            raise errors.mask_plus_mask(self, other)
        return NotImplemented

    def prove(self) -> Proof:
        """The closed forms of the empty and the full blocks, for all values of the parameters."""
        from .proof.proof import prove

        return prove(self)

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
        """
        from .schedule.block_map import blocks

        return blocks(self, q_len, kv_len, block=block, batch=batch, heads=heads)

    def segments(
        self,
        q_len: int,
        kv_len: int | None = None,
        *,
        block: int | tuple[int, int] = 128,
        batch: int | None = None,
        heads: int | None = None,
    ) -> Segments:
        """What each tile of queries visits, as a few ranges of tiles: the public row schedule.

        Takes what `blocks` takes, and costs time and memory by the row, not by the block.

        Returns:
            `Segments` with int32 arrays `row_start`, `first`, `end`, `label`: compressed rows,
            disjoint and in order, without padding.
        """
        from .schedule.segments import segments

        return segments(self, q_len, kv_len, block=block, batch=batch, heads=heads)

    def is_empty(
        self,
        q_len: int | None = None,
        kv_len: int | None = None,
        *,
        batch: int | None = None,
        heads: int | None = None,
        for_all: bool = False,
    ) -> bool | None:
        """Whether no pair is kept: True, False, or None where neither was found.

        Without lengths the question ranges over every position from 0 on that bound tensors hold;
        `ma.implies` describes the arguments.
        """
        from .reasoning.decide import empty
        from .reasoning.domain import Lengths

        return empty(self, Lengths(q_len, kv_len, batch, heads), for_all=for_all)

    def witness(
        self,
        other: Mask,
        q_len: int | None = None,
        kv_len: int | None = None,
        *,
        batch: int | None = None,
        heads: int | None = None,
    ) -> Place | None:
        """A pair `(batch, head, q_idx, kv_idx)` that one of the two masks keeps and one does not.

        None where none was found: `ma.equivalent` says whether there is none. Without lengths,
        small positions and those near the numbers of the formulas are looked at.
        """
        from .reasoning.decide import witness
        from .reasoning.domain import Lengths

        return witness(self, other, Lengths(q_len, kv_len, batch, heads))

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

        Takes what `blocks` takes, and counts all batch entries and heads. Kept elements are summed
        over intervals where the proof is exact, and evaluated piece by piece elsewhere.
        """
        from .reasoning.cost import cost
        from .reasoning.domain import Lengths

        return cost(self, Lengths(q_len, kv_len, batch, heads), block)

    def bandwidth(self) -> Bandwidth:
        """The smallest band around the diagonal that holds every kept pair, at all positions.

        Returns:
            `Bandwidth(left, right)` with `-left <= kv_idx - q_idx <= right` for each kept pair,
            None for a side without a limit that was proved. An empty mask has the band (0, 0).
        """
        from .reasoning.rows import bandwidth

        return bandwidth(self)

    def rows_have_a_key(
        self,
        q_len: int,
        kv_len: int | None = None,
        *,
        batch: int | None = None,
        heads: int | None = None,
    ) -> bool | None:
        """Whether each query keeps at least one key, in every batch entry and head.

        A query without a key has output 0. None where the closed forms leave more elements open
        than are worth evaluating (2**28). Takes what `blocks` takes.
        """
        from .reasoning.domain import Lengths
        from .reasoning.rows import rows_have_a_key

        return rows_have_a_key(self, Lengths(q_len, kv_len, batch, heads))

    def simplify(self) -> Mask:
        """An equivalent mask without the parts that others make superfluous; printing shows it.

        Equivalent for the values bound now, at every position that bound tensors hold. The mask
        itself is returned where nothing could be left out.

            >>> (causal & (sliding(4) | ~causal) & sliding(9)).simplify()
            causal & sliding(4)
        """
        from .reasoning.simplify import simplify

        return simplify(self)

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
        from .evaluate import to_dense

        return to_dense(self, q_len, kv_len, batch=batch, heads=heads)

    def to_mask_mod(self) -> Callable[..., torch.Tensor]:
        """As FlexAttention's `mask_mod(b, h, q_idx, kv_idx)`, with the values bound now."""
        from .tracing.to_flex import flex_function

        return flex_function(self)

    def show(self, q_len: int, kv_len: int | None = None, *, width: int = 64) -> None:
        """Print a picture of the empty, partial and full blocks to the terminal."""
        from .inspect.terminal import show

        show(self, q_len, kv_len, width=width)


class Bias(Expression):
    """What a score becomes: a function f(s) of the scaled score s, and of the indices.

    `f + g` is f(s) + g(s) - s, so additive biases add in any order; `f @ g` is f(g(s)).
    """

    def __init__(self, mask_node: Node, bias_node: Node, label: Label) -> None:
        assert mask_node is TRUE or mask_node.data is True
        super().__init__(TRUE, bias_node, label)

    def __add__(self, other: object) -> Bias | Score:
        if isinstance(other, Bias):
            node = _sum(self.bias_node, other.bias_node)
            return Bias(TRUE, node, Label("+", (self.label, other.label)))
        if isinstance(other, (Mask, Score)):
            return other + self
        if _is_number(other):
            return self if other == 0 else self + _constant(other)
        return NotImplemented

    def __radd__(self, other: object) -> Bias | Score:
        return self + other if _is_number(other) else NotImplemented

    def __sub__(self, other: object) -> Bias | Score:
        return self + (-other) if isinstance(other, (Bias, int, float)) else NotImplemented

    def to_score_mod(self) -> Callable[..., torch.Tensor]:
        """As FlexAttention's `score_mod(score, b, h, q_idx, kv_idx)`, with the values bound now."""
        from .tracing.to_flex import flex_function

        return flex_function(self)

    def __neg__(self) -> Bias:
        return self * -1

    def __mul__(self, other: object) -> Bias:
        if not _is_number(other):
            return NotImplemented
        amount = Scalar("factor", float(other))
        rest = nodes.mul(nodes.scalar(amount), _added(self.bias_node))
        return Bias(TRUE, nodes.add(SCORE, rest), Label("*", (amount, self.label)))

    __rmul__ = __mul__

    def __matmul__(self, other: object) -> Bias | Score:
        if not isinstance(other, (Bias, Score)):
            return NotImplemented
        node = _compose(self.bias_node, other.bias_node)
        label = Label("@", (self.label, other.label))
        if isinstance(other, Bias):
            return Bias(TRUE, node, label)
        return Score(other.mask_node, node, label)

    def __and__(self, other: object) -> NoReturn:
        raise errors.mask_and_bias(other, self)

    __rand__ = __and__

    def __or__(self, other: object) -> NoReturn:
        raise errors.or_with_bias(self, other)

    def __ror__(self, other: object) -> NoReturn:
        raise errors.or_with_bias(other, self)

    def __invert__(self) -> NoReturn:
        raise errors.not_of_bias(self)


class Score(Expression):
    """A mask and a bias: everything attention does to its scores before the softmax."""

    def to_score_mod(self) -> Callable[..., torch.Tensor]:
        """As FlexAttention's `score_mod(score, b, h, q_idx, kv_idx)`: -inf where the mask drops.

        FlexAttention skips blocks by the mask alone: give it `score.mask.to_mask_mod()` too.
        """
        from .tracing.to_flex import flex_function

        return flex_function(self)

    @property
    def mask(self) -> Mask:
        return Mask(self.mask_node, SCORE, Label("name", (f"({self.label}).mask",)))

    @property
    def bias(self) -> Bias:
        return Bias(TRUE, self.bias_node, Label("name", (f"({self.label}).bias",)))

    def __and__(self, other: object) -> Score:
        if isinstance(other, (Mask, Score)):
            return _combined(self, other)
        if isinstance(other, Bias):
            raise errors.mask_and_bias(self, other)
        return NotImplemented

    def __add__(self, other: object) -> Score:
        if isinstance(other, Bias):
            node = _sum(self.bias_node, other.bias_node)
            return Score(self.mask_node, node, Label("+", (self.label, other.label)))
        if isinstance(other, Score):
            raise errors.score_plus_score(self, other)
        if isinstance(other, Mask):
            raise errors.mask_plus_mask(self, other)
        return NotImplemented

    def __or__(self, other: object) -> NoReturn:
        raise errors.or_with_bias(self, other)

    def __ror__(self, other: object) -> NoReturn:
        raise errors.or_with_bias(other, self)

    def __invert__(self) -> NoReturn:
        raise errors.not_of_bias(self)


everything = Mask(TRUE, SCORE, named("everything"))
nothing = Mask(nodes.FALSE, SCORE, named("nothing"))


def formula(node: Node) -> Mask:
    """A mask from a Boolean formula, printed as the formula."""
    return Mask(node, SCORE, Label("formula", (node,)))


def additive(node: Node) -> Bias:
    """The bias that adds a real formula to the score, printed as the formula."""
    return Bias(TRUE, nodes.add(SCORE, node), Label("formula", (node,)))


def _combined(left: Expression, right: Expression) -> Score:
    return Score(
        nodes.conjunction(left.mask_node, right.mask_node),
        _sum(left.bias_node, right.bias_node),
        Label("&", (left.label, right.label)),
    )


def _added(bias: Node) -> Node:
    """f(s) - s, without s where it is additive."""
    if bias.op == "score":
        return nodes.const(0.0)
    if bias.op == "add":
        rest = [term for term in bias.args if term.op != "score"]
        if len(rest) == len(bias.args) - 1 and not any(_reads_score(term) for term in rest):
            return nodes.add(*rest)
    return nodes.subtract(bias, SCORE)


def _sum(left: Node, right: Node) -> Node:
    if left.op == "score":
        return right
    if right.op == "score":
        return left
    return nodes.add(left, _added(right)) if _is_additive(right) else nodes.add(right, _added(left))


def _is_additive(bias: Node) -> bool:
    return not _reads_score(_added(bias))


def _reads_score(node: Node) -> bool:
    return any(inner.op == "score" for inner in node.walk())


def _compose(outer: Node, inner: Node) -> Node:
    return nodes.substitute(outer, lambda node: inner if node.op == "score" else None)


def _constant(value: int | float) -> Bias:
    added = nodes.scalar(Scalar("constant", float(value)))
    return Bias(TRUE, nodes.add(SCORE, added), Label("formula", (added,)))


def _is_number(value: object) -> TypeGuard[int | float]:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def _is_zero(move: Shift) -> bool:
    return type(move) is int and move == 0


def _offset(name: str, move: Shift) -> Node:
    call = f"shift({name}=…)"
    if isinstance(move, bool) or not isinstance(move, (int, torch.Tensor)):
        raise errors.not_an_integer(call, name, move, -INT32_MAX)
    if isinstance(move, int):
        if abs(move) > INT32_MAX:
            raise errors.above_int32(call, name, move)
        return nodes.scalar(Scalar(f"{name}_shift", move))
    if move.dtype not in (torch.int32, torch.int64):
        raise errors.tensor_dtype(call, name, move.dtype, "an int32 or int64 tensor")
    table = Table(f"{name}_shift", move)
    if move.ndim == 0:
        return nodes.read(table)
    if move.ndim == 1:
        return nodes.read(table, nodes.BATCH)
    raise errors.tensor_shape(call, name, list(move.shape), "[] or [batch]")


def _rebound(name: str, old: Scalar | Table, value: object) -> Scalar | Table:
    if isinstance(old, Scalar):
        wanted = "int" if old.kind == "int" else "a number"
        if isinstance(value, bool) or not isinstance(
            value, int if old.kind == "int" else (int, float)
        ):
            raise errors.bound_type(name, value, wanted)
        if old.low is not None and value < old.low:
            raise errors.below("bind", name, int(value), old.low)
        if old.kind == "int" and abs(value) > INT32_MAX:
            raise errors.above_int32("bind", name, int(value))
        return old.with_value(value if old.kind == "int" else float(value))
    if not isinstance(value, torch.Tensor):
        raise errors.bound_type(name, value, "a tensor")
    new = Table(old.name, value, old.low)
    if new.text != old.text:
        wanted = f"a {old.kind} tensor of {old.tensor.ndim} dimensions"
        raise errors.tensor_shape("bind", name, f"{value.dtype}{list(value.shape)}", wanted)
    return new
