"""Calls like one that was launched before: where its tensors lie is all that is new.

A call is like another with the same expression if shapes, strides, dtype, device, scale and the
kind of sink are the same too, of what is differentiated also the kind of gradient. What is
launched then differs in the addresses of tensors alone; finding all else anew would take longer
than the launch.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Any, Final, Literal, NamedTuple, cast

import torch
import triton

from ..codegen.hooks import Hooks
from . import triton_tuned
from .call import Call
from .triton_arguments import padded, sinks_of, tables_of
from .triton_launch import Launch, variant_key, watched
from .triton_template import Template, template_of

_MOST: Final = 64  # kinds of calls remembered with an expression
_PATIENCE: Final = 4  # how often a kind of call may turn out to be another one

Pass = Literal["forward", "backward"]


class Ready(NamedTuple):
    """Launches but for the tensors of the call.

    Attributes:
        hooks: of the expression, which name its tables.
        tables: those that are passed.
        told: what the launches were told of the expression's tensors. A module that is moved or
            converted puts other memory into the same tensors.
        tuned: `triton_tuned.generation` of what chose the kernels.
        stream: on which what is kept beside the tables was filled; None where nothing is.
        templates: of the launches, in order.
        made: shapes and dtypes of tensors they write and read.
        misses: how often a call of this kind was another one.
    """

    hooks: Hooks
    tables: tuple[torch.Tensor, ...]
    told: Hashable
    tuned: int
    stream: int | None
    templates: list[Template]
    made: list[tuple[torch.Size, torch.dtype]]
    misses: int

    def serves(self, call: Call) -> bool:
        """Whether what may have changed since is as it was."""
        if self.tuned != triton_tuned.generation:
            return False
        if self.stream is not None and self.stream != _stream():
            return False
        if self.told is None:
            return True
        if _told(call, self.tables) != self.told:
            return False
        found = tables_of(self.hooks, call)
        return all(a is b for a, b in zip(found, self.tables, strict=True))

    def launch(self, given: Sequence[Any], results: Sequence[torch.Tensor | None]) -> None:
        """Launch on what is given and filled; arguments as of `remember`."""
        query = given[0]
        made = [query.new_empty(shape, dtype=dtype) for shape, dtype in self.made]
        found = [*given, *results, *made]
        for template in self.templates:
            template.launch(found)


def ready_for(
    call: Call, of: Pass, given: Sequence[Any], results: Sequence[torch.Tensor | None]
) -> Ready | None:
    """What launches a call like one before, or None; arguments as of `remember`."""
    remembered = call.form.remembered
    if of not in remembered:
        return None
    kind = _kind(call, of, given, results)
    ready = remembered.get(kind)
    if not isinstance(ready, Ready) or not _plain(call) or watched():
        return None
    if (ready.tables or ready.stream is not None) and _captured(call):
        return None  # a graph has tables of its own
    if ready.serves(call):
        return ready
    remembered[kind] = ready.misses + 1
    return None


def remember(
    call: Call,
    of: Pass,
    given: Sequence[Any],
    results: Sequence[torch.Tensor | None],
    hooks: Hooks,
    launches: Sequence[Launch],
) -> None:
    """Keep what launches a call like this one, from the second call of an expression on.

    Many expressions are built for one call. Where tables are new at each call, nothing is kept.

    Args:
        of: which pass is launched.
        given: query, key, value, then all else that a call is given: tensors, tuples of them, and
            None.
        results: that are filled, new tensors at each call, or None.
        hooks: of the kernels.
        launches: that were made.
    """
    remembered = call.form.remembered
    if of not in remembered:
        remembered[of] = None
        return
    kind = _kind(call, of, given, results)
    misses = remembered.get(kind, 0)
    if not isinstance(misses, int) or misses >= _PATIENCE or not _plain(call):
        return
    once = [tensor for launch in launches if launch.once for tensor in launch.made]
    if (hooks.tables or once) and _captured(call):
        return
    again = [launch for launch in launches if not launch.once]
    made = [tensor for launch in again for tensor in launch.made]
    tables = tables_of(hooks, call)
    kept = [*once, *padded(tables, call.query.device)]
    if (sinks := sinks_of(call)) is not None:
        kept.append(sinks)
    templates = [template_of(launch, [*given, *results, *made], kept) for launch in again]
    if len(remembered) >= _MOST:
        remembered.clear()
        remembered[of] = None
    if any(template is None for template in templates):
        remembered[kind] = misses + 1
        return
    remembered[kind] = Ready(
        hooks=hooks,
        tables=tables,
        told=_told(call, tables),
        tuned=triton_tuned.generation,
        stream=_stream() if once else None,
        templates=[template for template in templates if template is not None],
        made=[(tensor.shape, tensor.dtype) for tensor in made],
        misses=misses,
    )


def _kind(
    call: Call, of: Pass, given: Sequence[Any], results: Sequence[torch.Tensor | None]
) -> Hashable:
    query, key, value, sink = call.query, call.key, call.value, call.weight.sink
    identities = [id(one) for one in given]
    return (
        of, query.shape, key.shape, value.shape, query.stride(), key.stride(), value.stride(),
        query.dtype, query.device, call.scale, call.weight.normalised,
        None if isinstance(sink, torch.Tensor) else sink,
        # Which are one tensor, or None.
        *[identities.index(one) for one in identities],
        *[_kind_of(one) for one in given[3:]],
        *[one is None for one in results],
    )  # fmt: skip


def _kind_of(one: Any) -> Hashable:
    if isinstance(one, tuple):
        return variant_key(one, (), ())
    if one is None:
        return None
    return one.dtype, one.data_ptr() & 15, one.stride()


def _told(call: Call, tables: tuple[torch.Tensor, ...]) -> Hashable:
    """Sizes of the expression's tensors and what a variant depends on; None without tensors."""
    sizes = [v.shape for v in call.form.values if isinstance(v, torch.Tensor)]
    return (*sizes, variant_key(tables, (), ())) if sizes or tables else None


def _plain(call: Call) -> bool:
    """Whether addresses are multiples of 16, which kernels are compiled for, and no sink strided,
    of which a copy is passed."""
    sink = call.weight.sink
    if isinstance(sink, torch.Tensor) and not sink.is_contiguous():
        return False
    places = call.query.data_ptr() | call.key.data_ptr() | call.value.data_ptr()
    return places & 15 == 0


def _captured(call: Call) -> bool:
    """Whether the call becomes part of a CUDA graph."""
    return call.query.is_cuda and torch.cuda.is_current_stream_capturing()


def _stream() -> int:
    driver = triton.runtime.driver.active
    return cast(int, driver.get_current_stream(driver.get_current_device()))
