"""`parallel.attention()`: attention over a sequence that a plan shares among processes.

Each rank attends to the keys it holds while the keys it needs from other ranks travel, then attends
to those, and merges the results. Each range of consecutive tokens is a call under a shifted mask,
so kernels and proofs are those of one process.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final, cast

import torch
from torch.autograd.function import once_differentiable

from .. import errors
from ..attention import attention as attend
from ..attention import checked_call, traced
from ..backends.call import Call as Attend
from ..backends.call import by_kernels
from ..backends.choice import backend_name, backend_of
from ..backends.float8 import attend_float8
from ..backends.results import in_order_of, with_sink
from ..engine.float8 import FLOAT8
from ..engine.memory import kinds_of, state_of
from ..engine.normal_form import bound
from ..formula.expression import Expression
from ..formula.watched import watched
from ..operators.inputs import as_autocast_wants, check_weight, checked_scale, extents_of
from ..values.algebra import Mask, Score
from ..values.weights import Weight, softmax
from .planning import Plan, versions_of
from .ranges import Call, Merged, Sum, room_in, summed_in
from .steps import Hop, Method, Steps, Tokens, steps_of

if TYPE_CHECKING:
    from torch.distributed import ProcessGroup
    from torch.distributed.device_mesh import DeviceMesh

Tensors = tuple[torch.Tensor, ...]
_Inputs = tuple[torch.Tensor, torch.Tensor, torch.Tensor]
_Rows = tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor | None]
_Known = dict[Call, tuple[Any, ...]]  # what follows the inputs in calls of a backend, but the rooms

_MOST_SHIFTED: Final = 1024  # shifted copies remembered for one mask
_MOST_KINDS: Final = 16  # kinds of inputs remembered for one mask
_ALIGNED: Final = 16  # bytes: tensors aligned to them are copied by descriptor


def attention(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    score: Mask | Score,
    plan: Plan,
    *,
    layer: int = 0,
    group: ProcessGroup | DeviceMesh | None = None,
    method: Method = "gather",
    scale: float | None = None,
    weight: Weight = softmax,
    sum_learned: bool = True,
    backend: str | None = None,
) -> torch.Tensor:
    """Attention of the tokens that this process holds to all tokens of the sequence.

    Every process of the group calls it, in the same order, with the tokens `plan.tokens(rank)`.
    The mask and its tensors are those of the whole sequence. Gradients of keys and values return
    to the process that holds them, in the same order every time.

    Args:
        query: `[batch, heads, tokens, dim]`, the tokens of this process.
        key: `[batch, kv_heads, tokens, dim]`, likewise.
        value: `[batch, kv_heads, tokens, value_dim]`, likewise, in the dtype of `key`.
        score: the mask that was planned, or a score with that mask.
        plan: the plan, equal on all processes.
        layer: the number of the score's mask in the plan.
        group: a process group or a device mesh of one dimension; None is the default group.
        method: "gather" exchanges all keys at once, and keeps them for the backward pass. "ring"
            exchanges keys with one rank at a time, while it attends to those received before, and
            exchanges them again backward: it holds the keys of at most two ranks.
        scale: as in `maskalg.attention`.
        weight: softmax, or softmax with a sink.
        sum_learned: whether gradients of biases and sinks are summed over the group. Pass False
            if FSDP or DDP sums them over the same ranks.
        backend: as in `maskalg.attention`.

    Returns:
        The output `[batch, heads, tokens, value_dim]`, in bfloat16 for float8 inputs, which have no
        gradients.

    Raises:
        TypeError, ValueError: a mask that was not planned, inputs that are not the tokens of this
            process, a weight that is no softmax; what `maskalg.attention` raises.
    """
    from torch import distributed

    if not isinstance(plan, Plan):
        raise errors.MaskTypeError(
            f"parallel.attention: plan must be a Plan, got {type(plan).__name__}. "
            "Write plan(mask, length, ranks)."
        )
    processes = _group(group)
    if processes is None and not distributed.is_initialized():
        raise errors.MaskValueError(
            "parallel.attention: there is no group of processes. Start them with torchrun, and "
            "write torch.distributed.init_process_group() or pass group=…."
        )
    size, rank = distributed.get_world_size(processes), distributed.get_rank(processes)
    _check(query, key, value, plan, (size, rank))
    _check_mask(score, plan, layer)
    check_weight(weight, query, return_lse=False)
    if weight.formula is not None:
        raise errors.MaskValueError(
            f"parallel.attention: parts of the keys are merged by their lse, and {weight} weights "
            "have none. Pass softmax or softmax_with_sink, or gather the keys and call "
            "maskalg.attention."
        )
    if method not in ("gather", "ring"):
        raise errors.MaskValueError(
            f'parallel.attention: method must be "gather" or "ring", got {method!r}.'
        )
    device = query.device.type
    if torch.is_autocast_enabled(device):
        query, key, value = as_autocast_wants(query, key, value)
    names, tables = _learned(score)
    sink = weight.sink
    shared = [*tables, sink] if isinstance(sink, torch.Tensor) else tables
    if sum_learned and any(tensor.requires_grad for tensor in shared):
        shared = list(_Summed.apply(processes, *shared))  # type: ignore[no-untyped-call]
    if isinstance(sink, torch.Tensor):
        sink = shared[-1]
    run = _Run(
        steps_of(plan, layer, rank, method, query.device),
        processes,
        score,
        names,
        _Options(checked_scale(scale), backend_name(device, backend)),
        keeps=method == "gather",
    )
    inputs = (query, key, value, *shared[: len(names)])
    if torch.is_grad_enabled() and any(tensor.requires_grad for tensor in inputs):
        if query.dtype == FLOAT8:
            raise errors.float8_gradient()
        results: Tensors = _Attention.apply(run, *inputs)  # type: ignore[no-untyped-call]
    else:
        results = run.forward(inputs)[:2]
    out, lse = results
    return with_sink(out, lse, sink)


@dataclass(frozen=True)
class _Options:
    scale: float | None
    backend: str


@dataclass(frozen=True, eq=False)
class _Part:
    """Keys and values that a rank holds, the calls to them, and the exchange that brought them."""

    key: torch.Tensor
    value: torch.Tensor
    calls: tuple[Call, ...]
    hop: Hop | None


@dataclass(frozen=True, eq=False)
class _Run:
    """One call, on this rank."""

    steps: Steps
    group: ProcessGroup | None
    score: Mask | Score
    names: tuple[str, ...]
    options: _Options
    keeps: bool

    def forward(self, inputs: Tensors) -> tuple[torch.Tensor, torch.Tensor, list[_Part]]:
        """The output, its lse, and the parts where they are kept."""
        query, key, value, *learned = inputs
        score = self._score(learned)
        merged, parts = Merged(self.steps.queries, query, value.shape[3]), []
        scale, backend = self.options.scale, self.options.backend
        seen, made = traced(query, backend), self._remembered(query, key, value)
        for part in self._parts(key, value):
            for call in part.calls:
                given, room = _inputs(query, part, call), merged.room(call)
                if seen:
                    shifted = _shifted(score, call, remembered=not learned)
                    found = attend(*given, shifted, scale=scale, return_lse=True, backend=backend)
                else:
                    found = self._computed(self._made(score, given, call, made, (room,)))
                merged.add(call, found, room)
            if self.keeps:
                parts.append(part)
        return *merged.total(), parts

    def _remembered(self, *tensors: torch.Tensor | None) -> _Known:
        """For `_made`: what is known of calls with the score, as it is now, and tensors like these.

        The tensors are all that the calls take slices of, or that decide how new ones are laid out.
        """
        given = [x for x in tensors if x is not None]
        tables = [x for x in bound(self.score).values if isinstance(x, torch.Tensor)]
        unknown = any(x.is_inference() for x in tables)  # writes to them are not counted
        if unknown or self.names or watched(*given, *tables):
            return {}
        known = self.score.__dict__.setdefault("_made", {})
        state = [state_of(x) for x in tables]
        kind = (self.options, *[x is None for x in tensors], *kinds_of(given))
        found = known.get(kind)
        if found is None or found[0] != state or len(found[1]) >= _MOST_SHIFTED:
            if len(known) >= _MOST_KINDS:
                known.clear()
            found = known[kind] = (state, {})
        return cast(_Known, found[1])

    def _made(
        self,
        score: Mask | Score,
        inputs: _Inputs,
        call: Call,
        made: _Known,
        rooms: tuple[torch.Tensor | None, ...],
    ) -> Attend:
        """The call as backends take it; `made` keeps all of it but tensors of a pass."""
        others = made.get(call)
        if others is None:
            shifted = _shifted(score, call, remembered=not self.names)
            checked = checked_call(*inputs, shifted, self.options.scale, return_lse=True)
            others = made[call] = checked._replace(part=True, alike={}).others[:-1]
        return Attend(*(*inputs, *others, rooms))

    def _computed(self, call: Attend) -> tuple[torch.Tensor, torch.Tensor]:
        """Output and lse of a call; the output is written in place if the backend can."""
        if call.query.dtype == FLOAT8:
            out, lse = attend_float8(call, self.options.backend)
        else:
            out, lse = backend_of(self.options.backend).compute(call, True)
        assert lse is not None
        return out, lse

    def _parts(self, key: torch.Tensor, value: torch.Tensor) -> Iterator[_Part]:
        """The keys of this rank, then those of each exchange.

        An exchange runs while the caller computes with the keys of the one before.
        """
        hops = self.steps.hops
        next_ = self._sent(hops[0], key, value) if hops else None
        yield _Part(key, value, self.steps.own, None)
        for number, hop in enumerate(hops):
            assert next_ is not None
            came = next_()
            next_ = self._sent(hops[number + 1], key, value) if number + 1 < len(hops) else None
            keys, values = _unpacked(came[hop.order], key, value)
            if any(x.shape[3] * x.element_size() % _ALIGNED for x in (key, value)):
                keys, values = keys.contiguous(), values.contiguous()
            yield _Part(keys, values, hop.calls, hop)

    def _sent(self, hop: Hop, key: torch.Tensor, value: torch.Tensor) -> Callable[[], torch.Tensor]:
        return _exchange(_packed(key, value, hop.send), hop.to, hop.back, self.group)

    def _score(self, learned: Sequence[torch.Tensor]) -> Mask | Score:
        if not learned:
            return self.score
        return self.score.bind(dict(zip(self.names, learned, strict=True)))

    def backward(
        self,
        inputs: Tensors,
        results: tuple[torch.Tensor, torch.Tensor],
        change: tuple[torch.Tensor, torch.Tensor | None],
        kept: list[_Part],
    ) -> list[torch.Tensor]:
        """The gradients of `inputs`, those of keys and values summed over all ranks.

        Each part of the keys uses the lse of all keys: its weights are exp(score - lse).
        """
        query, key, value, *learned = inputs
        ranges = self.steps
        of_query = Sum(ranges.queries, query)
        of_key, of_value = (Sum(ranges.keys, key, x.shape[3]) for x in (key, value))
        out, lse = in_order_of(query, results[0]), results[1]
        came = [x for part in kept for x in (part.key, part.value)]
        made = self._remembered(*inputs[:3], out, lse, *change, *came)
        # Calls of the same queries share the copy of their lse.
        known: dict[tuple[int, int], tuple[_Rows, torch.Tensor | None]] = {}
        of_learned = [torch.zeros_like(x, dtype=summed_in(x.dtype)) for x in learned]
        sent, returned = ranges.sent, []
        if sent is not None:
            numbers = key.shape[0] * key.shape[1] * (key.shape[3] + value.shape[3])
            returned = [key.new_zeros((ranges.count, numbers), dtype=summed_in(key.dtype))]
        # At most two exchanges, or, if no token goes to several ranks, all of them.
        arriving: list[tuple[Hop, Callable[[], torch.Tensor]]] = []
        # Kept parts backwards: first the received ones, whose gradients have to travel.
        for part in reversed(kept) if kept else self._parts(key, value):
            hop, of_keys, of_values = part.hop, of_key, of_value
            if hop is not None:
                dims = key.shape[3], value.shape[3]
                of_keys, of_values = (Sum(hop.keys, part.key, dim) for dim in dims)
            for call in part.calls:
                at = call.queries.start, call.queries.stop
                if at not in known:
                    of_lse = None if change[1] is None else change[1][:, :, call.queries]
                    room = room_in(out, call.queries)
                    mine = out[:, :, call.queries] if room is None else room
                    of_out = change[0][:, :, call.queries]
                    rows = mine, lse[:, :, call.queries].contiguous(), of_out, of_lse
                    known[at] = rows, room
                rooms = of_query.room(call), of_keys.room(call), of_values.room(call)
                if rooms[1] is None or rooms[2] is None:
                    rooms = rooms[0], None, None
                given, (rows, room) = _inputs(query, part, call), known[at]
                mine, keys, values, *others = self._gradients(
                    given, learned, call, rows, (room, *rooms), made
                )
                of_query.add(call, mine, rooms[0])
                of_keys.add(call, keys, rooms[1])
                of_values.add(call, values, rooms[2])
                for total, other in zip(of_learned, others, strict=True):
                    total += other
            if hop is not None:
                back = _packed(of_keys.total(), of_values.total())[hop.unsorted]
                arriving.append((hop, _exchange(back, hop.back, hop.to, self.group)))
                if returned and len(arriving) > 1:
                    _add(returned, *arriving.pop(0))
        totals = of_key.total(), of_value.total()
        for each in arriving:
            _add(returned or [x.movedim(2, 0) for x in totals], *each)
        if sent is not None:
            every = returned[0].add_(_packed(*totals, sent)).to(key.dtype)
            for total, added in zip(totals, _unpacked(every, *totals), strict=True):
                total[:, :, sent] = added
        found = zip(of_learned, learned, strict=True)
        return [of_query.total(), *totals, *(total.to(x.dtype) for total, x in found)]

    def _gradients(
        self,
        inputs: _Inputs,
        learned: Sequence[torch.Tensor],
        call: Call,
        of_rows: _Rows,
        rooms: tuple[torch.Tensor | None, ...],
        made: _Known,
    ) -> list[torch.Tensor]:
        """Gradients of a call's inputs and learned tensors, from output, lse and those of both."""
        out, lse, of_out, of_lse = of_rows
        backend, wanted = backend_of(self.options.backend), {}
        if not learned:
            attend = self._made(self.score, inputs, call, made, rooms)
            return backend.differentiate(attend, (out, lse), (of_out, of_lse), ())
        leaves = [tensor.detach().requires_grad_() for tensor in learned]
        with torch.enable_grad():
            attend = self._made(self._score(leaves), inputs, call, {}, rooms)
        wanted = {slot.index: t for slot, t in attend.form.tensors() if t.requires_grad}
        found = backend.differentiate(attend, (out, lse), (of_out, of_lse), tuple(wanted))
        if not wanted:
            return found
        others = torch.autograd.grad([*wanted.values()], leaves, found[3:], materialize_grads=True)
        return [*found[:3], *others]


def _inputs(query: torch.Tensor, part: _Part, call: Call) -> _Inputs:
    """Query, key and value of one call."""
    keys = call.keys
    return query[:, :, call.queries], part.key[:, :, keys], part.value[:, :, keys]


class _Attention(torch.autograd.Function):
    """The output and its lse, of `_Run.forward`."""

    @staticmethod
    def forward(ctx: Any, run: _Run, *inputs: torch.Tensor) -> Tensors:
        out, lse, parts = run.forward(inputs)
        ctx.run, ctx.inputs = run, len(inputs)
        # Received keys and values are saved by `save_for_backward`, as autograd requires.
        none = out.new_empty(0)
        ctx.parts = [replace(part, key=none, value=none) for part in parts]
        came = [x for part in parts if part.hop is not None for x in (part.key, part.value)]
        # Tables are saved so that autograd reports one that is written to before the backward pass.
        tables = [table for table in bound(run.score).tables if not table.is_inference()]
        ctx.save_for_backward(out, lse, *inputs, *came, *tables)
        ctx.set_materialize_grads(False)
        return out, lse

    @staticmethod
    @by_kernels
    def backward(ctx: Any, of_out: torch.Tensor | None, of_lse: torch.Tensor | None) -> Any:
        out, lse, *saved = ctx.saved_tensors
        change = (torch.zeros_like(out) if of_out is None else of_out, of_lse)
        inputs, came = tuple(saved[: ctx.inputs]), saved[ctx.inputs :]  # tables come last
        parts = [
            replace(part, key=key, value=value)
            for part, key, value in zip(
                ctx.parts, (inputs[1], *came[::2]), (inputs[2], *came[1::2]), strict=False
            )
        ]
        return None, *ctx.run.backward(inputs, (out, lse), change, parts)


class _Summed(torch.autograd.Function):
    """Tensors that all ranks have; their gradients are summed over the ranks, in rank order."""

    @staticmethod
    def forward(ctx: Any, group: ProcessGroup | None, *tensors: torch.Tensor) -> Tensors:
        ctx.group = group
        return tuple([tensor.view_as(tensor) for tensor in tensors])

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *gradients: torch.Tensor) -> Any:
        from torch import distributed

        flat = torch.cat([gradient.flatten().double() for gradient in gradients])
        every = [torch.empty_like(flat) for _ in range(distributed.get_world_size(ctx.group))]
        distributed.all_gather(every, flat, group=ctx.group)
        total = torch.stack(every).sum(dim=0)
        parts = total.split([gradient.numel() for gradient in gradients])
        return None, *[
            part.view_as(gradient).to(gradient.dtype)
            for part, gradient in zip(parts, gradients, strict=True)
        ]


def _exchange(
    rows: torch.Tensor, to: list[int], back: list[int], group: ProcessGroup | None
) -> Callable[[], torch.Tensor]:
    """Send rows to the other ranks; the returned function waits for the rows they send."""
    from torch import distributed

    came = rows.new_empty((sum(back), rows.shape[1]))
    # Transports have no float8: its bytes travel.
    into, out = (x.view(torch.uint8) if x.dtype == FLOAT8 else x for x in (came, rows))
    work = distributed.all_to_all_single(into, out, back, to, group=group, async_op=True)

    def wait() -> torch.Tensor:
        work.wait()
        assert rows is not None  # kept alive until they are sent
        return came

    return wait


def _add(totals: Sequence[torch.Tensor], hop: Hop, arrived: Callable[[], torch.Tensor]) -> None:
    """Add gradients that other ranks return to totals `[tokens, …]`."""
    sizes = [total.shape[-1] for total in totals]
    rows = arrived()
    parts = rows.view(len(rows), *totals[0].shape[1:-1], sum(sizes)).split(sizes, dim=-1)
    for at, tokens in hop.sent:
        for total, came in zip(totals, parts, strict=True):
            if isinstance(tokens, slice):
                total[tokens].add_(came[at])
            else:
                total.index_add_(0, tokens, came[at].to(total.dtype))


def _packed(key: torch.Tensor, value: torch.Tensor, tokens: Tokens = slice(None)) -> torch.Tensor:
    """Keys and values of each token in one row, batch * kv_heads * (dim + value_dim) long."""
    both = [x.permute(2, 0, 1, 3) for x in (key, value)]
    if isinstance(tokens, slice) or len(tokens) < len(both[0]):
        return torch.cat([x[tokens] for x in both], dim=3).flatten(1)
    # Tokens that travel to several ranks: whole rows are copied faster than keys of each head.
    return torch.cat(both, dim=3).flatten(1)[tokens]


def _unpacked(
    rows: torch.Tensor, key: torch.Tensor, value: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """Rows as keys and values, shaped like the given ones except for the number of tokens."""
    batch, heads, _, dim = key.shape
    both = rows.view(len(rows), batch, heads, dim + value.shape[3]).permute(1, 2, 0, 3)
    return both[..., :dim], both[..., dim:]


def _shifted(score: Mask | Score, call: Call, *, remembered: bool) -> Expression:
    """The score shifted to the tokens of a call."""
    if not remembered:
        return score.shift(q=call.q_start, kv=call.kv_start)
    known = score.__dict__.setdefault("_shifted", {})
    place = (call.q_start, call.kv_start)
    found = known.get(place)
    if found is None:
        if len(known) >= _MOST_SHIFTED:
            known.clear()
        found = known[place] = score.shift(q=call.q_start, kv=call.kv_start)
    return cast(Expression, found)


def _learned(score: Mask | Score) -> tuple[tuple[str, ...], list[torch.Tensor]]:
    """The tensors of a score that take gradients, and their names."""
    found = {
        name: value
        for name, value in score.parameters.items()
        if isinstance(value, torch.Tensor) and value.requires_grad
    }
    return tuple(found), list(found.values())


def _group(group: ProcessGroup | DeviceMesh | None) -> ProcessGroup | None:
    from torch.distributed import ProcessGroup

    if group is None or isinstance(group, ProcessGroup):
        return group
    if getattr(group, "ndim", None) != 1:
        raise errors.MaskTypeError(
            "parallel.attention: group must be a process group or a DeviceMesh of one dimension, "
            f'got {group!r}. Of a mesh of several, take one: mesh["cp"].'
        )
    return group.get_group()


def _check(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    plan: Plan,
    place: tuple[int, int],
) -> None:
    size, rank = place
    if size != plan.ranks:
        raise errors.MaskValueError(
            f"parallel.attention: the group has {size} processes and the plan {plan.ranks} ranks. "
            f"Write plan(mask, length, ranks={size})."
        )
    held = plan.count(rank)
    for name, tensor in (("query", query), ("key", key), ("value", value)):
        if not isinstance(tensor, torch.Tensor):
            raise errors.not_a_tensor(name, tensor)
        if tensor.ndim != 4 or tensor.shape[2] != held:
            raise errors.MaskValueError(
                f"parallel.attention: {name} must be [batch, heads, {held}, dim], the {held} "
                f"tokens that rank {rank} holds, got {list(tensor.shape)}. Take them as "
                f"x[:, :, plan.tokens({rank})]."
            )
    extents_of(query, key, value)
    if key.dtype != value.dtype:
        raise errors.MaskTypeError(
            "parallel.attention: key and value travel together and must have one dtype, got "
            f"{key.dtype} and {value.dtype}."
        )


def _check_mask(score: Mask | Score, plan: Plan, layer: int) -> None:
    if not isinstance(score, (Mask, Score)):
        raise errors.not_a_score(score)
    if not isinstance(layer, int) or not 0 <= layer < len(plan.masks):
        raise errors.MaskValueError(
            "parallel.attention: layer must be the number of a mask of the plan, 0 to "
            f"{len(plan.masks) - 1}, got {layer!r}."
        )
    planned = plan.masks[layer][0]
    mask = score.mask if isinstance(score, Score) else score
    if mask != planned:
        raise errors.MaskValueError(
            f"parallel.attention: the plan is for {planned} with its tensors, got {mask}, or other "
            "tensors, even if their entries are equal: keys that it needs may be missing. On each "
            "rank, plan with the mask you pass and with the same tensors."
        )
    versions = plan.versions[layer]
    if versions is not None and not torch.compiler.is_compiling() and versions != versions_of(mask):
        raise errors.MaskValueError(
            f"parallel.attention: tensors of {mask} were written to after it was planned, so keys "
            "that it needs now may be missing. Plan again."
        )
