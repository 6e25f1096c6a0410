"""Rules of torch's operations on formulas: one entry for each name."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial, reduce
from typing import Any, Final, cast

import torch

from ...errors import MaskTypeError
from ...formula import nodes
from ...formula.nodes import Node
from .. import arrays, messages
from ..arrays import Array, elementwise, single
from ..bounds import Bounds
from . import arithmetic as a
from .reals import REALS, gelu_tanh
from .wrapping import converted, dtype_of

_LARGEST: Final = torch.finfo(torch.float32).max


def lifted(value: Any) -> Array:
    """An argument of an operation as an array."""
    if isinstance(value, Array):
        return value
    if isinstance(value, (bool, int, float)):
        return single(nodes.const(value))
    if isinstance(value, tuple):
        rows = [lifted(item).node for item in value]
        return Array((len(rows),), lambda at: rows[int(str(at[0].data))])
    raise messages.untraceable(f"an argument of type {type(value).__name__}")


def elementwise_rules(bounds: Bounds) -> dict[str, Callable[..., Node]]:
    return {
        **_PLAIN,
        "multiply": partial(a.multiply, bounds),
        "rmul": partial(a.multiply, bounds),
        "square": lambda x: a.multiply(bounds, a.number(x), a.number(x)),
        "rsub": _swapped(partial(a.subtract, bounds)),
        "radd": partial(a.add, bounds),
        "floordiv": partial(a.floor_divide, bounds),
        "remainder": partial(a.remainder, bounds),
        "pow": partial(a.power, bounds),
        "rpow": _swapped(partial(a.power, bounds)),
        "fmod": partial(a.truncating_remainder, bounds),
        "math.floor": partial(a.floored, bounds),
        "math.ceil": lambda x: nodes.negate(a.floored(bounds, nodes.negate(x))),
    }


def _swapped(rule: Callable[[Node, Node], Node]) -> Callable[[Node, Node], Node]:
    return lambda x, y: rule(y, x)


_PLAIN: Final[dict[str, Callable[..., Node]]] = {
    **REALS,
    "rdiv": _swapped(a.divide),
    "rtruediv": _swapped(a.divide),
    "negative": a.negate,
    "pos": a.number,
    "abs": a.absolute,
    "eq": a.equal,
    "ne": lambda x, y: nodes.negation(a.equal(x, y)),
    "lt": _swapped(a.greater),
    "le": _swapped(a.greater_equal),
    "gt": a.greater,
    "ge": a.greater_equal,
    "minimum": a.minimum,
    "maximum": a.maximum,
    "clamp_min": a.at_least,
    "clamp_max": a.at_most,
    "and": a.bitwise("bitand", a.both),
    "or": a.bitwise("bitor", a.either),
    "xor": a.bitwise("bitxor", a.exactly_one),
    "rand": a.bitwise("bitand", a.both),
    "ror": a.bitwise("bitor", a.either),
    "rxor": a.bitwise("bitxor", a.exactly_one),
    "invert": a.invert,
    "logical_and": a.both,
    "logical_or": a.either,
    "logical_xor": a.exactly_one,
    "logical_not": lambda x: nodes.negation(a.truth(x)),
    "lshift": a.shift_left,
    "rshift": a.shift_right,
    "sign": a.sign,
    "masked_fill": lambda x, mask, value: a.where(mask, value, x),
    "where": a.where,
    "method where": lambda x, condition, other: a.where(condition, x, other),
    "float": a.real,
    "int": a.short,
    "int32": a.short,
    "long": a.whole,
    "bool": a.truth,
    "clone": lambda x: x,
    "math.trunc": a.whole,
}


# --- operations with arguments that are not values -----------------------------------------------


def _add(bounds: Bounds, x: Any, y: Any, *, alpha: float = 1) -> Array:
    return elementwise(partial(a.add, bounds), lifted(x), _scaled(bounds, alpha, y))


def _subtract(bounds: Bounds, x: Any, y: Any, *, alpha: float = 1) -> Array:
    return elementwise(partial(a.subtract, bounds), lifted(x), _scaled(bounds, alpha, y))


def _scaled(bounds: Bounds, alpha: float, y: Any) -> Array:
    if alpha == 1:
        return lifted(y)
    return elementwise(partial(a.multiply, bounds), lifted(alpha), lifted(y))


def _divide(bounds: Bounds, x: Any, y: Any, *, rounding_mode: str | None = None) -> Array:
    rules: dict[str | None, Callable[[Node, Node], Node]] = {
        None: a.divide,
        "floor": partial(a.floor_divide, bounds),
        "trunc": partial(a.truncating_divide, bounds),
    }
    return elementwise(rules[rounding_mode], lifted(x), lifted(y))


def _clamp(bounds: Bounds, x: Any, min: Any = None, max: Any = None) -> Array:
    result = lifted(x)
    if min is not None:
        result = elementwise(a.at_least, result, lifted(min))
    if max is not None:
        result = elementwise(a.at_most, result, lifted(max))
    return result


def _nan_to_num(bounds: Bounds, x: Any, nan: float = 0.0) -> Array:
    """NaN replaced by a number, infinities by the largest finite ones."""

    def replaced(value: Node) -> Node:
        if value.kind != "real":
            return value
        finite = nodes.minimum(nodes.maximum(value, nodes.const(-_LARGEST)), nodes.const(_LARGEST))
        return nodes.where(nodes.eq(value, value), finite, nodes.const(float(nan)))

    return elementwise(replaced, lifted(x))


def _extremum(rule: Callable[[Node, Node], Node]) -> Callable[..., Array]:
    def special(
        bounds: Bounds, x: Any, other: Any = None, dim: int | None = None, keepdim: bool = False
    ) -> Array:
        if isinstance(other, Array):
            return elementwise(rule, lifted(x), other)
        if dim is not None or other is not None:
            # torch also returns the indices of the extremes.
            raise messages.untraceable("max or min along a dimension")
        return arrays.reduced(lambda *entries: reduce(rule, entries), lifted(x))

    return special


def _joined(rule: Callable[[Node, Node], Node], unit: Node) -> Callable[..., Array]:
    def special(bounds: Bounds, x: Any, dim: int | None = None, keepdim: bool = False) -> Array:
        if isinstance(dim, tuple) and len(dim) == 1:
            dim = dim[0]
        return arrays.reduced(lambda *entries: reduce(rule, entries, unit), lifted(x), dim, keepdim)

    return special


def _sum(bounds: Bounds, *args: Any, **options: Any) -> Array:
    return _joined(partial(a.add, bounds), nodes.const(0))(bounds, *args, **options)


def _isin(bounds: Bounds, x: Any, values: Any, *, invert: bool = False, **_of_speed: bool) -> Array:
    """Whether x is one of up to 128 values."""
    listed = [a.number(value) for value in lifted(values).entries()]

    def among(value: Node) -> Node:
        value = converted(a.number(value))  # torch compares in the larger of both dtypes
        found = reduce(a.either, [a.equal(value, one) for one in listed], nodes.FALSE)
        return nodes.negation(found) if invert else found

    return elementwise(among, lifted(x))


def _dot(bounds: Bounds, x: Array, y: Array) -> Array:
    if len(x.shape) != 1 or len(y.shape) != 1:
        raise messages.untraceable("a product of matrices")
    products = elementwise(partial(a.multiply, bounds), x, y)
    return arrays.reduced(lambda *entries: nodes.add(*map(a.number, entries)), products)


def _getitem(bounds: Bounds, x: Array, places: Any) -> Array:
    listed = places if isinstance(places, tuple) else (places,)
    return arrays.indexed(x, [_place(place) for place in listed], bounds)


def _embedding(
    bounds: Bounds,
    places: Any,
    x: Array,
    padding_idx: Any = None,
    max_norm: Any = None,
    **rest: Any,
) -> Array:
    """A row of a table. Options that change the table or its gradient have no formula."""
    if padding_idx is not None or max_norm is not None or rest.get("scale_grad_by_freq"):
        raise messages.untraceable("embedding(…) with padding_idx, max_norm or scale_grad_by_freq")
    return _getitem(bounds, x, places)


def _place(place: Any) -> Any:
    if place is None or place is ... or isinstance(place, slice):
        return place
    found = lifted(place)
    if found.shape:
        raise messages.untraceable("indexing with a row of indices")
    node = a.number(found.node)
    if node.kind != "int":
        raise MaskTypeError(
            "a tensor is indexed by a real number. Write `x.long()` for its integer part."
        )
    return node


def _to(bounds: Bounds, x: Array, dtype: Any = None, *rest: Any, **options: Any) -> Array:
    given = (options.get("dtype"), dtype, *rest)
    found = next((item for item in given if isinstance(item, (torch.dtype, Array))), None)
    if isinstance(found, Array):  # x.type_as(score)
        found = dtype_of(found.any_node)
    if found is None or _holds(found, x):
        return x if found is None else _cast(x, found)
    rounds = found.is_floating_point and x.kind != "bool"
    if found != torch.bool and found.itemsize < 4 and (rounds or not found.is_floating_point):
        raise MaskTypeError(
            f"a conversion to {found} rounds or wraps, which no formula does. Write `x.float()` or "
            f"`x.long()`, {messages.OPAQUE}."
        )
    if found == torch.float64 and bounds.exact:
        raise messages.untraceable("a conversion to torch.float64, which no mask is computed in,")
    return _cast(x, found)


def _holds(dtype: torch.dtype, x: Array) -> bool:
    """Whether a constant is the same number in `dtype` and in float32."""
    if x.shape or x.node.op != "const":
        return False
    value = cast(float, x.node.data)
    return bool(torch.tensor(value).to(dtype) == torch.tensor(value, dtype=torch.float64))


def _cast(x: Array, dtype: torch.dtype) -> Array:
    if dtype == torch.bool:
        return elementwise(a.truth, x)
    whole = a.short if dtype == torch.int32 else a.whole
    return elementwise(a.real if dtype.is_floating_point else whole, x)


def _filled(value: float) -> Callable[..., Array]:
    """`x.new_zeros(size)`, `zeros_like(x)` and so on, with the dtype of x."""

    def special(bounds: Bounds, x: Any, *shape: Any, dtype: Any = None, **options: Any) -> Array:
        made = single(nodes.const(value))
        return _to(bounds, made, lifted(x)) if dtype is None else _cast(made, dtype)

    return special


def _full(bounds: Bounds, *args: Any, dtype: Any = None, **options: Any) -> Array:
    """`full(size, value)`, `tensor(value)`."""
    value = options.get("fill_value", args[-1])
    return _to(bounds, lifted(value), dtype)


def _full_like(bounds: Bounds, x: Any, *args: Any, dtype: Any = None, **options: Any) -> Array:
    """`x.new_full(size, value)`, `full_like(x, value)`, with the dtype of x."""
    value = options.get("fill_value", args[-1] if args else None)
    return _to(bounds, lifted(value), lifted(x) if dtype is None else dtype)


def _gelu(bounds: Bounds, x: Array, approximate: str = "none") -> Array:
    return elementwise(gelu_tanh if approximate == "tanh" else REALS["gelu"], x)


def _size(bounds: Bounds, x: Array, dim: int) -> Array:
    return single(nodes.const(x.shape[dim]))


def _numel(bounds: Bounds, x: Array) -> Array:
    return single(nodes.const(math.prod(x.shape)))


SPECIAL: Final[dict[str, Callable[..., Any]]] = {
    "add": _add,
    "subtract": _subtract,
    "div": _divide,
    "clamp": _clamp,
    "nan_to_num": _nan_to_num,
    "max": _extremum(a.maximum),
    "min": _extremum(a.minimum),
    "any": _joined(a.either, nodes.FALSE),
    "all": _joined(a.both, nodes.TRUE),
    "sum": _sum,
    "isin": _isin,
    "dot": _dot,
    "embedding": _embedding,
    "getitem": _getitem,
    "index": _getitem,
    "to": _to,
    "double": partial(_to, dtype=torch.float64),
    "half": partial(_to, dtype=torch.float16),
    "bfloat16": partial(_to, dtype=torch.bfloat16),
    "short": partial(_to, dtype=torch.int16),
    "type": _to,
    "type_as": _to,
    "unsqueeze": lambda bounds, x, dim: arrays.unsqueezed(x, dim),
    "squeeze": lambda bounds, x, dim=None: arrays.squeezed(x, dim),
    "new_ones": _filled(1.0),
    "new_zeros": _filled(0.0),
    "ones_like": _filled(1.0),
    "zeros_like": _filled(0.0),
    "full": _full,
    "new_full": _full_like,
    "full_like": _full_like,
    "gelu": _gelu,
    "size": _size,
    "numel": _numel,
}

# Positions of arguments that must be plain numbers: dimensions.
KNOWN: Final = dict.fromkeys(("any", "all", "sum", "unsqueeze", "squeeze", "size"), (1, 2))
