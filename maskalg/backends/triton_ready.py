"""Forward calls like one that was launched before: where its tensors lie is all that is new.

A call is like another with the same expression and weight, if shapes, strides, dtype, device and
scale are the same too. What is launched then differs in the addresses of query, key, value, output
and lse alone; finding all else anew would take longer than the launch.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any, Final, NamedTuple

import torch

from ..codegen.hooks import Hooks
from ..weights import Weight
from . import triton_tuned
from .call import Call
from .triton_arguments import tables_of
from .triton_descriptors import Descriptor
from .triton_launch import Launch, Variant, start, variant_key, variant_of, watched
from .triton_plan import Plan

_MOST: Final = 64  # kinds of calls remembered with an expression, and addresses with a kind
_OURS: Final = "triton"
_SEEN: Final = "triton, seen"

Encoded = tuple[dict[int, list[Any]], Any]
"""Encoded descriptors by address, and how their blocks lie in shared memory."""


class Ready(NamedTuple):
    """A launch but for the tensors of the call.

    Attributes:
        weight: its sink is passed.
        hooks: of the expression, which name its tables.
        tables: those that are passed.
        sink: that is passed, where it is a tensor.
        pointers: what the variant depends on of tables and sink. A module that is moved or
            converted puts other memory into the same tensors.
        tuned: `triton_tuned.generation` of what chose the kernel.
        variant: of the kernel.
        programs: along both axes.
        encoded: of query, key, value and output; None for what is passed as a pointer.
        rest: the arguments behind the lse.
    """

    weight: Weight
    hooks: Hooks
    tables: tuple[torch.Tensor, ...]
    sink: torch.Tensor | None
    pointers: Hashable
    tuned: int
    variant: Variant
    programs: tuple[int, int]
    encoded: tuple[Encoded | None, ...]
    rest: list[Any]

    def serves(self, call: Call) -> bool:
        """Whether what may have changed since is as it was, and nobody watches launches."""
        if self.weight is not call.weight or self.tuned != triton_tuned.generation or watched():
            return False
        if self.sink is not None and not self.sink.is_contiguous():
            return False
        if self.tables:
            found = tables_of(self.hooks, call)
            if not all(a is b for a, b in zip(found, self.tables, strict=True)):
                return False
        elif self.sink is None:
            return True
        return variant_key((self.sink, *self.tables), (), ()) == self.pointers

    def launch(self, call: Call, out: torch.Tensor, lse: torch.Tensor | None) -> None:
        arguments: list[Any] = []
        encoder = self.variant.encoder
        for tensor, block in zip(
            (call.query, call.key, call.value, out), self.encoded, strict=True
        ):
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
        arguments.append(lse)
        arguments += self.rest
        start(self.variant, self.programs, arguments)


def ready_for(call: Call, lse_wanted: bool) -> Ready | None:
    """What launches a call like one before, or None."""
    if not (found := call.form.remembered):
        return None
    ready: Ready | None = found.get(_kind(call, lse_wanted))
    return ready if ready is not None and _aligned(call) and ready.serves(call) else None


def remember(call: Call, plan: Plan, launch: Launch, lse_wanted: bool) -> None:
    """Keep what launches a call like this one, which `launch` launched, from the second call on.

    Many expressions are built for one call.
    """
    found = call.form.remembered
    if not found:
        found[_SEEN] = None
        return
    variant, sink = variant_of(launch), call.weight.sink
    if variant is None or not _aligned(call):
        return
    if not isinstance(sink, torch.Tensor):
        sink = None
    elif not sink.is_contiguous():  # a copy is passed
        return
    arguments = launch.again()
    tensors, rest = arguments[:4], arguments[5:]  # the lse between
    blocks = iter(variant.encoder.blocks if variant.encoder is not None else [(None, "")] * 4)
    encoded: tuple[Encoded | None, ...] = tuple(
        [({}, next(blocks)[0]) if type(t) is Descriptor else None for t in tensors]
    )
    tables = tables_of(plan.hooks, call)
    if tables and call.query.is_cuda and torch.cuda.is_current_stream_capturing():
        return  # made in the memory of the graph, for its replays
    if len(found) >= _MOST:
        found.clear()
    found[_kind(call, lse_wanted)] = Ready(
        call.weight,
        plan.hooks,
        tables,
        sink,
        variant_key((sink, *tables), (), ()),
        triton_tuned.generation,
        variant,
        launch.programs,
        encoded,
        rest,
    )


def _kind(call: Call, lse_wanted: bool) -> Hashable:
    query, key, value = call.query, call.key, call.value
    return (
        _OURS, query.shape, key.shape, value.shape, query.stride(), key.stride(), value.stride(),
        query.dtype, query.device, call.scale, lse_wanted,
    )  # fmt: skip


def _aligned(call: Call) -> bool:
    """Whether the addresses of the inputs are multiples of 16, which kernels are compiled for."""
    places = call.query.data_ptr() | call.key.data_ptr() | call.value.data_ptr()
    return places & 15 == 0
