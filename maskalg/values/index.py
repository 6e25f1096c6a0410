"""Index expressions: `q_idx`, `kv_idx`, `batch`, `head`, and arithmetic on them.

Comparing two index expressions gives a mask: `q_idx - kv_idx <= 3`. Named numbers and tensors
enter through `scalar` and `table`, so that a new value is a new argument, not a new structure.
A real number, a floating-point table or `/` makes a real expression, which `bias` adds to scores.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NoReturn, cast, overload

import torch

from .. import errors
from ..formula import nodes
from ..formula.entries import Entries, as_tensor
from ..formula.nodes import Node
from ..formula.parameters import INT32_MAX, INTEGERS, Scalar, Table, no_nan, plain_number
from ..formula.positions import IndexFormula
from ..formula.printing import formula_text
from . import messages
from .algebra import Bias, Mask, Score, additive, formula
from .helped import helped
from .in_torch import InTorch

__all__ = ["batch", "bias", "head", "kv_idx", "q_idx", "scalar", "table"]


class Index(InTorch, IndexFormula):
    """A number, integer or real, that depends on the batch, head, query and key index.

    `batch`, `head`, `q_idx` and `kv_idx` are the simplest. A comparison of two is a mask.
    """

    def __init__(self, node: Node) -> None:
        object.__setattr__(self, "node", node)

    def __setattr__(self, name: str, value: object) -> None:
        raise errors.assigned(self, name, False)

    def __delattr__(self, name: str) -> None:
        raise errors.deleted(self, name)

    def __reduce__(self) -> tuple[type[Index], tuple[Node]]:
        return Index, (self.node,)

    def __repr__(self) -> str:
        return formula_text(self.node)

    def __bool__(self) -> NoReturn:
        raise errors.used_as_bool(self)

    if not TYPE_CHECKING:  # a type checker would take it for a list

        def __getitem__(self, *at: object) -> NoReturn:
            raise errors.MaskTypeError(
                f"`({self!r})[…]`: an index expression is a number and has no entries. Write "
                "`table(tensor)[q_idx]` to read a tensor at it, `q_idx == 0` to ask for the first "
                "query."
            )

        __setitem__ = __contains__ = __getitem__

        def __len__(self) -> NoReturn:
            raise errors.MaskTypeError(
                f"`len({self!r})`: an index expression is a number and has no length."
            )

        def __index__(self) -> NoReturn:
            raise messages.no_number(self)

        __int__ = __float__ = __index__

        def __getattr__(self, name: str) -> NoReturn:
            raise messages.no_attribute_of_index(name)

    __hash__ = object.__hash__

    def __add__(self, other: Index | float) -> Index:
        return Index(nodes.add(self.node, as_node(other)))

    def __sub__(self, other: Index | float) -> Index:
        return Index(nodes.subtract(self.node, as_node(other)))

    def __rsub__(self, other: Index | float) -> Index:
        return Index(nodes.subtract(as_node(other), self.node))

    def __neg__(self) -> Index:
        return Index(nodes.negate(self.node))

    def __mul__(self, other: Index | float) -> Index:
        return Index(nodes.mul(self.node, as_node(other)))

    __radd__ = __add__
    __rmul__ = __mul__

    def __truediv__(self, other: Index | float) -> Index:
        return Index(nodes.divide(self.node, as_node(other)))

    def __rtruediv__(self, other: Index | float) -> Index:
        return Index(nodes.divide(as_node(other), self.node))

    def __pow__(self, other: Index | float) -> Index:
        return Index(nodes.power(self.node, as_node(other)))

    def __rpow__(self, other: Index | float) -> Index:
        return Index(nodes.power(as_node(other), self.node))

    def __floordiv__(self, other: Index | float) -> Index:
        return Index(nodes.floordiv(self.node, _divisor(self, other)))

    def __rfloordiv__(self, other: float) -> Index:
        return Index(as_node(other)) // self

    def __mod__(self, other: Index | float) -> Index:
        return Index(nodes.mod(self.node, _divisor(self, other)))

    def __rmod__(self, other: float) -> Index:
        return Index(as_node(other)) % self

    def __abs__(self) -> Index:
        if self.node.kind == "real":
            return Index(nodes.call("abs", self.node))
        return Index(nodes.maximum(self.node, nodes.negate(self.node)))

    def __invert__(self) -> NoReturn:
        raise errors.MaskTypeError(
            f"`~({self!r})` has no meaning: an index expression is a number, and only a mask can "
            "be negated. Write `x == 0` for integers that stand for flags, `~(a == b)` for a "
            "comparison."
        )

    if not TYPE_CHECKING:  # type checkers report missing operators themselves
        __and__, __rand__ = messages.refusing(messages.unparenthesised, "&")
        __or__, __ror__ = messages.refusing(messages.unparenthesised, "|")
        __xor__, __rxor__ = messages.refusing(messages.unparenthesised, "^")

    def __ge__(self, other: Index | float) -> Mask:
        return formula(nodes.ge(self.node, as_node(other)))

    def __le__(self, other: Index | float) -> Mask:
        return formula(nodes.ge(as_node(other), self.node))

    def __gt__(self, other: Index | float) -> Mask:
        return formula(nodes.gt(self.node, as_node(other)))

    def __lt__(self, other: Index | float) -> Mask:
        return formula(nodes.gt(as_node(other), self.node))

    def __eq__(self, other: object) -> Mask:  # type: ignore[override]
        return formula(nodes.eq(self.node, as_node(other)))

    def __ne__(self, other: object) -> Mask:  # type: ignore[override]
        return formula(nodes.negation(nodes.eq(self.node, as_node(other))))


q_idx = helped(
    Index(nodes.Q), "The global position of the query, from 0 on: `causal` is `q_idx >= kv_idx`."
)
"""The global position of the query, from 0 on: `causal` is `q_idx >= kv_idx`."""

kv_idx = helped(Index(nodes.K), "The global position of the key, from 0 on.")
"""The global position of the key, from 0 on."""

batch = helped(Index(nodes.BATCH), "The number of the batch entry, from 0 on.")
"""The number of the batch entry, from 0 on."""

head = helped(
    Index(nodes.HEAD),
    "The number of the query head, from 0 on: `where(head % 2 == 0, causal, sliding(64))`.",
)
"""The number of the query head, from 0 on: `where(head % 2 == 0, causal, sliding(64))`."""


class TableExpression:
    """A tensor waiting for its indices: `table(flags)[kv_idx]` is a mask when flags is Boolean."""

    __slots__ = ("_table",)

    def __init__(self, table: Table) -> None:
        self._table = table

    def __repr__(self) -> str:
        return f"table({self._table.name}{list(self._table.tensor.shape)})"

    def __eq__(self, *_other: object) -> NoReturn:
        raise errors.MaskTypeError(
            f"table({self._table.name}) of shape {list(self._table.tensor.shape)} stands without "
            "an index for each dimension: write `ma.table(tensor)[kv_idx]`, or for a comparison "
            "`ma.table(tensor)[q_idx] == ma.table(tensor)[kv_idx]`."
        )

    __hash__ = object.__hash__

    if not TYPE_CHECKING:  # type checkers report missing operators themselves
        __lt__ = __le__ = __gt__ = __ge__ = __ne__ = __eq__
        __add__ = __radd__ = __sub__ = __rsub__ = __mul__ = __rmul__ = __eq__
        __floordiv__ = __rfloordiv__ = __mod__ = __rmod__ = __truediv__ = __rtruediv__ = __eq__
        __pow__ = __rpow__ = __and__ = __rand__ = __or__ = __ror__ = __xor__ = __rxor__ = __eq__
        __invert__ = __neg__ = __abs__ = __bool__ = __eq__

    def __getitem__(self, indices: Index | int | tuple[Index | int, ...]) -> Entry:
        """An `Index`, or a `Mask` for a Boolean tensor; one index for each dimension.

        Type checkers take it for both, since the type of a tensor does not tell its dtype. Annotate
        a variable to which `m & causal` is assigned later: `m: Mask = table(flags)[kv_idx]`.
        """
        given = indices if isinstance(indices, tuple) else (indices,)
        tensor = self._table.tensor
        if len(given) != tensor.ndim:
            raise errors.MaskTypeError(
                f"table {self._table.name} has shape {list(tensor.shape)} and takes {tensor.ndim} "
                f"{'index' if tensor.ndim == 1 else 'indices'}, {len(given)} were given."
            )
        node = nodes.read(self._table, *[_integer(index) for index in given])
        return cast("Entry", formula(node) if node.kind == "bool" else Index(node))


if TYPE_CHECKING:

    class Entry(Index, Mask):  # type: ignore[misc]
        """An entry of a table: a mask where its tensor is Boolean, else a number."""

        __invert__ = Mask.__invert__  # type: ignore[assignment]

        @overload  # type: ignore[override]
        def __add__(self, other: Index | float) -> Index: ...
        @overload
        def __add__(self, other: Bias) -> Score: ...
        def __add__(self, other: object) -> Index | Score: ...


def scalar(value: int | float, name: str = "scalar", *, low: int | None = None) -> Index:
    """A named number whose value is an argument of the kernel, not part of the structure.

    Args:
        value: an integer within 32 bits, or a real number.
        name: its name in `bind`, `parameters` and printed proofs.
        low: a lower bound that proofs may use; checked here and in `bind`.

    Raises:
        TypeError: a value that is no number.
        ValueError: a value below `low` or past 32 bits, or a name the proof uses itself.

    Examples:
        >>> near = q_idx - kv_idx < scalar(64, "reach", low=1)
        >>> near.bind(reach=128).parameters
        {'reach': 128}
    """
    _check_name(name)
    value = plain_number(value)
    if isinstance(value, bool) or not isinstance(value, (*INTEGERS, float)):
        raise messages.not_a_scalar(value, name, low)
    no_nan("scalar(nan)", value)
    if low is not None and value < low:
        raise errors.below(f"scalar({value!r})", name, value, low)
    if not isinstance(value, float) and abs(value) > INT32_MAX:
        raise errors.above_int32(f"scalar({value!r})", name, value)
    return Index(nodes.scalar(Scalar(name, value, low)))


def table(tensor: Entries, name: str = "table", *, low: int | None = None) -> TableExpression:
    """A tensor to be read at index expressions: `table(ranks)[q_idx] >= table(ranks)[kv_idx]`.

    Args:
        tensor: Boolean, integer or floating, of any number of dimensions, on the device of the
            inputs. A tensor read at positions must be at least as long as the sequences. Boolean
            entries are masks. Floating entries receive a gradient when the tensor requires one;
            masks read them in float32, as kernels do, whatever their dtype. Sums and products of
            integer entries are exact, whatever their size; int32 tensors are faster.
        name: its name in `bind`, `parameters` and printed proofs.
        low: a lower bound of integer entries; a smaller entry is read as this bound.

    Raises:
        TypeError: something that is no tensor.
        ValueError: a name the proof uses itself; at the call, a tensor that is too short.

    Examples:
        >>> rank = table(torch.tensor([2, 0, 1]), "rank")
        >>> (rank[q_idx] >= rank[kv_idx]).to_dense(3)[0, 0].int().tolist()
        [[1, 1, 1], [0, 1, 0], [0, 1, 1]]
    """
    _check_name(name)
    entries = as_tensor(tensor)
    if not isinstance(entries, torch.Tensor):
        raise messages.not_a_table(tensor)
    return TableExpression(Table(name, entries, low))


def as_node(value: object) -> Node:
    """The formula of an index expression or of a number."""
    if isinstance(value, Index):
        return value.node
    value = plain_number(value)
    if isinstance(value, float):
        no_nan("index expression", value)
        return nodes.const(value)
    if isinstance(value, int) and not isinstance(value, bool):
        if abs(value) > INT32_MAX:
            raise errors.above_int32("index expression", "the constant", value)
        # int() fixes a number that torch.compile makes symbolic: the structure needs a constant.
        return nodes.const(int(value))
    raise messages.no_index(value)


def bias(expression: Index | float) -> Bias:
    """The bias that adds `expression` to the score: `bias(-log(1 + abs(q_idx - kv_idx)))`.

    Args:
        expression: an index expression, of integers or real numbers, or a number.

    Examples:
        >>> causal & sliding(64) + bias(-0.5 * abs(q_idx - kv_idx))
        causal & sliding(64) + -0.5*max(kv_idx - q_idx, q_idx - kv_idx)
    """
    return additive(nodes.call("float", as_node(expression)))


def _integer(value: object) -> Node:
    node = as_node(value)
    if node.kind == "real":
        raise errors.MaskTypeError(
            f"{value!r} is a real number; tables, `//` and `%` take integers. Write "
            "`ma.truncate(x)` for its integer part."
        )
    return node


def _check_name(name: object) -> None:
    """Refuse a parameter name that a proof uses for a symbol of its own."""
    taken = ("q", "k", "q0", "q1", "k0", "k1", "q_idx", "kv_idx", "batch", "head")
    if not isinstance(name, str) or not name.isidentifier() or name in taken:
        raise errors.MaskValueError(
            f"{name!r} cannot name a parameter: take a Python identifier other than "
            f"{', '.join(taken[:-1])} and {taken[-1]}."
        )


def _divisor(left: Index, value: object) -> Node:
    _integer(left)
    node = _integer(value)
    if node.op == "const" and isinstance(node.data, int) and node.data < 1:
        raise errors.below(f"{left!r} // or % …", "the divisor", node.data, 1)
    if node.op == "const":
        return node
    declared = node.own[0].low if node.op == "scalar" else None
    if node.op == "max":
        declared = max((arg.data for arg in node.args if isinstance(arg.data, int)), default=None)
    if declared is None or declared < 1:
        raise errors.MaskValueError(
            f"{left!r} // or % {value!r}: the divisor is not known to be positive. Declare its "
            "lower bound: ma.scalar(value, low=1), or ma.table(tensor, low=1)[index]."
        )
    return node
