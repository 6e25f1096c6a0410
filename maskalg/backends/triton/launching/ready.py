"""Calls like one launched before: only the addresses of tensors, or sizes, are new.

A call is like another one with the same expression if shapes, strides, dtype, device, scale and
kind of sink are the same, too (in a backward pass, also the kind of gradient). Then launches differ
in the addresses of tensors alone; finding everything else anew would take longer than the launch.

A call of other sizes, such as the next step of a decoder, or with another expression of the same
structure, uses the same kernels if all facts that chose and compiled them are the same. Then only
numbers that depend on sizes are computed.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from typing import Any, Final, Literal, NamedTuple, cast

import torch

from ....codegen.hooks import Hooks
from ....engine.memory import captured, state_of, stream_of
from ....engine.pages import Pages
from ...call import Call
from .. import tuned as triton_tuned
from ..arguments import hooked, lies_plainly, numbers_among, tables_fit, tables_of
from ..plan import told_of
from .descriptors import Descriptor
from .launch import Launch, Prepared, Variant, kind_of_argument, variant_of, watched
from .spec import KernelSpec, Sizes

_MOST: Final = 64  # kinds of calls remembered with an expression, and with a structure
_MOST_ADDRESSES: Final = 64  # of a described tensor
_MOST_PREPARED: Final = 256  # places of a call's tensors, as the layers of a model have
_LARGE: Final = 1 << 24  # bytes of tables, from which on they are added up
_MOST_OF_TABLES: Final = 1 << 30  # bytes of the tables of an expression's launches
_PATIENCE: Final = 4  # how often a kind of call may turn out to be another one

Pass = Literal["forward", "backward"]
Route = Callable[[Call, Sequence[Any]], Hashable]
Made = list[tuple[tuple[int, ...], torch.dtype]]
"""Shapes and dtypes of the tensors that launches make."""
Results = Sequence[torch.Tensor | None]
Result = tuple[tuple[int, ...], tuple[int, ...], torch.dtype]
"""Shape, strides and dtype of a tensor."""


class Described(NamedTuple):
    """A descriptor among the arguments: its place, its tensor, and encodings by address."""

    at: int
    which: int
    known: dict[int, list[Any]]
    layout: Any


class Template(NamedTuple):
    """A launch of a variant, without the tensors of a call.

    Attributes:
        variant: the compiled kernel.
        programs: along both axes.
        arguments: the arguments, with placeholders for tensors.
        places: for each tensor, its place among the arguments and its index in the call.
        described: likewise for encoded descriptors.
        tables: the place of the expression's tables, None without them.
        numbers: the place of the first number.
        scalars: whether the expression's numbers follow the launch's own.
        spec, sized: as in `Launch`.
        strided: the indices of tensors whose strides are passed.
        kind: the facts about numbers for which the variant was compiled.
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

    def prepared(self, found: Sequence[Any], addresses: Sequence[Any], stream: int) -> Prepared:
        """The launch on tensors at these addresses, on a stream of the current device."""
        arguments, encoder = self.arguments.copy(), self.variant.encoder
        for at, which in self.places:
            arguments[at] = addresses[which]
        for at, which, known, layout in self.described:
            address = addresses[which]
            parts = known.get(address)
            if parts is None:
                assert encoder is not None  # without one, `Launch` keeps no variant
                if len(known) >= _MOST_ADDRESSES:
                    known.clear()
                parts = known[address] = encoder.encode(Descriptor(found[which]), layout)
            arguments[at : at + len(parts)] = parts
        return self.variant.prepared(self.programs, stream, arguments)

    def sizes_for(self, call: Call, found: Sequence[Any]) -> tuple[Sizes, list[float]] | None:
        """The sizes of another call, and its numbers; None if they need another variant."""
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
            arguments[self.tables] = None if tables is None else _passed(tables)
        described = [Described(at, which, {}, layout) for at, which, _, layout in self.described]
        return self._replace(programs=(programs, 1), arguments=arguments, described=described)

    def bare(self) -> Template:
        """The template without tensors, for other sizes."""
        return self.with_sizes(0, (), None, ())


Launches = tuple[list[Template], list[torch.Tensor], Made]
"""Launches, the tensors they read that are the same at each call, and the tensors they make."""


def template_of(launch: Launch, found: Sequence[Any]) -> Template | None:
    """The template of a launch; None in the interpreter, and if it uses tensors not in `found`.

    Args:
        found: the tensors of the call in order, without the expression's tables: each a tensor, a
            tuple of tensors, or None.
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
            arguments.append(_passed(argument))
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


def _passed(tables: tuple[torch.Tensor, ...]) -> tuple[Any, ...]:
    """The expression's tables as passed; 0 for an empty one, whose address is not needed."""
    return tuple([table if table.numel() else 0 for table in tables])


def _addresses(found: Sequence[Any]) -> list[Any]:
    """The addresses of tensors, read once for all launchers; tuples for tuples, 0 for None."""
    addresses: list[Any] = []
    for one in found:
        if one is None:
            addresses.append(0)
        elif type(one) is tuple:
            addresses.append(tuple(_addresses(one)))
        else:
            addresses.append(one.data_ptr())
    return addresses


class Ready(NamedTuple):
    """The launches of a call, without its tensors.

    Attributes:
        hooks: the expression's hooks, which name its tables.
        tables: the tables that are passed.
        told: the facts about the expression's tensors that the launches rely on. Moving or
            converting a module puts other memory into the same tensors.
        tuned: the `tuned.generation` that chose the kernels.
        stream: the stream on which kept tensors were filled; None if there are none.
        numbers: the table of numbers, None without one.
        templates: the templates of the launches, in order.
        results: the results that are filled, or None.
        kept: tensors that the launches read, the same at each call.
        made: shapes and dtypes of tensors that the launches write and read.
        prepared: launches by stream and addresses. Each step of a training has the same again.
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
    results: list[Result | None]
    kept: list[torch.Tensor]
    made: Made
    prepared: dict[Hashable, list[Prepared]]
    misses: int
    seen: list[Hashable]

    def serves(self, call: Call, stream: int) -> bool:
        """Whether nothing has changed that the launches rely on."""
        if self.tuned != triton_tuned.generation:
            return False
        if self.stream is not None and self.stream != stream:
            return False
        if self.told is None:
            return True
        state = _state(call)
        if state is not None and state == self.seen[0]:
            return True
        if _told(call, self.tables) != self.told or not tables_fit(self.hooks, call):
            return False
        # Numbers have not changed: those of the expression, and those of the same sizes.
        found = tables_of(self.hooks, call, self.numbers)
        served = all(a is b for a, b in zip(found, self.tables, strict=True))
        self.seen[0] = state if served else None
        return served

    def launch(
        self, given: Sequence[Any], stream: int, results: Results | None = None
    ) -> Results | None:
        """Launch on the given tensors; returns the results, or None if inputs are not aligned.

        Args:
            given: as in `remember`.
            stream: the current one.
            results: results to fill, if these launches were found for this very call.
        """
        query = given[0]
        if results is None:
            results = [
                None if of is None else query.new_empty_strided(of[0], of[1], dtype=of[2])
                for of in self.results
            ]
        found = [*given, *results, *self.kept]
        for shape, dtype in self.made:
            found.append(query.new_empty(shape, dtype=dtype))
        addresses = _addresses(found)
        place = (stream, *addresses)
        launches = self.prepared.get(place)
        if launches is None:
            if not _aligned(given):
                return None
            if len(self.prepared) >= _MOST_PREPARED:
                self.prepared.clear()
            launches = [each.prepared(found, addresses, stream) for each in self.templates]
            self.prepared[place] = launches
        for launcher, passed in launches:
            launcher(*passed)
        return results


class Resizable(NamedTuple):
    """The launches of one route, for calls of other sizes; holds no tensor.

    Attributes:
        once, again: the launches whose results are kept, and the others.
        tables: the kinds of the expression's tables.
    """

    once: list[Template]
    again: list[Template]
    tables: Hashable


class Family(NamedTuple):
    """The calls of a structure that share a plan.

    Attributes:
        hooks: the plan's hooks.
        tuned: as in `Ready`.
        route: gives the kernels of the plan for a call, and how they are launched.
        known: launches by route.
    """

    hooks: Hooks
    tuned: int
    route: Route
    known: dict[Hashable, Resizable]


def launch_again(
    call: Call,
    of: Pass,
    given: Sequence[Any],
    wanted: tuple[bool, ...],
    new_results: Callable[[], Results],
) -> Results | None:
    """Launch a call like an earlier one; returns the results, or None if it has to be prepared.

    Args:
        call, of, given: as in `remember`.
        wanted: whether each result is wanted.
        new_results: makes tensors for the results.
    """
    if of not in call.form.structure.remembered or watched():
        return None
    remembered, alike, kind = call.form.remembered, call.alike, None
    stream = stream_of(call.query.device)
    served = None if alike is None else alike.get((of, wanted, stream))
    if served is not None and served.tuned != triton_tuned.generation:
        served = None
    ready = served
    if ready is None:
        kind = _kind(call, of, given, wanted)
        ready = remembered.get(kind)
    if type(ready) is Ready:
        if (ready.tables or ready.stream is not None) and captured(call.query.device):
            return None  # a graph has tables of its own
        if ready is served or ready.serves(call, stream):
            if alike is not None:
                alike[of, wanted, stream] = ready
            return ready.launch(given, stream, new_results() if call.rooms else None)
        ready = remembered[kind] = ready.misses + 1
    if not _plain(call):
        return None
    resized = _resized(call, (of, given, wanted), new_results, ready or 0)
    if resized is None:
        return None
    ready, results = resized
    if ready.misses < _PATIENCE:
        _keep(remembered, kind, ready)
    if alike is not None and not (ready.tables and _copies_tables(call)):
        alike[of, wanted, stream] = ready
    return ready.launch(given, stream, results)


def remember(
    call: Call,
    of: Pass,
    given: Sequence[Any],
    results: Results,
    hooks: Hooks,
    launches: Sequence[Launch],
    route: Route,
) -> None:
    """Keep the launches for a call like this one, from the second call of a structure on.

    Many expressions are built for a single call. Tables that are new at each call are not kept.

    Args:
        of: the pass that is launched.
        given: query, key, value, then the other arguments of the pass: tensors, tuples of them, and
            None.
        results: the filled results, new tensors at each call, or None.
        hooks: the kernels' hooks.
        launches: the launches made.
        route: gives the kernels of the plan for a call and its arguments; holds no tensor.
    """
    structure = call.form.structure
    if of not in structure.remembered:
        structure.remembered[of] = None
        return
    once = [launch for launch in launches if launch.once]
    again = [launch for launch in launches if not launch.once]
    kept, made = ([t for launch in part for t in launch.made] for part in (once, again))
    wanted = _wanted(results)
    kind = _kind(call, of, given, wanted)
    misses = call.form.remembered.get(kind, 0)
    if not isinstance(misses, int) or misses >= _PATIENCE or not _plain(call):
        return
    if (hooks.tables or kept or _filled(call)) and captured(call.query.device):
        return
    tables = tables_of(hooks, call)
    found = [*given, *results, *kept, *made]
    parts = [[template_of(launch, found) for launch in part] for part in (once, again)]
    of_once, of_again = ([one for one in part if one is not None] for part in parts)
    if [*of_once, *of_again] != [*parts[0], *parts[1]]:
        _keep(call.form.remembered, kind, misses + 1)
        return
    family_kind = _family_kind(call, of, given, wanted)
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
    of_call = _ready(call, hooks, tables, results, (of_again, kept, made_again), misses)
    _keep(call.form.remembered, kind, of_call)


def _ready(
    call: Call,
    hooks: Hooks,
    tables: tuple[torch.Tensor, ...],
    results: Results,
    launches: Launches,
    misses: int,
) -> Ready:
    templates, kept, made = launches
    numbers = numbers_among(hooks, tables) if tables else None
    on_stream = bool(kept) or numbers is not None or _filled(call)
    return Ready(
        hooks=hooks,
        tables=tables,
        told=_told(call, tables) if tables or call.form.tables else None,
        tuned=triton_tuned.generation,
        stream=stream_of(call.query.device) if on_stream else None,
        numbers=numbers,
        templates=templates,
        results=[
            None if result is None else (result.shape, result.stride(), result.dtype)
            for result in results
        ],
        kept=kept,
        made=made,
        prepared={},
        misses=misses,
        seen=[None],
    )


def _resized(
    call: Call,
    asked: tuple[Pass, Sequence[Any], tuple[bool, ...]],
    new_results: Callable[[], Results],
    misses: int,
) -> tuple[Ready, Results] | None:
    """The launches, and their results, for a call of other sizes or with another expression."""
    of, given, wanted = asked
    family = call.form.structure.remembered.get(_family_kind(call, of, given, wanted))
    if family is None or family.tuned != triton_tuned.generation:
        return None
    known = family.known.get(family.route(call, given))
    hooks = family.hooks
    if known is None or (
        (hooks.tables or known.once or _filled(call)) and captured(call.query.device)
    ):
        return None
    if hooks.tables and not tables_fit(hooks, call):
        return None
    tables = tables_of(hooks, call)
    if kind_of_argument(tables) != known.tables:
        return None
    scalars, passed = hooked(hooks, call, tables)
    results = new_results()
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
    found += kept
    stream = stream_of(call.query.device)
    addresses = _addresses(found)
    for template in once:
        launcher, arguments = template.prepared(found, addresses, stream)
        launcher(*arguments)
    launches = (again, kept, of_again)
    return _ready(call, hooks, tables, results, launches, misses), results


def _keep(remembered: dict[Hashable, Any], kind: Hashable, found: Ready | Family | int) -> None:
    if len(remembered) >= _MOST and kind not in remembered:
        passes = [of for of in ("forward", "backward") if of in remembered]
        remembered.clear()
        remembered.update(dict.fromkeys(passes))
    remembered[kind] = found
    tables = found.tables if type(found) is Ready else ()
    if tables and sum(table.nbytes for table in tables) > _LARGE:
        _forget_tables(remembered, kind)


def _forget_tables(remembered: dict[Hashable, Any], last: Hashable) -> None:
    """Forget the first of the launches before the last, while their tables take much memory."""
    kinds = [kind for kind, one in remembered.items() if type(one) is Ready and kind != last]
    while kinds:
        launches = [remembered[kind] for kind in (*kinds, last)]
        sizes = {id(table): table.nbytes for one in launches for table in one.tables}
        if sum(sizes.values()) <= _MOST_OF_TABLES:
            return
        del remembered[kinds.pop(0)]


def _wanted(results: Results) -> tuple[bool, ...]:
    return tuple([one is not None for one in results])


def _kind(call: Call, of: Pass, given: Sequence[Any], wanted: tuple[bool, ...]) -> Hashable:
    query, key, value, weight = call.query, call.key, call.value, call.weight
    identities = [*map(id, given)]
    return (
        of, wanted, query.shape, key.shape, value.shape, query.stride(), key.stride(),
        value.stride(), query.dtype, key.dtype, query.device, call.scale, weight.normalised,
        None if call.pages is None else _kind_of_pages(call),
        None if isinstance(weight.sink, torch.Tensor) else weight.sink,
        # Which of them are the same tensor, or None.
        *map(identities.index, identities),
        *[
            None if one is None else _kind_of(one)
            for one in ((*given[3:], *call.rooms) if call.pages is None else given[3:-1])
        ],
    )  # fmt: skip


def _kind_of_pages(call: Call) -> Hashable:
    """The shapes of pages, which determine sizes, and facts about them that determine variants."""
    pages = cast(Pages, call.pages)
    tensors = pages.tensors
    known = pages.remembered.get("kind")
    if known is None or known[0] is not tensors:
        table = tensors[0]
        known = tensors, (table.shape, table.stride(), *map(_kind_of, tensors))
        pages.remembered["kind"] = known
    return known[1], call.extents.q_len


def _kind_of(one: Any) -> Hashable:
    if type(one) is tuple:
        return kind_of_argument(one)
    return one.dtype, one.data_ptr() & 15, one.stride()


def _family_kind(call: Call, of: Pass, given: Sequence[Any], wanted: tuple[bool, ...]) -> Hashable:
    """The key of a plan and its kernels, without the facts in `Family.route` and `Sizes`."""
    query, key, value = call.query, call.key, call.value
    identities = [id(one) for one in given]
    return (
        of, wanted, told_of(call), query.shape[1], key.shape[1], query.shape[3], value.shape[3],
        query.dtype, key.dtype, query.device, call.scale, call.page_size, call.packed,
        call.weight.normalised, call.weight.formula is None,
        *[table.dtype for table in call.form.tables],
        *[identities.index(one) for one in identities],
        *[kind_of_argument(one) for one in given[3:]],
    )  # fmt: skip


def _state(call: Call) -> Hashable:
    """The state of the expression's tensors and the current stream, which determine the tables;
    None if writes to a tensor are not counted."""
    tables = call.form.tables
    if any(table.is_inference() for table in tables):
        return None
    return (stream_of(call.query.device), *map(state_of, tables))


def _told(call: Call, tables: tuple[torch.Tensor, ...]) -> Hashable:
    """Sizes of the expression's tensors, and facts that determine variants."""
    return (*[table.shape for table in call.form.tables], kind_of_argument(tables))


def _copies_tables(call: Call) -> bool:
    """Whether a table of the expression is copied for each call; no copy is kept."""
    return not all(map(lies_plainly, call.form.tables))


def _plain(call: Call) -> bool:
    """Whether there is something to launch, addresses are multiples of 16, as kernels assume, and
    the sink is not strided (a strided sink is copied)."""
    if not (call.query.numel() and call.key.numel()):
        return False
    sink = call.weight.sink
    if isinstance(sink, torch.Tensor) and not sink.is_contiguous():
        return False
    return _aligned((call.query, call.key, call.value))


def _aligned(given: Sequence[Any]) -> bool:
    """Whether the addresses of query, key and value are multiples of 16, as kernels assume."""
    query, key, value = given[:3]
    return cast(int, query.data_ptr() | key.data_ptr() | value.data_ptr()) & 15 == 0


def _filled(call: Call) -> bool:
    """Whether the sink is a number, which is passed in a tensor filled with it."""
    return isinstance(call.weight.sink, (int, float))
