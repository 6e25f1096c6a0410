"""Calls like one that was launched before: where tensors lie, and their sizes, is all that is new.

A call is like another with the same expression if shapes, strides, dtype, device, scale and the
kind of sink are the same too, of what is differentiated also the kind of gradient. What is
launched then differs in the addresses of tensors alone; finding all else anew would take longer
than the launch.

A call of other sizes, as the next step of a decoder is, or with another expression of the same
structure is served by the same kernels wherever all that they were chosen and compiled by is the
same. Then numbers that follow from sizes are computed, and nothing else is.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from typing import Any, Final, Literal, NamedTuple

import torch

from ....codegen.hooks import Hooks
from ....schedule.memory import stream_of
from ...call import Call
from .. import tuned as triton_tuned
from ..arguments import numbers_among, padded, scalars_of, tables_of
from ..plan import of_sizes
from .launch import Launch, kind_of_argument, watched
from .template import Template, template_of

_MOST: Final = 64  # kinds of calls remembered with an expression, and with a structure
_PATIENCE: Final = 4  # how often a kind of call may turn out to be another one

Pass = Literal["forward", "backward"]
Route = Callable[[Call, Sequence[Any]], Hashable]


class Ready(NamedTuple):
    """Launches but for the tensors of the call.

    Attributes:
        hooks: of the expression, which name its tables.
        tables: those that are passed.
        told: what the launches were told of the expression's tensors. A module that is moved or
            converted puts other memory into the same tensors.
        tuned: `tuned.generation` of what chose the kernels.
        stream: on which what is kept beside the expression's tensors was filled; None where nothing
            is.
        numbers: the table of numbers, None without one.
        templates: of the launches, in order.
        kept: tensors they read that are the same at each call.
        made: shapes and dtypes of tensors they write and read.
        misses: how often a call of this kind was another one.
    """

    hooks: Hooks
    tables: tuple[torch.Tensor, ...]
    told: Hashable
    tuned: int
    stream: int | None
    numbers: torch.Tensor | None
    templates: list[Template]
    kept: list[torch.Tensor]
    made: list[tuple[tuple[int, ...], torch.dtype]]
    misses: int

    def serves(self, call: Call) -> bool:
        """Whether what may have changed since is as it was."""
        if self.tuned != triton_tuned.generation:
            return False
        if self.stream is not None and self.stream != stream_of(call.query.device):
            return False
        if self.told is None:
            return True
        if _told(call, self.tables) != self.told:
            return False
        # The numbers are as they were: of the expression, and of sizes that are the same.
        found = tables_of(self.hooks, call, self.numbers)
        return all(a is b for a, b in zip(found, self.tables, strict=True))

    def launch(self, given: Sequence[Any], results: Sequence[torch.Tensor | None]) -> None:
        """Launch on what is given and filled; arguments as of `remember`."""
        query = given[0]
        made = [query.new_empty(shape, dtype=dtype) for shape, dtype in self.made]
        found = [*given, *results, *self.kept, *made]
        for template in self.templates:
            template.launch(found)


class Resizable(NamedTuple):
    """Launches of one route, for calls of other sizes; it holds no tensor.

    Attributes:
        once, again: those whose results are kept, and the others, with the dtypes of the tensors
            that each of them makes.
        tables: kinds of the expression's tables.
    """

    once: list[tuple[Template, list[torch.dtype]]]
    again: list[tuple[Template, list[torch.dtype]]]
    tables: Hashable


class Family(NamedTuple):
    """Calls of a structure for which one plan serves.

    Attributes:
        hooks: of the plan.
        tuned: as of `Ready`.
        route: which of the plan's kernels serve a call, and how.
        known: launches by route.
    """

    hooks: Hooks
    tuned: int
    route: Route
    known: dict[Hashable, Resizable]


def ready_for(
    call: Call, of: Pass, given: Sequence[Any], results: Sequence[torch.Tensor | None]
) -> Ready | None:
    """What launches a call like one before, or None; arguments as of `remember`."""
    if of not in call.form.structure.remembered:
        return None
    remembered = call.form.remembered
    kind = _kind(call, of, given, results)
    ready = remembered.get(kind)
    if not _plain(call) or watched():
        return None
    if isinstance(ready, Ready):
        if (ready.tables or ready.stream is not None) and _captured(call):
            return None  # a graph has tables of its own
        if ready.serves(call):
            return ready
        ready = remembered[kind] = ready.misses + 1
    resized = _resized(call, of, given, results, ready or 0)
    if resized is not None and resized.misses < _PATIENCE:
        _keep(remembered, kind, resized)
    return resized


def remember(
    call: Call,
    of: Pass,
    given: Sequence[Any],
    results: Sequence[torch.Tensor | None],
    hooks: Hooks,
    launches: Sequence[Launch],
    route: Route,
) -> None:
    """Keep what launches a call like this one, from the second call of a structure on.

    Many expressions are built for one call. Where tables are new at each call, they are not kept.

    Args:
        of: which pass is launched.
        given: query, key, value, then all else that a call is given: tensors, tuples of them, and
            None.
        results: that are filled, new tensors at each call, or None.
        hooks: of the kernels.
        launches: that were made.
        route: what of the plan's kernels serves a call, of the call and what is given; it holds no
            tensor.
    """
    structure = call.form.structure
    if of not in structure.remembered:
        structure.remembered[of] = None
        return
    once = [launch for launch in launches if launch.once]
    again = [launch for launch in launches if not launch.once]
    kept, made = ([t for launch in part for t in launch.made] for part in (once, again))
    kind = _kind(call, of, given, results)
    misses = call.form.remembered.get(kind, 0)
    if not isinstance(misses, int) or misses >= _PATIENCE or not _plain(call):
        return
    if (hooks.tables or kept or _filled(call)) and _captured(call):
        return
    tables = tables_of(hooks, call)
    found = [*given, *results, *kept, *made]
    templates = {id(launch): template_of(launch, found) for launch in launches}
    if any(template is None for template in templates.values()):
        _keep(call.form.remembered, kind, misses + 1)
        return

    def resizable(part: list[Launch]) -> list[tuple[Template, list[torch.dtype]]]:
        found = [(templates[id(launch)], [t.dtype for t in launch.made]) for launch in part]
        return [(template.bare(), dtypes) for template, dtypes in found if template is not None]

    family_kind = _family_kind(call, of, given, results)
    family = structure.remembered.get(family_kind)
    if family is None or family.tuned != triton_tuned.generation:
        family = Family(hooks, triton_tuned.generation, route, {})
        _keep(structure.remembered, family_kind, family)
    tables_kind = kind_of_argument(tables)
    family.known[family.route(call, given)] = Resizable(
        resizable(once), resizable(again), tables_kind
    )
    ready = [templates[id(launch)] for launch in again]
    whole = [template for template in ready if template is not None]
    made_again = [(tuple(tensor.shape), tensor.dtype) for tensor in made]
    of_call = _ready(call, hooks, tables, whole, kept, made_again, misses)
    _keep(call.form.remembered, kind, of_call)


def _ready(
    call: Call,
    hooks: Hooks,
    tables: tuple[torch.Tensor, ...],
    templates: list[Template],
    kept: list[torch.Tensor],
    made: list[tuple[tuple[int, ...], torch.dtype]],
    misses: int,
) -> Ready:
    numbers = numbers_among(hooks, tables)
    on_stream = bool(kept) or numbers is not None or _filled(call)
    return Ready(
        hooks=hooks,
        tables=tables,
        told=_told(call, tables),
        tuned=triton_tuned.generation,
        stream=stream_of(call.query.device) if on_stream else None,
        numbers=numbers,
        templates=templates,
        kept=kept,
        made=made,
        misses=misses,
    )


def _resized(
    call: Call,
    of: Pass,
    given: Sequence[Any],
    results: Sequence[torch.Tensor | None],
    misses: int,
) -> Ready | None:
    """What launches a call of other sizes than those before, or with another expression."""
    family = call.form.structure.remembered.get(_family_kind(call, of, given, results))
    if family is None or family.tuned != triton_tuned.generation:
        return None
    known = family.known.get(family.route(call, given))
    hooks = family.hooks
    if known is None or ((hooks.tables or known.once or _filled(call)) and _captured(call)):
        return None
    tables = tables_of(hooks, call)
    if kind_of_argument(tables) != known.tables:
        return None
    scalars = scalars_of(hooks, call.form, call.extents)
    passed = padded(tables, call.query.device)
    found = [*given, *results]
    parts: list[tuple[list[Template], list[tuple[tuple[int, ...], torch.dtype]]]] = []
    for part in (known.once, known.again):
        templates: list[Template] = []
        made: list[tuple[tuple[int, ...], torch.dtype]] = []
        for template, dtypes in part:
            sizes = template.sizes_for(call, found)
            if sizes is None:
                return None
            templates.append(template.with_sizes(sizes, passed, scalars))
            if dtypes:
                made += zip(sizes.made, dtypes, strict=True)
        parts.append((templates, made))
    (once, of_once), (again, of_again) = parts
    kept = [call.query.new_empty(shape, dtype=dtype) for shape, dtype in of_once]
    for template in once:
        template.launch([*found, *kept])
    return _ready(call, hooks, tables, again, kept, of_again, misses)


def _keep(remembered: dict[Hashable, Any], kind: Hashable, found: Ready | Family | int) -> None:
    if len(remembered) >= _MOST and kind not in remembered:
        passes = [of for of in ("forward", "backward") if of in remembered]
        remembered.clear()
        remembered.update(dict.fromkeys(passes))
    remembered[kind] = found


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
    if isinstance(one, torch.Tensor):
        return one.dtype, one.data_ptr() & 15, one.stride()
    return kind_of_argument(one)


def _family_kind(
    call: Call, of: Pass, given: Sequence[Any], results: Sequence[torch.Tensor | None]
) -> Hashable:
    """All that a plan and its kernels follow from, but for what `Family.route` and `Sizes` say."""
    query, key, value = call.query, call.key, call.value
    identities = [id(one) for one in given]
    return (
        of, of_sizes(call), query.shape[1], key.shape[1], query.shape[3], value.shape[3],
        query.dtype, query.device, call.scale,
        call.weight.normalised, call.weight.formula is None,
        *[v.dtype for v in call.form.values if isinstance(v, torch.Tensor)],
        *[identities.index(one) for one in identities],
        *[kind_of_argument(one) for one in given[3:]],
        *[one is None for one in results],
    )  # fmt: skip


def _told(call: Call, tables: tuple[torch.Tensor, ...]) -> Hashable:
    """Sizes of the expression's tensors and what a variant depends on; None without tensors."""
    sizes = [v.shape for v in call.form.values if isinstance(v, torch.Tensor)]
    return (*sizes, kind_of_argument(tables)) if sizes or tables else None


def _plain(call: Call) -> bool:
    """Whether there is anything to launch, addresses are multiples of 16, as kernels are compiled
    for, and no sink is strided, of which a copy is passed."""
    if not (call.query.numel() and call.key.numel()):
        return False
    sink = call.weight.sink
    if isinstance(sink, torch.Tensor) and not sink.is_contiguous():
        return False
    places = call.query.data_ptr() | call.key.data_ptr() | call.value.data_ptr()
    return places & 15 == 0


def _filled(call: Call) -> bool:
    """Whether a sink that is a number is passed, in a tensor filled for it."""
    return isinstance(call.weight.sink, (int, float))


def _captured(call: Call) -> bool:
    """Whether the call becomes part of a CUDA graph."""
    return call.query.is_cuda and torch.cuda.is_current_stream_capturing()
