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
from ....schedule.memory import state_of, stream_of
from ...call import Call
from .. import tuned as triton_tuned
from ..arguments import hooked, numbers_among, tables_of
from ..plan import of_sizes
from .descriptors import Descriptor
from .launch import Launch, Variant, kind_of_argument, start, variant_of, watched
from .spec import KernelSpec, Sizes

_MOST: Final = 64  # kinds of calls remembered with an expression, and with a structure
_MOST_ADDRESSES: Final = 64  # of a tensor that is described
_PATIENCE: Final = 4  # how often a kind of call may turn out to be another one

Pass = Literal["forward", "backward"]
Route = Callable[[Call, Sequence[Any]], Hashable]
Made = list[tuple[tuple[int, ...], torch.dtype]]
"""Shapes and dtypes of the tensors that launches make."""


class Described(NamedTuple):
    """A descriptor among the arguments: its place, its tensor, and encoded ones by address."""

    at: int
    which: int
    known: dict[int, list[Any]]
    layout: Any


class Template(NamedTuple):
    """A launch of a variant on tensors that are found at each call.

    Attributes:
        variant: of the kernel.
        programs: along both axes.
        arguments: with anything where a tensor belongs.
        places: of tensors among the arguments, and which tensor it is.
        described: likewise of encoded descriptors.
        tables: the place of the expression's tables, None without them.
        numbers: the place of the first number.
        scalars: whether the expression's numbers follow the launch's own.
        spec, sized: as of `Launch`.
        strided: which tensors' strides are passed.
        kind: of the numbers that the variant serves.
    """

    variant: Variant
    programs: tuple[int, int]
    arguments: list[Any]
    places: list[tuple[int, int]]
    described: list[Described]
    tables: int | None
    numbers: int
    scalars: bool
    spec: KernelSpec
    sized: Callable[[Call], Sizes]
    strided: list[int]
    kind: Hashable

    def launch(self, found: Sequence[Any]) -> None:
        """Launch on these tensors."""
        arguments, encoder = self.arguments.copy(), self.variant.encoder
        for at, which in self.places:
            arguments[at] = found[which]
        for at, which, known, layout in self.described:
            tensor = found[which]
            if encoder is None:
                arguments[at] = Descriptor(tensor)
                continue
            address = tensor.data_ptr()
            parts = known.get(address)
            if parts is None:
                if len(known) >= _MOST_ADDRESSES:
                    known.clear()
                parts = known[address] = encoder.encode(Descriptor(tensor), layout)
            arguments[at : at + len(parts)] = parts
        start(self.variant, self.programs, arguments)

    def sizes_for(self, call: Call, found: Sequence[Any]) -> tuple[Sizes, list[float]] | None:
        """The sizes of another call, and the numbers; None where the variant does not serve."""
        sizes = self.sized(call)
        numbers, kind = self.spec.numbers(sizes, [found[at] for at in self.strided])
        return (sizes, numbers) if kind == self.kind else None

    def with_sizes(
        self,
        programs: int,
        numbers: Sequence[float],
        tables: tuple[torch.Tensor, ...] | None,
        scalars: Sequence[int],
    ) -> Template:
        """The launch of these sizes, on these tables and numbers of an expression."""
        arguments = [*self.arguments[: self.numbers], *numbers]
        if self.scalars:
            arguments += scalars
        if self.tables is not None:
            arguments[self.tables] = tables
        described = [Described(at, which, {}, layout) for at, which, _, layout in self.described]
        return self._replace(programs=(programs, 1), arguments=arguments, described=described)

    def bare(self) -> Template:
        """The same without a tensor, to be given other sizes."""
        return self.with_sizes(0, (), None, ())


def template_of(launch: Launch, found: Sequence[Any]) -> Template | None:
    """The template of a launch that was made; None in the interpreter, and with other tensors.

    Args:
        found: what is found at each call: all tensors but the expression's tables, and tuples of
            others, or None.
    """
    variant = variant_of(launch)
    if variant is None:
        return None
    which = {id(one): i for i, one in enumerate(found) if one is not None}
    blocks = iter(variant.encoder.blocks if variant.encoder is not None else ())
    arguments: list[Any] = []
    places: list[tuple[int, int]] = []
    described: list[Described] = []
    at_tables = None
    for argument in launch.arguments:
        is_described = type(argument) is Descriptor
        place = which.get(id(argument.base if is_described else argument))
        if is_described and place is not None:
            layout = next(blocks)[0] if variant.encoder is not None else None
            # As many arguments as an encoded descriptor has.
            parts = variant.encoder.encode(argument, layout) if variant.encoder is not None else [0]
            described.append(Described(len(arguments), place, {}, layout))
            arguments += parts
        elif place is not None:
            places.append((len(arguments), place))
            arguments.append(None)
        elif type(argument) is tuple:
            at_tables = len(arguments)
            arguments.append(argument)
        elif argument is None:
            arguments.append(None)
        else:
            return None
    strided = [which.get(id(tensor)) for tensor in launch.strided]
    numbers = len(arguments)
    arguments += [*launch.numbers, *launch.scalars]
    return Template(
        variant, launch.programs, arguments, places, described, at_tables, numbers,
        bool(launch.scalars), launch.spec, launch.sized, [at for at in strided if at is not None],
        launch.kind,
    )  # fmt: skip


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
        seen: the state of the expression's tensors when its tables were last compared.
    """

    hooks: Hooks
    tables: tuple[torch.Tensor, ...]
    told: Hashable
    tuned: int
    stream: int | None
    numbers: torch.Tensor | None
    templates: list[Template]
    kept: list[torch.Tensor]
    made: Made
    misses: int
    seen: list[Hashable]

    def serves(self, call: Call) -> bool:
        """Whether what may have changed since is as it was."""
        if self.tuned != triton_tuned.generation:
            return False
        if self.stream is not None and self.stream != stream_of(call.query.device):
            return False
        if self.told is None:
            return True
        state = _state(call)
        if state is not None and state == self.seen[0]:
            return True
        if _told(call, self.tables) != self.told:
            return False
        # The numbers are as they were: of the expression, and of sizes that are the same.
        found = tables_of(self.hooks, call, self.numbers)
        served = all(a is b for a, b in zip(found, self.tables, strict=True))
        self.seen[0] = state if served else None
        return served

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
        once, again: those whose results are kept, and the others.
        tables: kinds of the expression's tables.
    """

    once: list[Template]
    again: list[Template]
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
    """The launches of a call like one before, or None; arguments as of `remember`."""
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
    """Keep the launches for a call like this one, from the second call of a structure on.

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
    parts = [[template_of(launch, found) for launch in part] for part in (once, again)]
    of_once, of_again = ([one for one in part if one is not None] for part in parts)
    if [*of_once, *of_again] != [*parts[0], *parts[1]]:
        _keep(call.form.remembered, kind, misses + 1)
        return
    family_kind = _family_kind(call, of, given, results)
    family = structure.remembered.get(family_kind)
    if family is None or family.tuned != triton_tuned.generation:
        family = Family(hooks, triton_tuned.generation, route, {})
        _keep(structure.remembered, family_kind, family)
    family.known[family.route(call, given)] = Resizable(
        [template.bare() for template in of_once],
        [template.bare() for template in of_again],
        kind_of_argument(tables),
    )
    made_again = [(tuple(tensor.shape), tensor.dtype) for tensor in made]
    of_call = _ready(call, hooks, tables, of_again, kept, made_again, misses)
    _keep(call.form.remembered, kind, of_call)


def _ready(
    call: Call,
    hooks: Hooks,
    tables: tuple[torch.Tensor, ...],
    templates: list[Template],
    kept: list[torch.Tensor],
    made: Made,
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
        seen=[None],
    )


def _resized(
    call: Call,
    of: Pass,
    given: Sequence[Any],
    results: Sequence[torch.Tensor | None],
    misses: int,
) -> Ready | None:
    """The launches of a call of other sizes than those before, or with another expression."""
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
    scalars, passed = hooked(hooks, call, tables)
    found = [*given, *results]
    parts: list[tuple[list[Template], Made]] = []
    for part in (known.once, known.again):
        templates: list[Template] = []
        made: Made = []
        for template in part:
            measured = template.sizes_for(call, found)
            if measured is None:
                return None
            sizes, numbers = measured
            templates.append(template.with_sizes(sizes.programs, numbers, passed, scalars))
            made += sizes.made.values()
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
        query.dtype, key.dtype, query.device, call.scale, call.weight.normalised,
        _kind_of_pages(call),
        None if isinstance(sink, torch.Tensor) else sink,
        # Which are one tensor, or None.
        *[identities.index(one) for one in identities],
        *[_kind_of(one) for one in (given[3:] if call.pages is None else given[3:-1])],
        *[one is None for one in results],
    )  # fmt: skip


def _kind_of_pages(call: Call) -> Hashable:
    """The shapes of pages that sizes follow from, and what variants depend on; None without."""
    pages = call.pages
    if pages is None:
        return None
    tensors = pages.tensors
    known = pages.remembered.get("kind")
    if known is None or known[0] is not tensors:
        table = tensors[0]
        known = tensors, (table.shape, table.stride(), *map(_kind_of, tensors))
        pages.remembered["kind"] = known
    return known[1], call.extents.q_len


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
        query.dtype, key.dtype, query.device, call.scale, call.page_size, call.packed,
        call.weight.normalised, call.weight.formula is None,
        *[v.dtype for v in call.form.values if isinstance(v, torch.Tensor)],
        *[identities.index(one) for one in identities],
        *[kind_of_argument(one) for one in given[3:]],
        *[one is None for one in results],
    )  # fmt: skip


def _state(call: Call) -> Hashable:
    """A state of the expression's tensors, all of which tables follow from, and of the stream on
    which they are made; None where writes to a tensor are not counted."""
    tensors = [value for value in call.form.values if isinstance(value, torch.Tensor)]
    if any(tensor.is_inference() for tensor in tensors):
        return None
    return (stream_of(call.query.device), *map(state_of, tensors))


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
