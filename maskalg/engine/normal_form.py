"""The structure of an expression, its key and slots, and the values bound to the slots.

Two expressions with the same key share one proof and one kernel. The key is found without
visiting the formula again: nodes carry the text of their structure and their parameters.
"""

from __future__ import annotations

import operator
from collections import Counter
from collections.abc import Callable, Hashable, Iterator
from dataclasses import dataclass, field, replace
from functools import cached_property, lru_cache, reduce
from typing import Any, Final, Literal, cast

import torch

from ..formula import nodes
from ..formula.derived import Derived, follow
from ..formula.expression import Expression, Self
from ..formula.nodes import Node
from ..formula.parameters import Parameter, Scalar, Slot, Table
from ..formula.positions import moved
from ..formula.printing import Label
from ..formula.separation import positions, scaled
from .recent import Recent

Value = int | float | torch.Tensor


@dataclass(frozen=True, eq=False)
class Structure:
    """An expression without its values; `slots[i]` is the place of `values[i]`.

    `remembered` holds facts that backends found about it, without tensors.
    """

    key: str
    mask_key: str
    mask: Node
    bias: Node
    slots: tuple[Slot, ...]
    remembered: dict[Hashable, Any] = field(default_factory=dict, repr=False)

    @cached_property
    def integers(self) -> tuple[int, ...]:
        """The places among `values` of integers."""
        return tuple(slot.index for slot in self.scalars if slot.kind == "int")

    @cached_property
    def scalars(self) -> tuple[Slot, ...]:
        return tuple(slot for slot in self.slots if not slot.is_table)

    @cached_property
    def moves(self) -> tuple[int, int | None] | None:
        """The places among `values` of the numbers that `shift` adds to queries and to keys.

        None unless the mask reads both indices, and one number moves the queries.
        """
        places: dict[str, list[int]] = {"q_shift": [], "kv_shift": []}
        for slot in self.slots:
            if slot.name in places:
                places[slot.name].append(slot.index if not slot.is_table else -1)
        of_queries, of_keys = places.values()
        both = self.mask.indices() >= {"q_idx", "kv_idx"}
        if not both or len(of_queries) != 1 or len(of_keys) > 1 or -1 in of_queries + of_keys:
            return None
        return of_queries[0], (of_keys[0] if of_keys else None)

    @cached_property
    def tables(self) -> tuple[Slot, ...]:
        return tuple(slot for slot in self.slots if slot.is_table)

    @property
    def mask_tables(self) -> bool:
        """Whether the mask, and so the schedule, reads a tensor."""
        return any(isinstance(p, Slot) and p.is_table for p in self.mask.params)

    @cached_property
    def constants(self) -> int:
        """The sum of the integers in the formulas, without signs and factors."""
        parts = [part for formula in (self.mask, self.bias) for part in formula.walk()]
        terms = [arg for part in parts if part.op != "mul" for arg in part.args]
        found = [term.data for term in terms if term.op == "const" and term.kind == "int"]
        return sum(abs(cast(int, number)) for number in found)

    @cached_property
    def reads(self) -> tuple[Node, ...]:
        """Every reading of a table in mask and bias."""
        formulas = (self.mask, self.bias)
        return tuple(n for formula in formulas for n in formula.walk() if n.op == "read")

    @cached_property
    def table_indices(self) -> tuple[tuple[Slot, int, Node], ...]:
        """Each index of each reading: the table, the dimension, and the formula of the index."""
        return tuple(
            (cast(Slot, node.own[0]), axis, index)
            for node in self.reads
            for axis, index in enumerate(node.args)
        )

    @cached_property
    def reads_positions(self) -> bool:
        """Whether a table is read at the query or the key index, so element by element."""
        return any(positions(node) for node in self.reads)

    @cached_property
    def reads_pairs(self) -> bool:
        """Whether a table has an entry for each query and key."""
        return any(nodes.Q in node.args and nodes.K in node.args for node in self.reads)

    @cached_property
    def mask_reads_positions(self) -> bool:
        """Whether the mask reads a table at the query or the key index."""
        nodes_read = [node for node in self.mask.walk() if node.op == "read"]
        return any(positions(node) for node in nodes_read)

    @cached_property
    def mask_rows(self) -> tuple[Slot, ...]:
        """The tables that the mask reads at an index."""
        reads = [node for node in self.mask.walk() if node.op == "read" and node.args]
        return tuple(dict.fromkeys(cast(Slot, node.own[0]) for node in reads))

    @cached_property
    def multiplies(self) -> bool:
        """Whether integers are multiplied, other than by -1, so that magnitudes can grow."""
        return any(
            node.op == "mul" and node.kind == "int" and scaled(node)[0] != -1
            for formula in (self.mask, self.bias)
            for node in formula.walk()
        )

    @cached_property
    def repeats(self) -> int:
        """The most times that one sum or comparison adds the same index, number or product: 2 in
        `q_idx + q_idx >= kv_idx`; at least 1."""
        known: dict[Node, Counter[Node]] = {}
        return max([1, *_added(self.mask, known).values(), *_added(self.bias, known).values()])

    @cached_property
    def truncates(self) -> bool:
        """Whether real numbers become integers, which may have any size."""
        return any("trunc" in formula.ops() for formula in (self.mask, self.bias))

    @cached_property
    def rows_of_keys(self) -> frozenset[int]:
        """The slots of tables read key by key, along their last dimension."""
        by_key = [node for node in self.reads if node.args[-1:] == (nodes.K,)]
        return frozenset(cast(Slot, node.own[0]).index for node in by_key)

    def depends_on(self, index: str) -> bool:
        """Whether mask or bias mention the index `batch`, `head`, `q_idx` or `kv_idx`."""
        return index in self.mask.indices() or index in self.bias.indices()


@dataclass(frozen=True, eq=False)
class Bound:
    """A structure with a value for each slot; `remembered` holds facts that backends found."""

    structure: Structure
    values: tuple[Value, ...]
    remembered: dict[Hashable, Any] = field(default_factory=dict, repr=False)

    @cached_property
    def tables(self) -> tuple[torch.Tensor, ...]:
        """The tensors among the values."""
        values = self.values
        return tuple([cast(torch.Tensor, values[slot.index]) for slot in self.structure.tables])

    def tensors(self) -> Iterator[tuple[Slot, torch.Tensor]]:
        """The tables with their slots."""
        return zip(self.structure.tables, self.tables, strict=True)

    @cached_property
    def sum_of_integers(self) -> int:
        """The sum of the integers among the values, without their signs."""
        total = 0  # written out for speed
        for place in self.structure.integers:
            value = self.values[place]
            if isinstance(value, int):  # not a symbol of torch.export
                total += abs(value)
        return total

    @property
    def long(self) -> bool:
        """Whether a table holds integers that kernels read in 64 bits."""
        for table in self.tables:  # noqa: SIM110 - a generator takes longer
            if table.dtype in (torch.int64, torch.uint32):
                return True
        return False

    def grain(self, kv_len: int = 0) -> Literal[1, 2, 8]:
        """A divisor of `kv_len` and of the length of all tables read key by key; 1 without any."""
        rows = self.structure.rows_of_keys
        lengths = kv_len if rows else 1
        for slot in rows:
            lengths |= cast(torch.Tensor, self.values[slot]).shape[-1]
        return 8 if lengths % 8 == 0 else 2 if lengths % 2 == 0 else 1


_STRUCTURES: Final[Recent[str, Structure]] = Recent(4096)


def bound(expression: Expression) -> Bound:
    """The normal form of an expression; takes microseconds once its structure is known."""
    form: Bound | None = expression.__dict__.get("_form")
    if form is None:
        form = expression.__dict__["_form"] = _bound(expression)
        parameters = expression.mask_node.params + expression.bias_node.params
        derived = dict.fromkeys([p for p in parameters if isinstance(p, Derived)])
        expression.__dict__["_derived"] = tuple(derived)
    if expression.__dict__["_derived"]:
        follow(expression.__dict__["_derived"])
    return form


def of_form(of: type[Self], form: Bound, formulas: Callable[[], tuple[Node, Node, Label]]) -> Self:
    """The expression with this normal form, which holds no derived table.

    Most masks of a step are computed with and never looked at, so `formulas` makes the two formulas
    and the label when they are asked for.
    """
    expression = of.__new__(of)
    expression.__dict__.update(_form=form, _derived=(), _formulas=formulas)
    return expression


def keyed(expression: Expression) -> tuple[str, list[Parameter]]:
    """The key of an expression and the values of its slots, in their order.

    Plain enough for `torch.compile` to follow: parameters are told apart by `is`, since the number
    that `id` gives would become a condition of the compiled code.
    """
    mask, bias = expression.mask_node, expression.bias_node
    distinct: list[Parameter] = []
    pattern: list[str] = []
    for parameter in mask.params + bias.params:
        place = _place(parameter, distinct)
        if place == len(distinct):
            distinct.append(parameter)
        pattern.append(str(place))
    return f"{mask.skeleton} + {bias.skeleton} / {','.join(pattern)}", distinct


def known(key: str) -> Structure | None:
    """The structure with this key, if this process knows it."""
    return _STRUCTURES.recall(key)


def shared(structure: Structure) -> Structure:
    """The structure with this key that this process knows: the given one, if it knows none."""
    return _STRUCTURES.recall(structure.key) or _STRUCTURES.keep(structure.key, structure)


def _bound(expression: Expression) -> Bound:
    key, distinct = keyed(expression)
    structure = _STRUCTURES.recall(key)
    if structure is None:
        names = [parameter.name for parameter in distinct]
        structure = _STRUCTURES.keep(key, _structure(key, expression, distinct, _apart(names)))
    return Bound(structure, tuple([value_of(parameter) for parameter in distinct]))


def _place(parameter: Parameter, distinct: list[Parameter]) -> int:
    """The place of a parameter in `distinct`; `len(distinct)` if it is new.

    One tensor read in two places is one slot; two numbers are the same if they are one object.
    """
    for place, other in enumerate(distinct):
        if other is parameter or (
            isinstance(other, Table)
            and isinstance(parameter, Table)
            and other.tensor is parameter.tensor
        ):
            return place
    return len(distinct)


def _added(node: Node, known: dict[Node, Counter[Node]]) -> Counter[Node]:
    """For each index, number and product, the most times that one sum or comparison in a formula
    adds it."""
    if node not in known:
        parts = [_added(arg, known) for arg in node.args]
        if node.op in ("index", "scalar", "extent"):
            parts.append(Counter([node]))
        if node.op == "mul" and node.kind == "int" and scaled(node)[0] != -1:
            parts = [Counter([node])]
        join = operator.add if node.op in ("add", "ge", "gt", "eq") else operator.or_
        known[node] = reduce(join, parts, Counter())
    return known[node]


def value_of(parameter: Parameter) -> Value:
    """The number or the tensor of a parameter."""
    assert not isinstance(parameter, Slot)
    return parameter.value if isinstance(parameter, Scalar) else parameter.tensor


def as_named(expression: Expression) -> Structure:
    """The structure of an expression with the names of its `parameters`, to be read.

    These are numbered as the expression is written; `bound` numbers them as the formula has them.
    """
    structure = bound(expression).structure
    key, distinct = keyed(expression)
    named = {id(p): name for name, known in expression._named.items() for p in known}
    names = [named[id(parameter)] for parameter in distinct]
    if names == [slot.name for slot in structure.slots]:
        return structure
    return _structure(key, expression, distinct, names)


def _apart(names: list[str]) -> list[str]:
    """Names told apart by numbers: the second window is `window_2`."""
    found: dict[str, None] = {}
    for given in names:
        name, count = given, 1
        while name in found:
            count += 1
            name = f"{given}_{count}"
        found[name] = None
    return list(found)


def _structure(
    key: str, expression: Expression, distinct: list[Parameter], names: list[str]
) -> Structure:
    slots: list[Slot] = []
    for index, (parameter, name) in enumerate(zip(distinct, names, strict=True)):
        assert not isinstance(parameter, Slot)
        slots.append(Slot(index, name, parameter))

    def slot_of(parameter: Parameter) -> Slot:
        return slots[_place(parameter, distinct)]

    mask = nodes.with_parameters(expression.mask_node, slot_of)
    bias = nodes.with_parameters(expression.bias_node, slot_of)
    of_mask = {p.text for p in mask.params}
    named = [f"{s.text} {s.name}" for s in slots if s.text in of_mask]
    mask_key = f"{mask.skeleton} / {', '.join(named)}"
    return Structure(key, mask_key, mask, bias, tuple(slots))


@lru_cache(maxsize=4096)
def transposed(structure: Structure) -> Structure:
    """The mask with the roles of queries and keys exchanged: M'(q, k) = M(k, q)."""
    swapped = {"q_idx": nodes.K, "kv_idx": nodes.Q}
    return Structure(
        key=f"transposed {structure.key}",
        mask_key=f"transposed {structure.mask_key}",
        mask=moved(structure.mask, swapped),
        bias=structure.bias,
        slots=structure.slots,
    )


def tabled(structure: Structure) -> tuple[Node, ...]:
    """The formulas that read a tensor, of those that `&` joins in the mask."""
    return tuple(part for part in _joined(structure.mask) if _reads_tensors(part))


@lru_cache(maxsize=4096)
def without_tables(structure: Structure) -> Structure:
    """The mask without the formulas of `tabled`: it keeps at least as much."""
    if not structure.mask_tables:
        return structure
    rest = [part for part in _joined(structure.mask) if not _reads_tensors(part)]
    return replace(
        structure,
        key=f"without tables {structure.key}",
        mask_key=f"without tables {structure.mask_key}",
        mask=nodes.conjunction(*rest),
        remembered={},
    )


def _joined(mask: Node) -> tuple[Node, ...]:
    return mask.args if mask.op == "and" else (mask,)


def _reads_tensors(node: Node) -> bool:
    return any(isinstance(p, Slot) and p.is_table for p in node.params)
