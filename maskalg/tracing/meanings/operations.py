"""Recorded operations as formulas: the operators, functions and methods of torch by their names.

`x + y`, `torch.add(x, y)`, `x.add(y)` and `torch.ops.aten.add(x, y)` are one entry, `add`, of the
tables in `rules`. An operation that is missing there is an error that names it.
"""

from __future__ import annotations

import math
from typing import Any, Final

import torch
from torch.fx import Graph
from torch.fx import Node as Recorded

from ... import errors
from ...formula import nodes
from ...formula.parameters import Table
from .. import arrays, messages
from ..arrays import Array, elementwise, single
from ..bounds import Bounds
from ..recorder import Recorder
from .minus_infinity import is_minus_infinity
from .rules import KNOWN, SPECIAL, elementwise_rules, lifted

# Custom operators of other libraries that compute a function of ours.
_CUSTOM: Final = {"approx::tanh": "tanh"}

_SAME: Final = {
    **{"sub": "subtract", "mul": "multiply", "true_divide": "div", "divide": "div"},
    **{"truediv": "div", "floor_divide": "floordiv", "mod": "remainder", "neg": "negative"},
    **{"absolute": "abs", "not_equal": "ne", "less": "lt", "less_equal": "le", "greater": "gt"},
    **{"greater_equal": "ge", "bitwise_and": "and", "bitwise_or": "or", "bitwise_xor": "xor"},
    **{"bitwise_not": "invert", "inv": "invert", "clip": "clamp", "amax": "max", "amin": "min"},
    **{"bitwise_left_shift": "lshift", "bitwise_right_shift": "rshift", "float32": "float"},
    **{"inner": "dot", "vdot": "dot", "matmul": "dot", "contiguous": "clone", "item": "clone"},
    **{"iadd": "add", "isub": "subtract", "imul": "multiply", "itruediv": "div", "ipow": "pow"},
    **{"ifloordiv": "floordiv", "imod": "remainder", "iand": "and", "ior": "or", "ixor": "xor"},
    **{"new_tensor": "full", "tensor": "full", "scalar_tensor": "full", "positive": "pos"},
}


# Python's operators on numbers whose results depend on the precision of the numbers.
_ROUNDED: Final = (
    *("add", "radd", "subtract", "rsub", "multiply", "rmul", "div", "rdiv", "rtruediv"),
    *("floordiv", "remainder", "pow", "rpow", "lt", "le", "gt", "ge", "eq", "ne"),
)


# Functions that draw random numbers, where they are called on symbols.
_RANDOM: Final = (
    *("dropout", "alpha_dropout", "feature_alpha_dropout", "dropout1d", "dropout2d", "dropout3d"),
    *("rand_like", "randn_like", "randint_like", "bernoulli", "multinomial", "normal", "poisson"),
    *("rrelu", "gumbel_softmax", "native_dropout"),
)


class Formulas:
    """Formulas of the values in a recorder, made on demand."""

    def __init__(self, recorder: Recorder) -> None:
        self.bounds = Bounds(exact=nodes.SCORE not in recorder.indices.values())
        self._recorder = recorder
        self._found: dict[Recorded, Any] = {}

    def of(self, value: Any) -> Any:
        """The formula of an argument: an `Array`, or a plain value such as a slice."""
        if isinstance(value, Recorded):
            if value not in self._found:
                self._found[value] = self._formula(value)
            return self._found[value]
        if isinstance(value, (tuple, list)):
            return tuple([self.of(item) for item in value])
        if isinstance(value, slice):
            parts = (value.start, value.stop, value.step)
            return slice(*[self._known(part) for part in parts])
        return value

    def _known(self, value: Any) -> Any:
        """A number that must be plain: a captured one becomes a constant in another trace."""
        if isinstance(value, Recorded):
            raise self._recorder.demand(value, "a dimension, a slice or a dtype")
        return value

    def _formula(self, node: Recorded) -> Any:
        if node.op == "placeholder":
            parameter = self._recorder.parameters.get(node)
            if isinstance(parameter, Table):
                if is_minus_infinity(parameter.tensor):
                    return single(nodes.const(-math.inf))
                return arrays.of_table(parameter, self.bounds)
            if parameter is not None:
                return single(nodes.scalar(parameter))
            return single(self._recorder.indices[node])
        name = _name(node)
        args = [self.of(arg) for arg in node.args]
        named = {key: self.of(arg) for key, arg in node.kwargs.items()}
        if name == "getattr":
            return self._attribute(args[0], args[1], node)
        if name == "getitem" and isinstance(args[0], tuple):
            return args[0][self._known(node.args[1])]
        if self.bounds.exact and name in _ROUNDED and self._recorder.of_numbers(node):
            self._let_python_compute(node, name, args)
        rule = SPECIAL.get(name)
        if rule is not None:
            for place in KNOWN.get(name, ()):
                if place < len(node.args):
                    self._known(node.args[place])
            self._known(node.kwargs.get("dim"))
            try:
                return rule(self.bounds, *args, **named)
            except errors.MaskalgError:
                raise
            except TypeError:
                raise self._unknown(node) from None
        if name == "pow" and len(args) == 2:
            self._know_whole_power(node, *map(lifted, args))
        plain = elementwise_rules(self.bounds).get(name)
        if plain is None or len(args) > 3 or set(named) - {"inplace"}:
            raise self._unknown(node)
        return elementwise(plain, *[lifted(arg) for arg in args])

    def _know_whole_power(self, node: Recorded, base: Array, exponent: Array) -> None:
        """Make captured numbers in a power of integers constants: products need their values."""
        if "real" in (base.kind, exponent.kind) or not isinstance(node.args[1], Recorded):
            return
        for part in reversed(node.args):
            if isinstance(part, Recorded) and self._recorder.of_numbers(part):
                raise self._recorder.demand(part, "an exponent")

    def _let_python_compute(self, node: Recorded, name: str, args: list[Any]) -> None:
        """Make captured numbers in real arithmetic without tensors constants.

        Python computes it in 64 bits, and only the result is rounded: 25 * 0.6 is 15. Where 0.6 is
        rounded first, the product is more than 15.
        """
        quotient = name in ("div", "rdiv", "rtruediv")
        if quotient or "real" in [lifted(arg).kind for arg in args]:
            raise self._recorder.demand(node, _written(node))

    def _unknown(self, node: Recorded) -> Exception:
        """An operation without a rule: numbers become constants, so that Python computes it."""
        if self._recorder.of_numbers(node):
            return self._recorder.demand(node, _written(node))
        if _name(node) in _RANDOM:
            return messages.traced_random(_written(node).removesuffix("(…)"))
        return messages.untraceable(_written(node))

    def _attribute(self, value: Array, name: str, node: Recorded) -> Any:
        source = node.args[0]
        table = self._recorder.parameters.get(source) if isinstance(source, Recorded) else None
        if name == "shape" and isinstance(table, Table):
            return tuple([single(nodes.extent(table, axis)) for axis in range(table.tensor.ndim)])
        if name == "shape":
            return tuple([single(nodes.const(size)) for size in value.shape])
        raise messages.untraceable(f".{name}")


def _name(node: Recorded) -> str:
    """The name under which `rules` has an operation: without underscores, dots and module."""
    target = node.target
    if node.op == "call_method":
        name = str(target)
        if name == "where":  # the function takes the condition first
            return "method where"
    elif isinstance(target, (torch._ops.OpOverload, torch._ops.OpOverloadPacket)):
        packet = target.overloadpacket if isinstance(target, torch._ops.OpOverload) else target
        qualified: str = packet._qualified_op_name
        space, name = qualified.split("::")
        if space != "aten":
            name = _CUSTOM.get(qualified, qualified)
    else:
        name = getattr(target, "__name__", str(target))
        module = getattr(target, "__module__", None) or "torch"
        if module.split(".")[0] not in ("torch", "_operator", "builtins"):
            name = f"{module}.{name}"
    name = name.strip("_")
    return _SAME.get(name, name)


def refuse_changes_in_place(graph: Graph) -> None:
    """Raise where a value is changed in place: the formulas of earlier values would be wrong."""
    for node in graph.nodes:
        name = getattr(node.target, "__name__", str(node.target))
        of_torch = getattr(node.target, "__module__", None) != "_operator"
        ends = name.endswith("_") and not name.endswith("__")
        if node.op in ("call_method", "call_function") and of_torch and ends:
            raise messages.traced_in_place(name)
        if node.kwargs.get("inplace") or node.kwargs.get("out") is not None:
            raise messages.traced_in_place(name)


def _written(node: Recorded) -> str:
    """How the operation was written, for messages."""
    if node.op == "call_method":
        return f".{node.target}(…)"
    module = getattr(node.target, "__module__", None) or "torch"
    name = getattr(node.target, "__name__", str(node.target))
    return f"{module.replace('_operator', 'operator')}.{name}(…)"
