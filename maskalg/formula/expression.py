"""The base of masks, biases and scores: parameters, printing, equality, `bind`, `at`, `shift`.

`bind` checks a new value as the first one was checked.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, Final, Literal, NoReturn, TypeVar

import torch

from .. import errors
from . import nodes
from .derived import Derived, on_device, with_derived
from .entries import as_tensor, check, real_entries
from .nodes import Node
from .parameters import INT32_MAX, INTEGERS, Parameter, Scalar, Slot, Table, no_nan, plain_number
from .positions import Position, Shift, is_zero, moved, never_negative, offset, position
from .printing import Label, Shown


def rebound(
    name: str, old: Scalar | Table, value: object, formulas: Iterable[Node]
) -> Scalar | Table:
    """A parameter of `formulas` with another value of its kind; raises what `bind` raises."""
    if isinstance(old, Scalar):
        return _scalar(name, old, plain_number(value))
    new = _table(name, old, value)
    _check_broadcast(name, old, new, formulas)
    return new


def _scalar(name: str, old: Scalar, value: object) -> Scalar:
    kinds = INTEGERS if old.kind == "int" else (int, float)
    if isinstance(value, bool) or not isinstance(value, kinds):
        raise bound_type(name, value, "int" if old.kind == "int" else "a number")
    no_nan(f"bind({name}=…)", value)
    if old.positive and not 0 < value < math.inf:
        raise errors.not_positive("bind", name, value)
    if old.low is not None and value < old.low:
        raise errors.below("bind", name, value, old.low)
    if old.kind == "int" and abs(value) > INT32_MAX:
        raise errors.above_int32("bind", name, int(value))
    return old.with_value(value if old.kind == "int" else float(value))


def _table(name: str, old: Table, value: object) -> Table:
    """Entries go to the device of the tensor they replace, and are real if it is."""
    tensor = real_entries(value) if old.kind == "real" else as_tensor(value)
    if not isinstance(tensor, torch.Tensor):
        raise bound_type(name, value, "a tensor or its entries")
    new = old.with_tensor(tensor if tensor is value else tensor.to(old.tensor.device))
    if new.text != old.text:
        raise errors.MaskValueError(
            f"bind({name}=…): expected a tensor of kind {old.kind} and rank {old.tensor.ndim}, as "
            f"it was built with, got {tensor.dtype} and rank {tensor.ndim}. Another kind or rank "
            "is another structure: build a new expression."
        )
    check(f"bind({name}=…)", name, tensor, old.order)
    return new


def _check_broadcast(name: str, old: Table, new: Table, formulas: Iterable[Node]) -> None:
    """A dimension read at one fixed entry, as a broadcast one is, must keep its size."""
    for formula in formulas:
        for node in formula.walk():
            if node.op != "read" or node.own[0] is not old:
                continue
            for axis, index in enumerate(node.args):
                if index.op == "const" and old.tensor.shape[axis] != new.tensor.shape[axis]:
                    wanted = ["…"] * len(node.args)
                    wanted[axis] = str(old.tensor.shape[axis])
                    found = list(new.tensor.shape)
                    raise errors.tensor_shape("bind", name, found, f"[{', '.join(wanted)}]")


def _one_table(a: Parameter, b: Parameter) -> bool:
    """Whether two parameters are tables of one tensor, under one name and declared alike."""
    return (
        isinstance(a, Table) and isinstance(b, Table) and a.tensor is b.tensor and a.text == b.text
    )


def _told_apart(places: Iterable[Parameter]) -> None:
    """Have a compiled function compiled anew where two of its parameters have become one.

    torch.compile does not notice that by itself (torch 2.13). It compares the texts, numbers and
    tensors that tell two apart; where none does, their identities, so that each call compiles.
    """
    distinct = list(dict.fromkeys(places))
    for n, one in enumerate(distinct):
        for other in distinct[:n]:
            if one.text == other.text and not _differ(one, other):
                id(one)
                id(other)


def _differ(a: Parameter, b: Parameter) -> bool:
    """Whether torch.compile notices when two parameters of one text become one."""
    if isinstance(a, Scalar) and isinstance(b, Scalar):
        return a.value != b.value
    tensors = [p.tensor for p in (a, b) if isinstance(p, Table)]
    # It does not compare the identities of an `nn.Parameter`.
    of_graph = not any(isinstance(tensor, torch.nn.Parameter) for tensor in tensors)
    return of_graph and tensors[0] is not tensors[1]


Self = TypeVar("Self", bound="Expression")

_FORMULAS: Final = ("mask_node", "bias_node", "label")


class Expression(Shown):
    """A mask, a bias or a score: two formulas with their values. Never changed in place.

    An expression of `normal_form.of_form` makes its formulas when something asks for them.

    `kind` says which of the three it is. `operands` are the masks joined by the `&`, `|`, `^` or
    `~` of a mask; a mask that was bound, shifted, moved or pickled has none.

    `==` compares structure, scalar values and tensor objects; the hash is made of structure and
    scalars. A pickled copy of an expression that holds tensors is therefore unequal to it.
    """

    kind: Literal["mask", "bias", "score", ""] = ""
    mask_node: Node
    bias_node: Node
    label: Label
    operands: tuple[Expression, ...] = ()

    def __init__(
        self,
        mask_node: Node,
        bias_node: Node,
        label: Label,
        operands: tuple[Expression, ...] = (),
    ) -> None:
        object.__setattr__(self, "mask_node", mask_node)
        object.__setattr__(self, "bias_node", bias_node)
        object.__setattr__(self, "label", label)
        object.__setattr__(self, "operands", operands)

    def __repr__(self) -> str:
        return str(self.named_apart.label)

    def __eq__(self, other: object) -> bool:
        """Whether both are one expression: the same parts in any order, numbers and tensor objects.

        A copied tensor is another object: `ma.equivalent` compares the pairs that masks keep.
        """
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
        if self.label.kind == "formula":
            raise errors.MaskTypeError(
                f"{errors.used_as_bool(self)} Write `(x == 1) | (x == 2)` for `x in (1, 2)`, and "
                "ma.maximum(x, y), ma.minimum(x, y) for `max` and `min` of index expressions."
            )
        raise errors.used_as_bool(self)

    def __setattr__(self, name: str, value: object) -> None:
        raise errors.assigned(self, name, name in self.parameters)

    def __delattr__(self, name: str) -> None:
        raise errors.deleted(self, name)

    if not TYPE_CHECKING:  # a type checker would take an expression for a function, or a list

        def __call__(self, *given: object, **named: object) -> NoReturn:
            raise errors.MaskTypeError(
                f"`{self!r}(…)`: an expression is a value and takes no arguments. Compose it, "
                f"`{self!r} & sliding(256)`; ask it with lengths, `.to_dense(q_len, kv_len)`; as a "
                "function of indices it is `.to_mask_mod()`, or `.to_score_mod()`."
            )

        def __getitem__(self, *at: object) -> NoReturn:
            raise errors.MaskTypeError(
                f"`{self!r}[…]`: an expression has no entries to read, search or iterate over. "
                "`.to_dense(q_len, kv_len)[…]` takes entries of the matrix, `.operands` are the "
                "masks that `&`, `|`, `^` or `~` joins, and `.shift(q=…, kv=…)` moves it to the "
                "rows of a slice."
            )

        # Not `__iter__`, which would make it an `Iterable`: `for` asks for the entry 0.
        __setitem__ = __contains__ = __getitem__

        def __len__(self) -> NoReturn:
            raise errors.MaskTypeError(
                f"`len({self!r})`: an expression is a formula for every length. A call such as "
                "`.to_dense(q_len, kv_len)` or `attention(q, k, v, mask)` says the length."
            )

        # For a type checker every name would be an attribute.
        def __getattr__(self, name: str) -> Any:
            made = self.__dict__.get("_formulas") if name in _FORMULAS else None
            if made is None:
                raise no_attribute(type(self).__name__, name)
            # Formulas and label share their parameters: of threads that ask, one makes them all.
            parts = self.__dict__.setdefault("_made", made())
            self.__dict__.update(zip(_FORMULAS, parts, strict=True))
            return self.__dict__[name]

    def __getstate__(self) -> tuple[Node, Node, Label]:
        return self.mask_node, self.bias_node, self.label

    def __setstate__(self, state: tuple[Node, Node, Label]) -> None:
        for name, part in zip(_FORMULAS, state, strict=True):
            object.__setattr__(self, name, part)

    @property
    def _params(self) -> tuple[Parameter, ...]:
        return self.mask_node.params + self.bias_node.params

    @property
    def _named(self) -> dict[str, list[Scalar | Table]]:
        """Parameters by a unique name: the second window is `window_2`.

        Tables of one tensor and one name are one parameter, as in the proof.
        """
        found: dict[str, list[Scalar | Table]] = {}
        own = dict.fromkeys(self._params)
        written = [p for p in self.label.parameters() if p in own]
        for parameter in dict.fromkeys([*written, *own]):
            assert not isinstance(parameter, Slot)
            name, count = parameter.name, 1
            while name in found and not _one_table(found[name][0], parameter):
                count += 1
                name = f"{parameter.name}_{count}"
            found.setdefault(name, []).append(parameter)
        return found

    @property
    def named_apart(self: Self) -> Self:
        """The expression with each table under its name in `parameters`, to be printed."""
        return self._replaced(
            {
                table: Table(name, table.tensor, table.low, table.order)
                for name, tables in self._named.items()
                for table in tables
                if isinstance(table, Table) and name != table.name
            }
        )

    @property
    def parameters(self) -> dict[str, int | float | torch.Tensor]:
        """The values bound to the expression, by name; `bind` takes the same names."""
        return {
            name: p.value if isinstance(p, Scalar) else p.tensor
            for name, (p, *_) in self._named.items()
        }

    def bind(self: Self, values: Mapping[str, object] | None = None, /, **named: object) -> Self:
        """The same structure with other values: `mask.bind(window=512)`.

        The proof and the compiled kernel of the structure serve the new expression as they are.

        Args:
            values: new values by the names of `parameters`, also as keywords: a number for a
                number; for a tensor, another of its kind and rank, or a list or an array of
                entries, which goes to the device of the tensor it replaces.

        Raises:
            TypeError: a name the expression does not have, or a value of another kind.
            ValueError: a number that the mask or bias refuses, or a tensor of another rank.

        Examples:
            >>> sliding(256).bind(window=512)
            sliding(512)
        """
        if torch.compiler.is_compiling():
            _told_apart(self._places)
        if values is not None and not isinstance(values, Mapping):
            raise errors.MaskTypeError(
                f"bind({values!r}): values are bound by name. Write mask.bind(window=512), or "
                "mask.bind({'window': 512})."
            )
        return self._bound_to({**(values or {}), **named})

    @property
    def _places(self) -> list[Parameter]:
        """The parameter at each place that holds one."""
        places = [*self.label.parameters(), *self._params]
        return places + [s for p in self._params if isinstance(p, Derived) for s in p.sources]

    @property
    def _sharing(self) -> str:
        """Which places hold one parameter, as a text: "0 1 0" where the first and the third do."""
        places = self._places
        number = {place: str(n) for n, place in enumerate(dict.fromkeys(places))}
        return " ".join([number[place] for place in places])

    def _bound_to(self: Self, values: Mapping[str, object]) -> Self:
        """`bind`, for a compiled function that is compiled anew where `_sharing` is another."""
        replacement: dict[Parameter, Parameter] = {}
        known = self._named
        for name, value in values.items():
            if name not in known:
                raise unknown_parameter(name, list(known))
            first, *more = known[name]
            formulas = (self.mask_node, self.bias_node)
            new = replacement[first] = rebound(name, first, value, formulas)
            for old in more:
                rebound(name, old, value, formulas)  # checked where it is read, too
                replacement[old] = new
        return self._replaced(replacement)

    def to(self: Self, device: torch.device | str) -> Self:
        """The same expression with every tensor on `device`; their dtypes stay."""
        if isinstance(device, torch.dtype):
            raise errors.MaskTypeError(
                f"to({device}): an expression moves to a device, and its tensors keep their "
                "dtypes. Write mask.to('cuda'); convert a tensor before it enters: "
                "alibi(slopes.bfloat16())."
            )
        tables = [p for p in self._places if isinstance(p, Table)]
        moved = [p for p in tables if not isinstance(p, Derived) or p.fixed]  # others follow
        tensors = {p.tensor: on_device(p.tensor, device) for p in moved}
        return self._replaced({p: p.with_tensor(tensors[p.tensor]) for p in moved})

    def _replaced(self: Self, replacement: dict[Parameter, Parameter]) -> Self:
        if not replacement:
            return self
        replacement = with_derived(self._params, replacement)

        def other(parameter: Parameter) -> Parameter:
            return replacement.get(parameter, parameter)

        return type(self)(
            nodes.with_parameters(self.mask_node, other),
            nodes.with_parameters(self.bias_node, other),
            self.label.replace(replacement),
        )

    def at(self: Self, q: Position | None = None, kv: Position | None = None) -> Self:
        """M'(q, k) = M(`q`, `kv`): queries and keys at other positions than their rows.

        For a cache that is a ring or lies in pages, and for tokens in another order. A pair with a
        negative position is dropped: a slot not yet written, a page that no sequence owns, padding.
        (A bias alone drops nothing.)

        Args:
            q: positions of the queries: an index expression, such as `q_idx + scalar(n, low=0)`; an
                integer tensor `[q_len]` or `[batch, q_len]` on the device of the inputs, or a
                list; or an integer >= 0 or 0-d tensor, if all have the same. None leaves them.
            kv: positions of the keys, likewise: `table(pages)[batch, kv_idx // 16] * 16 + kv_idx %
                16` where page i of a sequence holds the tokens from `pages[batch, i] * 16` on.

        Raises:
            MaskTypeError: a position that is no integer.
            MaskValueError: a negative integer, or a tensor of another shape.

        Examples:
            >>> (causal & sliding(3)).at(q=4, kv=[3, 4, -1, 2]).to_dense(1, 4)[0, 0].int().tolist()
            [[1, 1, 0, 1]]
        """
        given = {"q": q, "kv": kv}
        places = {name: position(name, at) for name, at in given.items() if at is not None}
        kept = () if self.kind == "bias" else tuple(places.values())
        return self._moved("at", places, places, kept)

    def shift(self: Self, q: Shift = 0, kv: Shift = 0) -> Self:
        """M'(q, k) = M(q + `q`, k + `kv`): a step of a KV cache, a shard, a chunk of prefill.

        `at` takes any positions, and drops pairs with a negative position; `shift` keeps them.

        Args:
            q: positions to add to the query index: an integer, or an integer tensor that is 0-d
                or per batch `[batch]`, on the device of the inputs.
            kv: the same for the key index.

        Examples:
            >>> causal.shift(q=2).to_dense(1, 4)[0, 0].int().tolist()
            [[1, 1, 1, 0]]
        """
        moves = {
            name: offset(name, plain_number(move))
            for name, move in (("q", q), ("kv", kv))
            if not is_zero(move)
        }
        places = {
            name: nodes.add(Node("index", "int", data=f"{name}_idx"), move)
            for name, move in moves.items()
        }
        return self._moved("shift", places, {name: m.params[0] for name, m in moves.items()})

    def _moved(
        self: Self,
        call: Literal["at", "shift"],
        places: dict[str, Node],
        written: Mapping[str, Node | Parameter],
        kept: tuple[Node, ...] = (),
    ) -> Self:
        """The expression at other places, printed as `written`; places in `kept` must be >= 0."""
        if not places:
            return self
        by_index = {f"{name}_idx": place for name, place in places.items()}
        inside = [nodes.ge(place, nodes.const(0)) for place in kept if not never_negative(place)]
        parts = [part for pair in written.items() for part in pair]
        return type(self)(
            nodes.conjunction(moved(self.mask_node, by_index), *inside),
            moved(self.bias_node, by_index),
            Label(call, (self.label, *parts)),
        )


def both(a: Self, b: Self) -> Self:
    """The mask `a & b`."""
    node = nodes.conjunction(a.mask_node, b.mask_node)
    return type(a)(node, nodes.SCORE, Label("&", (a.label, b.label)), (a, b))


def either(a: Self, b: Self) -> Self:
    """The mask `a | b`."""
    node = nodes.disjunction(a.mask_node, b.mask_node)
    return type(a)(node, nodes.SCORE, Label("|", (a.label, b.label)), (a, b))


_LONGEST_EXCLUSIVE: Final = 1 << 19  # characters of both formulas: about a dozen masks


def exclusive(a: Self, b: Self) -> Self:
    """The mask `a ^ b`: pairs that one of the two keeps.

    Raises:
        MaskValueError: masks that were joined by `^` so often that the formula, which has both
            twice, would be too large.
    """
    if len(a.mask_node.skeleton) + len(b.mask_node.skeleton) > _LONGEST_EXCLUSIVE:
        raise errors.MaskValueError(
            "`^`: the formula would be too large. `a ^ b` is computed as `a & ~b | b & ~a`, so "
            "each `^` doubles it. For the pairs that an odd number of masks keep, write "
            "`(where(a, 1, 0) + where(b, 1, 0) + where(c, 1, 0)) % 2 == 1`."
        )
    one = nodes.conjunction(a.mask_node, nodes.negation(b.mask_node))
    other = nodes.conjunction(b.mask_node, nodes.negation(a.mask_node))
    return type(a)(
        nodes.disjunction(one, other), nodes.SCORE, Label("^", (a.label, b.label)), (a, b)
    )


def complement(mask: Self) -> Self:
    """The mask `~mask`."""
    label = Label("~", (mask.label,))
    return type(mask)(nodes.negation(mask.mask_node), nodes.SCORE, label, (mask,))


def with_formula(mask: Self, node: Node) -> Self:
    """A mask of another formula, printed as the formula."""
    return type(mask)(node, nodes.SCORE, Label("formula", (node,)))


def unknown_parameter(name: str, known: list[str]) -> errors.MaskTypeError:
    have = ", ".join(known) if known else "none"
    return errors.MaskTypeError(
        f"bind({name}=…): this expression has no parameter {name!r}; it has {have}."
    )


def bound_type(name: str, value: object, wanted: str) -> errors.MaskTypeError:
    return errors.MaskTypeError(
        f"bind({name}=…): expected {wanted}, as it was built with, got {type(value).__name__}. "
        "Another kind of value is another structure: build a new expression."
    )


_ASKED_OF_MASKS = frozenset(
    (
        *("show", "prove", "blocks", "segments", "to_dense", "cost", "bandwidth", "is_empty"),
        *("witness", "rows_have_a_key", "simplify", "to_mask_mod", "complement"),
    )
)
_MOVES = frozenset(("cuda", "cpu", "half", "bfloat16", "float", "double"))


def no_attribute(kind: str, name: str) -> errors.MaskAttributeError:
    """The error for an attribute that a kind of expression ("Mask", "Bias", "Score") lacks."""
    text = f"a {kind} has no attribute {name!r}."
    if name in _ASKED_OF_MASKS and kind == "Score":
        text += f" Its mask has: write score.mask.{name}(…)."
    if name in _ASKED_OF_MASKS and kind == "Bias":
        text += (
            " Masks have it, and a bias keeps every pair; bias.plot(…) draws what the bias adds, "
            "(ma.everything + bias).to_dense(…) makes a tensor of it."
        )
    if name in _MOVES:
        text += " Write mask.to('cuda') or mask.to('cpu'): tensors move, and keep their dtypes."
    elif hasattr(torch.Tensor, name) and not name.startswith("_"):
        text += (
            " It is a formula, no tensor: mask.to_dense(q_len, kv_len) makes a tensor of a mask, "
            "and a model of transformers takes maskalg.integrations.transformers.model_mask(mask, "
            "batch, q_len) for attention_mask."
        )
    return errors.MaskAttributeError(text)
