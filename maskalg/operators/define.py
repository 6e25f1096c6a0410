"""The operators `maskalg::attention_forward` and `maskalg::attention_backward`.

`maskalg::attention_float8`, for float8 inputs, and `maskalg::attention_pages`, for keys and values
in pages, have no gradients. Arguments are plain: tensors, numbers, and the structure of the
expression as text (its key). Numbers of the expression are arguments too, so one graph serves all
windows and all lengths.
"""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Callable, Hashable, Iterator, Sequence
from typing import Any, Final, NamedTuple

import torch

from .. import errors
from ..backends.call import Call, Result, scale_of
from ..backends.choice import backend_of
from ..backends.float8 import attend_float8
from ..backends.pages import attend_pages
from ..backends.results import empty_gradients, empty_result, in_order_of
from ..engine.float8 import Descales, descales_of
from ..engine.graphs import trees_allocate
from ..engine.keys import form_of
from ..engine.memory import Memory
from ..engine.normal_form import Bound
from ..engine.pages import Pages
from ..formula.watched import PLAIN
from ..values.weights import linear, softmax
from .inputs import check_tables, extents_of

Tensors = Sequence[torch.Tensor]
Results = tuple[torch.Tensor, torch.Tensor]

# The structure holds the formula of weights; these options say how the weights are used.
_WEIGHTS: Final = {
    "exp": softmax,
    "sum": linear,
    "mean": dataclasses.replace(linear, normalised=True),
}

_MOST_BYTES: Final = 1 << 22  # of the memory of a table that is kept alive
_OF_TABLES: Final = Memory(8)
_OF_NUMBERS: Final = Memory(256)

FORWARD: Final = "maskalg::attention_forward"
FLOAT8_FORWARD: Final = "maskalg::attention_float8"
PAGES_FORWARD: Final = "maskalg::attention_pages"
BACKWARD: Final = "maskalg::attention_backward"

_OPERANDS: Final = (
    "Tensor query, Tensor key, Tensor value, Tensor[] tables, str structure, SymInt[] integers, "
    "float[] reals, float? scale, str weights, bool lse_wanted, str backend, bool nan_safe) "
    "-> (Tensor, Tensor)"
)
_PAGES: Final = "Tensor[] pages, int? most_queries, Tensor[] descale"

torch.library.define(FORWARD, f"({_OPERANDS}")
torch.library.define(FLOAT8_FORWARD, f"(Tensor[] descale, {_OPERANDS}")
torch.library.define(PAGES_FORWARD, f"({_PAGES}, {_OPERANDS}")
torch.library.define(
    BACKWARD,
    "(Tensor query, Tensor key, Tensor value, Tensor[] tables, Tensor out, Tensor lse, "
    "Tensor grad_out, Tensor? grad_lse, str structure, SymInt[] integers, float[] reals, "
    "float? scale, str weights, bool[] wanted, str backend, bool nan_safe) -> Tensor[]",
)


class Operands(NamedTuple):
    """The arguments that every forward operator has, after its own."""

    query: torch.Tensor
    key: torch.Tensor
    value: torch.Tensor
    tables: Tensors
    structure: str
    integers: Sequence[int]
    reals: Sequence[float]
    scale: float | None
    weights: str
    lse_wanted: bool
    backend: str
    nan_safe: bool

    @property
    def inputs(self) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        return self.query, self.key, self.value

    def call(
        self,
        *,
        lse_wanted: bool = True,
        descales: Descales | None = None,
        pages: Pages | None = None,
    ) -> Call:
        """The checked call, as `call_of` makes it."""
        form = _form_of(self.structure, self.tables, self.integers, self.reals)
        return call_of(
            *(self.inputs, form, self.scale, self.weights),
            lse_wanted=lse_wanted, descales=descales, pages=pages, nan_safe=self.nan_safe,
        )  # fmt: skip


def _empty(call: Call, found: Operands) -> Result:
    query = found.query
    dtype = torch.float64 if query.dtype == torch.float64 else torch.float32
    lse = query.new_empty(query.shape[:3], dtype=dtype) if found.lse_wanted else None
    return empty_result(query, found.value.shape[-1], call.out_dtype), lse


def _float8_call(found: Operands, descale: Tensors) -> Call:
    """`descale` has three tensors, or none."""
    descales = descales_of(descale, *found.inputs) if descale else None
    return found.call(lse_wanted=found.lse_wanted, descales=descales)


def _pages_call(
    found: Operands, pages: Tensors, most_queries: int | None, descale: Tensors
) -> Call:
    """`pages` are table, lengths and, for packed queries, `cu_seqlens_q`.

    The structure already drops the keys and queries that a request does not have.
    """
    query, key, value = found.inputs
    starts = pages[2] if len(pages) > 2 else None
    where = Pages(pages[0], pages[1], starts, most_queries)
    # Factors have a batch entry for each request, and the heads of the pages.
    heads = (query, key.transpose(1, 2), value.transpose(1, 2))
    descales = descales_of(descale, *where.alike(*heads)) if descale else None
    return found.call(lse_wanted=found.lse_wanted, descales=descales, pages=where)


def _forward(call: Call, found: Operands) -> Result:
    """Output, without a sink, and lse, None unless it is wanted.

    For weights with a formula, the lse is the sum of the weights.
    """
    return backend_of(found.backend).compute(call, found.lse_wanted)


def _float8(call: Call, found: Operands) -> Result:
    out, lse = attend_float8(call, found.backend)
    return in_order_of(found.query, out), lse


def _pages(call: Call, found: Operands) -> Result:
    out, lse = attend_pages(call, found.backend)
    return in_order_of(found.query, out), lse


def _operator(
    call: Callable[..., Call], results: Callable[[Call, Operands], Result]
) -> Callable[..., Results]:
    """A forward operator: `call` makes the call of its arguments, `results` computes the call."""
    count = len(Operands._fields)

    def operator(*given: Any) -> Results:
        found = Operands(*given[-count:])
        out, lse = results(call(found, *given[:-count]), found)
        # An empty tensor stands for an lse of None.
        return out, found.query.new_empty(0, dtype=torch.float32) if lse is None else lse

    return operator


def _backward(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    tables: Tensors,
    out: torch.Tensor,
    lse: torch.Tensor,
    grad_out: torch.Tensor,
    grad_lse: torch.Tensor | None,
    structure: str,
    integers: Sequence[int],
    reals: Sequence[float],
    scale: float | None,
    weights: str,
    wanted: Sequence[bool],
    backend: str,
    nan_safe: bool,
) -> list[torch.Tensor]:
    """Gradients of query, key and value, and of the tables that are `wanted`."""
    form = _form_of(structure, tables, integers, reals)
    call = call_of((query, key, value), form, scale, weights, nan_safe=nan_safe)
    passes = backend_of(backend)
    if lse.shape != out.shape[:3]:
        # The graph was traced with inputs that required no gradient, and one is now required.
        _, again = passes.compute(call, True)
        assert again is not None
        lse = again
    slots = form.structure.tables
    places = tuple([slot.index for slot, w in zip(slots, wanted, strict=True) if w])
    with _autograd():
        return passes.differentiate(call, (out, lse), (grad_out, grad_lse), places)


def _backward_fake(
    query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, tables: Tensors, *more: Any
) -> list[torch.Tensor]:
    wanted = more[-3]
    changed = [table for table, w in zip(tables, wanted, strict=True) if w]
    of_tables = [torch.empty_like(t, memory_format=torch.contiguous_format) for t in changed]
    return [*empty_gradients(query, key, value), *of_tables]


def remember(ctx: Any, inputs: tuple[Any, ...], output: tuple[torch.Tensor, torch.Tensor]) -> None:
    """Save the inputs and results of a forward operator for `gradients_of`."""
    query, key, value, tables, *rest = inputs
    ctx.save_for_backward(query, key, value, *tables, *output)
    ctx.rest = rest
    ctx.set_materialize_grads(False)


def gradients_of(
    ctx: Any,
    wanted: list[bool],
    change: tuple[torch.Tensor | None, torch.Tensor | None],
    operator: Callable[..., Sequence[torch.Tensor]],
) -> tuple[list[torch.Tensor], list[torch.Tensor | None]]:
    """Gradients of query, key and value, and of each table, None where it is not `wanted`.

    Args:
        ctx: the context that `remember` filled.
        wanted: the tables that require a gradient.
        change: gradients of output and lse, None where these were not used.
        operator: `attention_backward`, or a function around it.
    """
    query, key, value, *saved = ctx.saved_tensors
    *tables, out, lse = saved
    *form, lse_wanted, backend, nan_safe = ctx.rest
    grad_out, grad_lse = change
    if grad_out is None:
        grad_out = torch.zeros_like(out)
    if not lse_wanted:
        grad_lse = None
    inputs = (query, key, value, tables, out, lse, grad_out, grad_lse)
    found = list(operator(*inputs, *form, wanted, backend, nan_safe))
    of_tables = iter(found[3:])
    return found[:3], [next(of_tables) if w else None for w in wanted]


def _gradients(
    ctx: Any, grad_out: torch.Tensor | None, grad_lse: torch.Tensor | None
) -> tuple[Any, ...]:
    wanted = list(ctx.needs_input_grad[3])
    operator = torch.ops.maskalg.attention_backward
    inputs, of_tables = gradients_of(ctx, wanted, (grad_out, grad_lse), operator)
    # An empty list of numbers looks like an empty list of tensors, whose gradients are a list.
    nothing: list[list[torch.Tensor] | None] = [[] if part == [] else None for part in ctx.rest]
    return (*inputs, of_tables, *nothing)


def _refuse(ctx: Any, *change: Any) -> None:
    raise errors.no_double_backward()


def _form_of(
    structure: str, tables: Tensors, integers: Sequence[int], reals: Sequence[float]
) -> Bound:
    """The form of an operator's expression.

    Calls with the same tensors and numbers, such as those of a compiled model's layers, share what
    backends remember with it. That keeps the tensors alive, so few of them are remembered, none
    that is large, and none with a graph of autograd.
    """
    form = form_of(structure, tables, integers, reals)
    symbolic = any(type(number) is not int for number in integers)
    if symbolic or trees_allocate() or not all(map(_is_remembered, tables)):
        return form
    key = (structure, *integers, *map(repr, reals))  # 0.0 and -0.0 are equal
    known = _OF_TABLES if tables else _OF_NUMBERS
    remembered: dict[Hashable, Any] = known.of_tensors(key, tables, dict)
    return Bound(form.structure, form.values, remembered)


def _is_remembered(table: torch.Tensor) -> bool:
    if type(table) not in PLAIN or table.requires_grad:
        return False
    return table.untyped_storage().nbytes() <= _MOST_BYTES


def call_of(
    inputs: tuple[torch.Tensor, torch.Tensor, torch.Tensor],
    form: Bound,
    scale: float | None,
    weights: str,
    *,
    lse_wanted: bool = True,
    descales: Descales | None = None,
    pages: Pages | None = None,
    nan_safe: bool = False,
) -> Call:
    """The arguments of an operator as a checked call; raises what `attention` raises."""
    extents = extents_of(*inputs, pages)
    check_tables(form, extents, inputs[0].device, pages)
    factor, weight = scale_of(inputs[0], scale), _WEIGHTS[weights]
    if pages is not None:
        query, key, value = inputs
        inputs = (query, key.transpose(1, 2), value.transpose(1, 2))
    of = (*inputs, form, extents, factor, lse_wanted, weight, descales, pages)
    return Call(*of, nan_safe=nan_safe)


@contextlib.contextmanager
def _autograd() -> Iterator[None]:
    """Allow autograd within an operator, where torch's dispatch keys have switched it off.

    The CPU and reference backends use it for the slope of a bias.
    """
    with torch._C._SetExcludeDispatchKeyGuard(torch._C.DispatchKey.AutogradFunctionality, False):
        yield


for _name, _call, _results in (
    (FORWARD, Operands.call, _forward),
    (FLOAT8_FORWARD, _float8_call, _float8),
    (PAGES_FORWARD, _pages_call, _pages),
):
    torch.library.impl(_name, "CompositeExplicitAutograd", _operator(_call, _results))
    torch.library.register_fake(_name, _operator(_call, _empty))
torch.library.impl(BACKWARD, "CompositeExplicitAutograd", _backward)
torch.library.register_fake(BACKWARD, _backward_fake)
torch.library.register_autograd(FORWARD, _gradients, setup_context=remember)
torch.library.register_autograd(BACKWARD, _refuse)
