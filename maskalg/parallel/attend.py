"""`parallel.attention()`: attention over a sequence that a plan shares among processes.

Each rank attends with its queries to the keys it holds while those it needs of others travel, then
to what came, and merges. Ranges of consecutive tokens are calls of their own under a shifted mask,
so kernels and proofs are those of one process.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

import torch
from torch.autograd.function import once_differentiable

from .. import errors
from ..attention import attention as attend
from ..backends.merge import merge
from ..formula.expression import Expression
from ..values.algebra import Mask, Score
from ..values.weights import Weight, softmax
from .planning import Plan
from .steps import Call, Hop, Method, Steps, steps_of

if TYPE_CHECKING:
    from torch.distributed import ProcessGroup
    from torch.distributed.device_mesh import DeviceMesh

Tensors = tuple[torch.Tensor, ...]


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
        query: `[batch, heads, tokens, dim]`, those of this process.
        key: `[batch, kv_heads, tokens, dim]`, likewise.
        value: `[batch, kv_heads, tokens, value_dim]`, likewise, in the dtype of `key`.
        score: the mask that was planned, or a score with that mask.
        plan: the plan, equal on all processes.
        layer: which of the plan's masks it is.
        group: a process group or a device mesh of one dimension; None is the default group.
        method: "gather" exchanges all keys at once, and keeps what came for the gradients. "ring"
            exchanges with one rank at a time, while it attends to what came before, and again for
            the gradients: it holds the keys of two ranks at most.
        scale: as `maskalg.attention` takes it.
        weight: softmax, or softmax with a sink.
        sum_learned: whether gradients of biases and sinks are summed over the group. Say False
            where FSDP or DDP does that, for parameters of the same ranks.
        backend: as `maskalg.attention` takes it.

    Returns:
        The output `[batch, heads, tokens, value_dim]`.

    Raises:
        TypeError, ValueError: a mask that was not planned, inputs that are not the tokens of this
            process, a weight that is no softmax; what `maskalg.attention` raises.
    """
    from torch import distributed

    processes = _group(group)
    size, rank = distributed.get_world_size(processes), distributed.get_rank(processes)
    _check(query, key, value, plan, (size, rank))
    _check_mask(score, plan, layer)
    if weight.formula is not None:
        raise errors.MaskValueError(
            f"parallel.attention: parts of the keys are merged by their lse, which {weight} has "
            "not. Pass softmax or softmax_with_sink, or gather the keys and call maskalg.attention."
        )
    if method not in ("gather", "ring"):
        raise errors.MaskValueError(
            f'parallel.attention: method must be "gather" or "ring", got {method!r}.'
        )
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
        _Options(scale, backend),
        keeps=method == "gather",
    )
    inputs = (query, key, value, *shared[: len(names)])
    if torch.is_grad_enabled() and any(tensor.requires_grad for tensor in inputs):
        results: Tensors = _Attention.apply(run, *inputs)  # type: ignore[no-untyped-call]
    else:
        results = run.forward(inputs, graph=False)[:2]
    out, lse = results
    if sink is None:
        return out
    # The lse is that of the keys: what they have of the weight besides the sink.
    logit = sink.view(-1, 1) if isinstance(sink, torch.Tensor) else sink
    return out * torch.sigmoid(lse - logit).unsqueeze(-1).to(out.dtype)


@dataclass(frozen=True)
class _Options:
    scale: float | None
    backend: str | None


@dataclass(frozen=True, eq=False)
class _Part:
    """Attention to the keys of one exchange: what it was computed from, and its results."""

    leaves: Tensors
    calls: tuple[Call, ...]
    outs: list[torch.Tensor]
    lses: list[torch.Tensor]


@dataclass(frozen=True, eq=False)
class _Run:
    """One call, on this rank."""

    steps: Steps
    group: ProcessGroup | None
    score: Mask | Score
    names: tuple[str, ...]
    options: _Options
    keeps: bool

    def forward(
        self, inputs: Tensors, *, graph: bool
    ) -> tuple[torch.Tensor, torch.Tensor, list[_Part]]:
        """The output, its lse, and the parts where they are kept."""
        query, key, value, *learned = inputs
        pieces: list[list[tuple[torch.Tensor, torch.Tensor]]] = [[] for _ in self.steps.pieces]
        parts = []
        for keys, values, calls, _ in self._keys(key, value):
            part = self._part((query, keys, values, *learned), calls, graph)
            for call, out, lse in zip(calls, part.outs, part.lses, strict=True):
                pieces[call.piece].append((out.detach(), lse.detach()))
            if graph:
                parts.append(part)
        outs, lses = [], []
        for place, found in zip(self.steps.pieces, pieces, strict=True):
            if not found:  # these queries keep no key
                shape = query[:, :, place].shape[:3]
                out = value.new_zeros((*shape, value.shape[3]))
                found = [(out, query.new_full(shape, -math.inf, dtype=torch.float32))]
            out, lse = merge(*zip(*found, strict=True)) if len(found) > 1 else found[0]
            outs.append(out)
            lses.append(lse)
        return torch.cat(outs, dim=2), torch.cat(lses, dim=2), parts

    def _keys(
        self, key: torch.Tensor, value: torch.Tensor
    ) -> Iterator[tuple[torch.Tensor, torch.Tensor, tuple[Call, ...], Hop | None]]:
        """Keys and values at hand, one exchange after the other, its calls, and the exchange.

        The next exchange goes on while the caller computes with the last.
        """
        hops = self.steps.hops
        rows = _packed(key, value) if hops else None
        next_ = self._sent(hops[0], rows) if rows is not None else None
        yield key, value, self.steps.own, None
        for number, hop in enumerate(hops):
            assert next_ is not None
            came = next_()
            next_ = self._sent(hops[number + 1], rows) if number + 1 < len(hops) else None
            keys, values = _unpacked(came[hop.order], key, value)
            yield keys, values, hop.calls, hop

    def _sent(self, hop: Hop, rows: torch.Tensor | None) -> Callable[[], torch.Tensor]:
        assert rows is not None
        return _exchange(rows[hop.send], hop.to, hop.back, self.group)

    def _part(self, inputs: Tensors, calls: tuple[Call, ...], graph: bool) -> _Part:
        with torch.set_grad_enabled(graph):
            if graph:
                inputs = tuple([t.detach().requires_grad_() for t in inputs])
            query, key, value, *learned = inputs
            score = self.score
            if learned:
                score = score.bind(dict(zip(self.names, learned, strict=True)))
            results = [
                attend(
                    query[:, :, call.queries],
                    key[:, :, call.keys],
                    value[:, :, call.keys],
                    _shifted(score, call, remembered=not learned),
                    scale=self.options.scale,
                    return_lse=True,
                    backend=self.options.backend,
                )
                for call in calls
            ]
        return _Part(inputs, calls, [out for out, _ in results], [lse for _, lse in results])

    def backward(
        self, inputs: Tensors, results: Tensors, gradients: Tensors, parts: list[_Part]
    ) -> list[torch.Tensor]:
        """The gradients of `inputs`, those of keys and values from all ranks."""
        query, key, value, *learned = inputs
        dtype = torch.float64 if query.dtype == torch.float64 else torch.float32
        of_query = torch.zeros_like(query, dtype=dtype)
        of_learned = [torch.zeros_like(tensor) for tensor in learned]
        rows = torch.zeros_like(_packed(key, value), dtype=dtype)
        returning: list[tuple[Hop, Callable[[], torch.Tensor]]] = []
        for part, hop in self._parts(inputs, parts):
            mine, of_keys, of_values, *others = _gradients(part, results, gradients, self.keeps)
            of_query += mine
            for total, other in zip(of_learned, others, strict=True):
                total += other
            if hop is None:
                rows += _packed(of_keys, of_values)
                continue
            back = torch.empty_like(packed := _packed(of_keys, of_values))
            back[hop.order] = packed
            returning.append((hop, _exchange(back, hop.back, hop.to, self.group)))
        for hop, arrived in returning:
            # What comes from one rank is added at once: each token of it is there once.
            for places, part_of in zip(
                hop.send.split(hop.to), arrived().split(hop.to), strict=True
            ):
                rows.index_add_(0, places, part_of.to(dtype))
        of_keys, of_values = _unpacked(rows, key, value)
        found = [of_query, of_keys, of_values]
        return [g.to(t.dtype) for g, t in zip(found, (query, key, value), strict=True)] + of_learned

    def _parts(self, inputs: Tensors, kept: list[_Part]) -> Iterator[tuple[_Part, Hop | None]]:
        """Each part and its exchange; first those whose gradients have to travel."""
        if kept:
            yield from reversed(list(zip(kept, (None, *self.steps.hops), strict=True)))
            return
        query, key, value, *learned = inputs
        for keys, values, calls, hop in self._keys(key, value):
            yield self._part((query, keys, values, *learned), calls, graph=True), hop


class _Attention(torch.autograd.Function):
    """The output and its lse, of `_Run.forward`."""

    @staticmethod
    def forward(ctx: Any, run: _Run, *inputs: torch.Tensor) -> Tensors:
        out, lse, parts = run.forward(inputs, graph=run.keeps)
        ctx.run, ctx.parts = run, parts
        ctx.save_for_backward(*inputs, out, lse)
        return out, lse

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *gradients: torch.Tensor) -> Any:
        *inputs, out, lse = ctx.saved_tensors
        return None, *ctx.run.backward(tuple(inputs), (out, lse), gradients, ctx.parts)


class _Summed(torch.autograd.Function):
    """Tensors that all ranks have; their gradients are the sum of all ranks', in that order."""

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


def _gradients(
    part: _Part, results: Tensors, gradients: Tensors, again: bool
) -> list[torch.Tensor]:
    """Of what a part was computed from, given the merged results and their gradients.

    out = sum of share * out of the part, lse = log of the sum of exp(lse of the part), share =
    exp(lse of the part - lse).
    """
    weights, targets = [], []
    for call, out, lse in zip(part.calls, part.outs, part.lses, strict=True):
        whole, whole_lse, of_out, of_lse = (x[:, :, call.queries] for x in (*results, *gradients))
        some = lse.detach() != -math.inf
        share = torch.where(some, torch.exp(torch.where(some, lse.detach() - whole_lse, 0.0)), 0.0)
        apart = (of_out * (out.detach() - whole)).sum(dim=-1, dtype=lse.dtype)
        targets += [out, lse]
        weights += [
            (share.unsqueeze(-1) * of_out).to(out.dtype),
            (share * (torch.where(some, apart, 0.0) + of_lse)).to(lse.dtype),
        ]
    if not targets:
        return [torch.zeros_like(leaf) for leaf in part.leaves]
    found = torch.autograd.grad(
        targets, part.leaves, weights, retain_graph=again, allow_unused=True
    )
    return [
        torch.zeros_like(leaf) if gradient is None else gradient
        for leaf, gradient in zip(part.leaves, found, strict=True)
    ]


def _exchange(
    rows: torch.Tensor, to: list[int], back: list[int], group: ProcessGroup | None
) -> Callable[[], torch.Tensor]:
    """Send rows to the other ranks; what is returned waits for theirs."""
    from torch import distributed

    came = rows.new_empty((sum(back), rows.shape[1]))
    work = distributed.all_to_all_single(came, rows, back, to, group=group, async_op=True)

    def wait() -> torch.Tensor:
        work.wait()
        assert rows is not None  # they must last until they were sent
        return came

    return wait


def _packed(key: torch.Tensor, value: torch.Tensor) -> torch.Tensor:
    """Keys and values of each token in one row, batch * kv_heads * (dim + value_dim) long."""
    return torch.cat([key, value], dim=3).permute(2, 0, 1, 3).flatten(1)


def _unpacked(
    rows: torch.Tensor, key: torch.Tensor, value: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """Rows as keys and values of the shape that those have, but for the number of tokens."""
    batch, heads, _, dim = key.shape
    both = rows.view(len(rows), batch, heads, dim + value.shape[3]).permute(1, 2, 0, 3)
    return both[..., :dim].contiguous(), both[..., dim:].contiguous()


def _shifted(score: Mask | Score, call: Call, *, remembered: bool) -> Expression:
    """The score where the tokens of a call are."""
    if not remembered:
        return score.shift(q=call.q_start, kv=call.kv_start)
    known = score.__dict__.setdefault("_shifted", {})
    place = (call.q_start, call.kv_start)
    if place not in known:
        known[place] = score.shift(q=call.q_start, kv=call.kv_start)
    return cast(Expression, known[place])


def _learned(score: Mask | Score) -> tuple[tuple[str, ...], list[torch.Tensor]]:
    """The tensors of a score that take gradients, and their names."""
    found = {
        name: value
        for name, value in score.parameters.items()
        if isinstance(value, torch.Tensor) and value.requires_grad
    }
    return tuple(found), list(found.values())


def _group(group: ProcessGroup | DeviceMesh | None) -> ProcessGroup | None:
    get_group = getattr(group, "get_group", None)
    return cast("ProcessGroup | None", group if get_group is None else get_group())


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
    if key.dtype != value.dtype:
        raise errors.MaskTypeError(
            "parallel.attention: key and value travel together and must have one dtype, got "
            f"{key.dtype} and {value.dtype}."
        )


def _check_mask(score: Mask | Score, plan: Plan, layer: int) -> None:
    if not isinstance(score, (Mask, Score)):
        raise errors.not_a_score(score)
    if not 0 <= layer < len(plan.masks):
        raise errors.MaskValueError(
            "parallel.attention: layer must be the number of a mask of the plan, 0 to "
            f"{len(plan.masks) - 1}, got {layer!r}."
        )
    planned = plan.masks[layer][0]
    mask = score.mask if isinstance(score, Score) else score
    if mask != planned:
        raise errors.MaskValueError(
            f"parallel.attention: the plan is for {planned} with its tensors, got {mask}: keys "
            "that it needs may be missing. Plan with the mask you pass, and with the same tensors."
        )
