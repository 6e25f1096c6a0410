"""Records the operations of a function on torch.fx proxies for indices, numbers and tensors.

`make_fx` would run the function on tensors, and so need the value of every captured number. Here a
number stays a symbol, so that it can become a parameter.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Iterator
from typing import Any, Final, NoReturn

import numpy as np
import torch
from torch.fx import Graph, Proxy
from torch.fx import Node as Recorded
from torch.fx.proxy import GraphAppendingTracer
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

from ..errors import MaskTypeError
from ..formula.expression import Expression
from ..formula.nodes import Node
from ..formula.parameters import Scalar, Table
from ..formula.positions import IndexFormula
from . import messages

Key = tuple[object, ...]  # where a captured value was found


class NeedsValue(Exception):
    """Python itself needs the value of captured numbers or tensors: they become constants."""

    def __init__(self, keys: frozenset[Key]) -> None:
        super().__init__("a captured value is needed while tracing")
        self.keys = keys


class Symbol(Proxy):
    """A traced value: an index, the score, a captured number or tensor, or a result of these."""

    tracer: Recorder

    def __getattr__(self, name: str) -> Any:
        known = self.tracer.known_attributes(self.node)
        return known[name] if name in known else super().__getattr__(name)


def _needing(what: str) -> Callable[..., NoReturn]:
    """A method by which Python asks for the value of a symbol."""

    def refused(self: Symbol, *_others: object) -> NoReturn:
        self.tracer.needs_value(self, what)

    return refused


def _recorded(function: Callable[[Any], Any]) -> Callable[[Symbol], Any]:
    """A method that records a call of the function."""
    return lambda self: self.tracer.create_proxy("call_function", function, (self,), {})


_VALUE_NEEDED: Final = {
    "hash": "a dict, a set or a cached function",
    "len": "len()",
    "int": "int()",
    "float": "float()",
    "index": "an integer (range, a list index, math)",
    "round": "round()",
    "contains": "`in`",
}
for _name, _what in _VALUE_NEEDED.items():
    setattr(Symbol, f"__{_name}__", _needing(_what))
for _function in (math.floor, math.ceil, math.trunc):
    setattr(Symbol, f"__{_function.__name__}__", _recorded(_function))


def _in_place(operation: Callable[[Any, Any], Any]) -> Callable[[Symbol, object], Symbol]:
    """`x += y`: every name of a tensor sees the change; a Python number is replaced."""

    def changed(self: Symbol, other: object) -> Symbol:
        result: Symbol = operation(self, other)
        if self.tracer.of_numbers(self.node):
            return result
        self.node = result.node
        return self

    return changed


for _name in ("add", "sub", "mul", "truediv", "floordiv", "mod", "pow", "and", "or", "xor"):
    setattr(Symbol, f"__i{_name}__", _in_place(getattr(operator, f"__{_name}__")))


class Recorder(GraphAppendingTracer):
    """The graph of one run of a function, and what its placeholders stand for."""

    def __init__(self) -> None:
        super().__init__(Graph())
        self.parameters: dict[Recorded, Scalar | Table] = {}
        self.indices: dict[Recorded, Node] = {}
        self._keys: dict[Recorded, Key] = {}
        self._known: dict[Key, Symbol] = {}

    def proxy(self, node: Recorded) -> Symbol:
        return Symbol(node, self)

    def index(self, name: str, node: Node) -> Symbol:
        """The symbol of an argument of the function: an index, or the score."""
        symbol = self._placeholder(name)
        self.indices[symbol.node] = node
        return symbol

    def number(self, name: str, value: int | float, key: Key) -> Symbol:
        """The symbol of a captured number; the same one for the same place."""
        if key not in self._known:
            self._capture(key, Scalar(_identifier(name), value))
        return self._known[key]

    def tensor(self, name: str, tensor: torch.Tensor) -> Symbol:
        """The symbol of a captured tensor; the same one for the same tensor."""
        key = ("tensor", id(tensor))
        if key not in self._known:
            self._capture(key, Table(_identifier(name), tensor))
        return self._known[key]

    def create_arg(self, a: Any) -> Any:
        if isinstance(a, torch.Tensor):
            return self.tensor("tensor", a).node
        if isinstance(a, (Expression, IndexFormula)):
            raise messages.expression_within(a)
        if isinstance(a, np.generic):
            return a.item()
        return super().create_arg(a)

    def to_bool(self, obj: Proxy) -> bool:
        sign = _compared_join(obj.node)
        if sign is not None and not _sources(obj.node).isdisjoint(self.indices):
            raise MaskTypeError(
                f"the function has a chain of comparisons joined by `{sign}`. Comparisons need "
                f"parentheses, for Python binds `{sign}` tighter: write `(q_idx >= kv_idx) {sign} "
                "(kv_idx < 3)`."
            )
        self.needs_value(obj, "`if`, `and`, `or`, `not` or a chained comparison")

    def iter(self, obj: Proxy) -> Iterator[Any]:
        self.needs_value(obj, "a loop")

    def known_attributes(self, node: Recorded) -> dict[str, object]:
        """Attributes of a value that Python may ask for while the function is traced."""
        parameter = self.parameters.get(node)
        if isinstance(parameter, Table):
            tensor = parameter.tensor
            return {
                "ndim": tensor.ndim,
                "dtype": tensor.dtype,
                "device": tensor.device,
                "is_cuda": tensor.is_cuda,
                "requires_grad": tensor.requires_grad,
            }
        if node in self.indices:
            whole = self.indices[node].kind == "int"
            dtype = torch.int64 if whole else torch.float32
            return {"ndim": 0, "dtype": dtype, "device": torch.device("cpu")}
        return {} if self.of_numbers(node) else {"device": self._device(node)}

    def _device(self, node: Recorded) -> torch.device:
        """The device of a computed value: that of the first captured tensor it reads."""
        found = [self.parameters.get(source) for source in _sources(node)]
        tensors = [parameter.tensor for parameter in found if isinstance(parameter, Table)]
        return tensors[0].device if tensors else torch.device("cpu")

    def captured(self) -> dict[Key, Scalar | Table]:
        """Captured parameters, by the place each was found."""
        return {self._keys[node]: parameter for node, parameter in self.parameters.items()}

    def read_whole(self, node: Recorded) -> bool:
        """Whether every read of a captured tensor has an index for each of its dimensions.

        Then the formula does not depend on the sizes of the tensor.
        """
        table = self.parameters[node]
        return (
            not isinstance(table, Table)
            or table.tensor.ndim == 0
            or all(_is_entry(user, node, table.tensor.ndim) for user in node.users)
        )

    def needs_value(self, proxy: Proxy, what: str) -> NoReturn:
        """Python needs a value: possible for captured ones, an error for indices and scores."""
        raise self.demand(proxy.node, what)

    def demand(self, node: Recorded, what: str) -> Exception:
        """The exception to raise where the value of `node` must be known."""
        sources = _sources(node)
        for source in self.indices:
            if source in sources:
                return MaskTypeError(
                    f"the function uses a value that depends on {source.name} in {what}, which a "
                    "formula cannot follow. Write torch.where(condition, a, b) for a choice, `&`, "
                    "`|`, `~` for logic and torch.minimum or torch.maximum for min and max, "
                    f"{messages.OPAQUE}."
                )
        return NeedsValue(frozenset(self._keys[source] for source in sources))

    def of_numbers(self, node: Recorded) -> bool:
        """Whether a value depends on captured numbers alone."""
        sources = [self.parameters.get(source) for source in _sources(node)]
        return all(isinstance(parameter, Scalar) for parameter in sources)

    def _placeholder(self, name: str) -> Symbol:
        return self.proxy(self.graph.placeholder(name))

    def _capture(self, key: Key, parameter: Scalar | Table) -> None:
        symbol = self._placeholder(parameter.name)
        self.parameters[symbol.node] = parameter
        self._keys[symbol.node] = key
        self._known[key] = symbol


class Reads(TorchFunctionMode):
    """Records `tensor[symbol]` of tensors that were not found among the captures.

    An example is an attribute of an object that is no function. torch would ask the symbol for its
    value.
    """

    def __init__(self, recorder: Recorder) -> None:
        super().__init__()
        self._recorder = recorder

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        if func is torch.Tensor.__getitem__ and type(args[0]) is not Symbol:
            indices = args[1] if isinstance(args[1], tuple) else (args[1],)
            if any(type(index) is Symbol for index in indices):
                table: Any = self._recorder.tensor("tensor", args[0])
                return table[args[1]]
        return func(*args, **(kwargs or {}))


class NoRandomness(TorchDispatchMode):
    """Refuses random numbers: a formula would keep those drawn while tracing."""

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        plain = isinstance(func, torch._ops.OpOverload)
        if plain and torch.Tag.nondeterministic_seeded in func.tags:
            raise messages.traced_random(f"torch.{func.overloadpacket.__name__}")
        return func(*args, **(kwargs or {}))


def _is_instance(value: object, kinds: Any) -> bool:
    return (
        issubclass(_stands_for(value), kinds) if type(value) is Symbol else isinstance(value, kinds)
    )


def _has_attribute(value: object, name: str) -> bool:
    return hasattr(_stands_for(value) if type(value) is Symbol else value, name)


def _type(value: object, *more: Any) -> Any:
    return type(value, *more) if more or type(value) is not Symbol else _stands_for(value)


# Replacements that traced functions call: each answers for the value that a symbol stands for. (A
# symbol that lies about its class crashes torch's argument parser.)
BUILTINS: Final = {"isinstance": _is_instance, "hasattr": _has_attribute, "type": _type}


def _stands_for(symbol: Symbol) -> type:
    parameter = symbol.tracer.parameters.get(symbol.node)
    if isinstance(parameter, Scalar):
        return type(parameter.value)
    if symbol.tracer.of_numbers(symbol.node):
        symbol.tracer.needs_value(symbol, "isinstance() or type()")
    return torch.Tensor


def _is_entry(node: Recorded, table: Recorded, ndim: int) -> bool:
    """Whether a recorded operation is `table[i, j]` with an index for each dimension."""
    if node.target is not operator.getitem or node.args[0] is not table:
        return False
    places = node.args[1] if isinstance(node.args[1], tuple) else (node.args[1],)
    return len(places) == ndim and all(isinstance(p, (Recorded, int)) for p in places)


def _compared_join(node: Recorded) -> str | None:
    """The sign inside a side of a comparison: `|` in the chain `x >= y | z < 3`."""
    if node.target not in (operator.ge, operator.gt, operator.le, operator.lt, operator.eq):
        return None
    signs: dict[Any, str] = {operator.or_: "|", operator.and_: "&", operator.xor: "^"}
    return next((signs[n.target] for n in node.all_input_nodes if n.target in signs), None)


def _sources(node: Recorded) -> set[Recorded]:
    """The placeholders a recorded value depends on."""
    found: set[Recorded] = set()
    waiting, seen = [node], {node}
    while waiting:
        current = waiting.pop()
        if current.op == "placeholder":
            found.add(current)
        for source in current.all_input_nodes:
            if source not in seen:
                seen.add(source)
                waiting.append(source)
    return found


def _identifier(name: str) -> str:
    """A name for `bind`, with an underscore where a symbol of proofs has the same name."""
    return f"{name}_" if name in ("q", "k", "q0", "q1", "batch", "head") else name
