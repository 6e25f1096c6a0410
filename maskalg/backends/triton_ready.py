"""Forward calls like one that was launched before: where its tensors lie is all that is new.

A call is like another with the same expression if shapes, strides, dtype, device, scale and the
kind of sink are the same too. What is launched then differs in the addresses of query, key, value,
output, lse, sink and factors of float8 alone; finding all else anew would take longer than the
launch.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any, Final, NamedTuple

import torch

from ..codegen.hooks import Hooks
from ..float8 import FLOAT8
from . import triton_tuned
from .call import Call
from .triton_arguments import tables_of
from .triton_descriptors import Descriptor
from .triton_float8 import values_in_order
from .triton_launch import Launch, Variant, start, variant_key, variant_of, watched
from .triton_plan import Plan

_MOST: Final = 64  # kinds of calls remembered with an expression, and addresses with a kind
_PATIENCE: Final = 4  # how often a kind of call may turn out to be another one
_SEEN: Final = "seen"

Encoded = tuple[dict[int, list[Any]], Any]
"""Encoded descriptors by address, and how their blocks lie in shared memory."""


class Ready(NamedTuple):
    """A launch but for the tensors of the call, and a sink that is a tensor.

    Attributes:
        hooks: of the expression, which name its tables.
        tables: those that are passed.
        told: what the launch was told of the expression's tensors. A module that is moved or
            converted puts other memory into the same tensors.
        tuned: `triton_tuned.generation` of what chose the kernel.
        variant: of the kernel.
        programs: along both axes.
        encoded: of query, key, value and output; None for what is passed as a pointer.
        in_order: whether values of float8 are put in order first.
        sink: that is passed where the weight has a number or none.
        passed: the tables as they are passed.
        rest: the arguments behind the factors of float8.
        misses: how often a call of this kind was another one.
    """

    hooks: Hooks
    tables: tuple[torch.Tensor, ...]
    told: Hashable
    tuned: int
    variant: Variant
    programs: tuple[int, int]
    encoded: tuple[Encoded | None, ...]
    in_order: bool
    sink: torch.Tensor | None
    passed: tuple[torch.Tensor, ...]
    rest: list[Any]
    misses: int

    def serves(self, call: Call) -> bool:
        """Whether what may have changed since is as it was."""
        if self.tuned != triton_tuned.generation:
            return False
        if self.told is None:
            return True
        if _told(call, self.tables) != self.told:
            return False
        found = tables_of(self.hooks, call)
        return all(a is b for a, b in zip(found, self.tables, strict=True))

    def launch(self, call: Call, out: torch.Tensor, lse: torch.Tensor | None) -> None:
        arguments: list[Any] = []
        encoder = self.variant.encoder
        value = values_in_order(call.value) if self.in_order else call.value
        for tensor, block in zip((call.query, call.key, value, out), self.encoded, strict=True):
            if block is None:
                arguments.append(tensor)
                continue
            if encoder is None:
                arguments.append(Descriptor(tensor))
                continue
            known, layout = block
            address = tensor.data_ptr()
            parts = known.get(address)
            if parts is None:
                if len(known) >= _MOST:
                    known.clear()
                parts = known[address] = encoder.encode(Descriptor(tensor), layout)
            arguments += parts
        sink = call.weight.sink
        sink = sink if isinstance(sink, torch.Tensor) else self.sink
        arguments += [lse, sink, self.passed, call.descales]
        arguments += self.rest
        start(self.variant, self.programs, arguments)


def ready_for(call: Call, lse_wanted: bool) -> Ready | None:
    """What launches a call like one before, or None."""
    if not (found := call.form.remembered):
        return None
    kind = _kind(call, lse_wanted)
    ready = found.get(kind)
    if not isinstance(ready, Ready) or not _plain(call) or watched():
        return None
    if ready.tables and _captured(call):
        return None  # a graph has tables of its own
    if ready.serves(call):
        return ready
    found[kind] = ready.misses + 1
    return None


def remember(call: Call, plan: Plan, launch: Launch, lse_wanted: bool) -> None:
    """Keep what launches a call like this one, which `launch` launched, from the second call on.

    Many expressions are built for one call. Where tables are new at each call, nothing is kept.
    """
    found = call.form.remembered
    if not found:
        found[_SEEN] = None
        return
    kind = _kind(call, lse_wanted)
    misses = found.get(kind, 0)
    variant = variant_of(launch)
    if variant is None or not isinstance(misses, int) or misses >= _PATIENCE or not _plain(call):
        return
    if plan.hooks.tables and _captured(call):
        return
    arguments = launch.again()  # both kernels begin with these eight
    *tensors, _lse, sink, passed, _descales = arguments[:8]
    blocks = iter(variant.encoder.blocks if variant.encoder is not None else [(None, "")] * 4)
    encoded: tuple[Encoded | None, ...] = tuple(
        [({}, next(blocks)[0]) if type(t) is Descriptor else None for t in tensors]
    )
    if len(found) >= _MOST:
        found.clear()
    tables = passed[: len(plan.hooks.tables)]
    found[kind] = Ready(
        hooks=plan.hooks,
        tables=tables,
        told=_told(call, tables),
        tuned=triton_tuned.generation,
        variant=variant,
        programs=launch.programs,
        encoded=encoded,
        # Only the kernel that multiplies float8 has a descriptor of query.
        in_order=encoded[0] is not None and call.value.dtype == FLOAT8,
        sink=None if isinstance(call.weight.sink, torch.Tensor) else sink,
        passed=passed,
        rest=arguments[8:],
        misses=misses,
    )


def _kind(call: Call, lse_wanted: bool) -> Hashable:
    query, key, value, sink = call.query, call.key, call.value, call.weight.sink
    of_sink = variant_key((sink,), (), ()) if isinstance(sink, torch.Tensor) else sink
    descales = call.descales
    of_descales = None if descales is None else variant_key(descales, (), ())
    return (
        query.shape, key.shape, value.shape, query.stride(), key.stride(), value.stride(),
        query.dtype, query.device, call.scale, lse_wanted, call.weight.normalised, of_sink,
        of_descales,
    )  # fmt: skip


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
