"""Claims about the kernel text generated for an expression, and their proofs.

The generated functions that a kernel calls are its hooks, such as `masked` for one element.

- *element*: the hook keeps a pair if and only if the formula does, for any query and key, numbers
  and table entries. GPU loops over keys may reach past the last key; the hook drops those keys.
- *bounds*: the intervals of a loop hold every key that some query of a tile keeps. Either each one
  holds the closed form's interval, or all together hold the kept keys. A second list is about
  dropped keys. In the backward pass, queries and keys change places.
- *bias* and *derivative*: the score with its bias, and its slope, equal the formula's as functions
  of real numbers. Rounding is not claimed.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import cache, cached_property, partial
from typing import Any, Final, Literal, cast

import torch

from ..backends.cpu.native import hooks as native
from ..codegen.bits import may_cost
from ..codegen.derivative import derivative
from ..codegen.distance_tables import Tabled
from ..codegen.hooks import Hooks, Style, hooks_of
from ..codegen.spans import compared_ids
from ..codegen.style import Bits
from ..codegen.text.integer_sizes import sizes_of
from ..codegen.text.reals import additive
from ..engine.normal_form import Bound, Structure, transposed
from ..errors.kinds import MaskValueError
from ..formula import nodes
from ..formula.nodes import SCORE as PLAIN_SCORE
from ..formula.nodes import Node
from ..formula.parameters import Slot
from ..proof.closed_forms import Span
from ..proof.proof import prove_structure
from ..schedule.rung import rung_of
from ..schedule.tiling import Of
from . import terms
from .elements import SCALE, Interval, TritonHooks, kept
from .given import (
    Kernel,
    document_laws,
    given,
    is_reachable,
    pair,
    past_the_end,
    sizes_of_bounds,
    tile_and_key,
)
from .meaning import (
    BATCH,
    HEAD,
    KV_LEN,
    Q0,
    Q1,
    SCORE,
    K,
    Meaning,
    NotDefined,
    Q,
    step_sizes,
    step_table,
)
from .reading.cpp import Array, CppHooks
from .reading.values import INT64, Number
from .reals import prove_real
from .solve import DECIDED, Model, Verdict, aligned, by_whom, prove, settled
from .terms import Term

Target = Literal["ptx", "triton", "cpu", "torch", "page"]
Outcome = Literal["proved", "wrong", "not proved", "not made"]
Kind = Literal["element", "bias", "derivative"]
KERNELS: Final[tuple[Target, ...]] = ("ptx", "triton", "cpu")
_NAMES: Final = {"ptx": "inline PTX, NVIDIA", "triton": "Triton, other GPUs", "cpu": "C++, CPUs"}
OUTCOMES: Final[dict[str, Outcome]] = {"proved": "proved", "refuted": "wrong", "open": "not proved"}
_TOGETHER: Final = ", for all intervals together, which differ from those of the closed form"
_NO_KERNEL: Final = {
    32: "its integers need 64 bits in every call",
    64: "calls that need 64 bits are refused: their integers may be too large for kernels",
}
_ROWS: Final = {"kv_idx": "a row of keys at a time", "q_idx": "a row of queries at a time"}


@dataclass(frozen=True)
class Claim:
    """A claim, whether it was proved, and how.

    Attributes:
        kind: "element", "bounds", "bias", "derivative", "walk", "runs" of one call, or "function".
        text: the hook or table, and the kernel it belongs to.
        outcome: "proved"; "wrong", with numbers that refute it; "not proved"; or "not made": there
            is no such text or table.
        by: how it was proved, why it was not, or why there is no text.
        seconds: time of the proof.
        model: a counterexample, if wrong.
        moving: the index that the hook's loop runs over, "kv_idx" or "q_idx".
    """

    kind: str
    text: str
    outcome: Outcome
    by: str
    seconds: float
    model: Model | None = None
    moving: str = "kv_idx"

    @property
    def holds(self) -> bool:
        """Whether the claim is proved or "not made"."""
        return self.outcome in ("proved", "not made")


@dataclass(frozen=True)
class Subject:
    """An expression's structure, and facts about its values that decide how kernels are written.

    The last four attributes serve tests of the verifier, which put errors into the text.

    Attributes:
        structure: structure of the expression.
        dtypes: dtypes of its tables, by slot.
        limbs: `Style.limbs` for indices of 32 and of 64 bits; a missing width has no kernel.
        library: sources used in place of the kernels' files, by name.
        rendered: changes the text of hooks before it is read.
        passed: changes the arguments of hooks.
        variant: name of the only variant to check; None for all.
    """

    structure: Structure
    dtypes: dict[int, torch.dtype]
    limbs: Mapping[int, int] = field(default_factory=lambda: {32: 1, 64: 1})
    library: dict[str, str] | None = None
    rendered: Callable[[str], str] = str
    passed: Callable[[Hooks], Hooks] = lambda hooks: hooks
    variant: str | None = None

    @property
    def long(self) -> bool:
        return torch.int64 in self.dtypes.values()

    def style(self, bits: int, *, ptx: bool) -> Style:
        """The style of kernels with indices of `bits` bits."""
        limbs = self.limbs[bits]
        return Style(wide=bits == 64, limbs=limbs, ptx=ptx, long=self.long, far=True)

    @property
    def cpp(self) -> native.Hooks | None:
        """The hooks of CPUs; None where torch's own operations compute the formula."""
        dtypes = tuple([self.dtypes[slot.index] for slot in self.structure.tables])
        if not all(d.is_floating_point or d in native.ENTRY_TYPES for d in dtypes):
            return None
        return native.hooks_of(self.structure, dtypes)

    def kernel(self, bits: int) -> Kernel | None:
        """The kernels with indices of `bits` bits; None if no call runs them."""
        if bits not in self.limbs:
            return None
        kernel = Kernel(bits=bits, short=self.limbs[bits] == 1)
        return kernel if is_reachable(self.structure, kernel) else None


def subject_of(form: Bound) -> Subject:
    """The subject of claims about an expression with these tensors."""
    dtypes = {slot.index: tensor.dtype for slot, tensor in form.tensors()}
    limbs = {32: sizes_of(form).limbs}
    with suppress(MaskValueError):  # integers may be too large for kernels of 64 bits
        limbs[64] = sizes_of(form, wide=True).limbs
    return Subject(form.structure, dtypes, limbs)


def claims(
    subject: Subject,
    targets: tuple[Target, ...] = KERNELS,
    milliseconds: int = 10_000,
    widths: tuple[int, ...] = (32, 64),
) -> Iterator[Claim]:
    """Every claim about the kernels for these targets, proved or not. `widths` are the numbers of
    bits that indices of GPU kernels have."""
    for target in targets:
        if target == "cpu":
            yield from _of_cpu(subject, milliseconds)
            continue
        # Bounds are one text for all GPUs.
        bounded = target == "ptx" or "ptx" not in targets
        for bits in widths:
            kernel = subject.kernel(bits)
            if kernel is not None:
                yield from _of_gpu(subject, target, kernel, bounded, milliseconds)
            else:
                yield not_made("element", f"{_NAMES[target]}, {bits} bits", _NO_KERNEL[bits])


# --- GPUs ----------------------------------------------------------------------------------------


def _of_gpu(
    subject: Subject, target: Target, kernel: Kernel, bounded: bool, milliseconds: int
) -> Iterator[Claim]:
    proved: _Proved = {}
    sources: set[str] = set()
    bounds: list[Any] | None = [] if bounded else None
    for variant in _variants(subject, target, kernel):
        if subject.variant not in (None, variant.name):
            continue
        name = f", {variant.name}" if variant.name else ""
        where = f"{_NAMES[target]}, {kernel.bits} bits{name}"
        try:
            hooks = hooks_of(subject.structure, variant.style, backward=True)
        except NotDefined as problem:
            yield unread("element", where, problem)
            continue
        if hooks.source not in sources:
            names = where, target
            yield from _of_hooks(subject, hooks, variant, names, proved, bounds, milliseconds)
        sources.add(hooks.source)


_Proved = dict[tuple[str, str, Term], list["_Variant"]]
"""Proved terms, by kind of claim and index of the loop, with the variants they are proved for. A
variant with an equal term needs no new proof."""

_AS_ABOVE: Final = Verdict("proved", "the same computation as above", 0.0)


@dataclass(frozen=True)
class _Variant:
    """One style of a kernel's hooks, and the calls that use it.

    Attributes:
        name: name in claims; "" for the plainest style.
        style: how the hooks are written.
        kernel: the kernel that calls them.
    """

    name: str
    style: Style
    kernel: Kernel

    def holds_for(self, other: _Variant) -> bool:
        """Whether a proof for this variant covers all calls of the other one."""
        near = other.kernel.near or not self.kernel.near
        return near and self.kernel.grain in (1, other.kernel.grain)

    def of_whole_rows(self, structure: Structure, meaning: Meaning) -> Callable[[Term], Term]:
        """A function that replaces n // grain * grain by n, for sizes n that the grain divides."""
        grain = self.kernel.grain
        rows = [slot for slot in structure.tables if slot.index in structure.rows_of_keys]
        sizes = [*[meaning.size(slot, slot.ndim - 1) for slot in rows], *[KV_LEN] * bool(rows)]
        whole = {size // grain: size for size in sizes}
        natural = [size >= 0 for size in sizes]

        def replace(part: Term) -> Term | None:
            if part.op == "choice" and part.data == terms.NATURAL and part.args[0] in natural:
                return part.args[1]
            if part.op == "wrapped" and part.args[0] in sizes:
                return part.args[0]
            if part.op != "sum":
                return None
            found = []
            for atoms, times in terms.polynomial(part).items():
                place = next((i for i, atom in enumerate(atoms) if atom in whole), None)
                if place is not None and times % grain == 0:
                    atoms = (*atoms[:place], whole[atoms[place]], *atoms[place + 1 :])
                    times //= grain
                found.append(terms.multiply(terms.number(times), *atoms))
            return terms.add(*found)

        return lambda term: terms.replaced(term, replace) if grain > 1 else term


def _variants(subject: Subject, target: Target, kernel: Kernel) -> Iterator[_Variant]:
    """Every style of hooks (`Style`) that some call of the kernel uses."""
    plain = subject.style(kernel.bits, ptx=target == "ptx")
    tabled: tuple[Tabled, ...] = ("nothing", "reads", "costly")
    looks_up: list[tuple[Bits, bool]] = [("", False)]
    if kernel.bits == 32 and kernel.short:
        if may_cost(subject.structure):
            looks_up += [("rows", False), ("tiles", False)]
        if compared_ids(subject.structure.mask):
            looks_up += [("rows", True), ("tiles", True)]
    grains = (1, 2, 8) if subject.structure.rows_of_keys else (1,)
    every = itertools.product((True, False), tabled, grains, looks_up)
    for far, tables, grain, (bits, scattered) in every:
        names = [f"bits of pairs in {bits}"] * bool(bits) + ["ids in no order"] * scattered
        names += ["short distances"] * (not far)
        names += [f"tables of distances ({tables})"] * (tables != "nothing")
        names += [f"rows of multiples of {grain}"] * (grain > 1)
        style = replace(plain, far=far, tabled=tables, grain=grain, bits=bits, scattered=scattered)
        yield _Variant(", ".join(names), style, replace(kernel, near=not far, grain=grain))
    if rung_of(subject.structure).in_kernel == "summaries":
        yield _Variant("few tiles", replace(plain, few_tiles=True), kernel)


def _of_hooks(
    subject: Subject,
    hooks: Hooks,
    variant: _Variant,
    names: tuple[str, Target],
    proved: _Proved,
    bounds: list[Any] | None,
    milliseconds: int,
) -> Iterator[Claim]:
    """Claims about the hooks of a variant. `proved` and `bounds` hold what earlier variants proved;
    with `bounds` None, no claim about bounds is made."""
    structure, (where, target), kernel = subject.structure, names, variant.kernel
    meaning = Meaning(subject.dtypes)
    try:
        read = _read(subject, hooks, meaning, kernel)
    except (NotDefined, SyntaxError) as problem:
        yield unread("element", where, problem)
        return
    of_whole_rows = variant.of_whole_rows(structure, meaning)
    prover = _Prover(structure, meaning, kernel, milliseconds)
    for moving in ("kv_idx", "q_idx"):
        biased = "biased_ahead" if hooks.ahead and moving == "kv_idx" else "biased"

        def hook(kind: Kind, moving: str = moving, biased: str = biased) -> Term:
            name = {"element": "masked", "bias": biased, "derivative": "slope"}[kind]
            found = read.element(name, moving).term
            return of_whole_rows(kept(found) if kind == "element" else found)

        pairs = _Pairs(hook, moving, (SCALE, additive(structure.bias)), proved, variant)
        text = f"{where}, {_ROWS[moving]}"
        yield from prover.pairs(pairs, text)
    if bounds is None:
        return
    other = transposed(structure)
    of_keys = Structure(other.key, other.mask_key, other.mask, PLAIN_SCORE, other.slots)
    for name, of, moving, rows in (
        ("next_run", structure, "kv_idx", "queries"),
        ("next_run_of_keys", of_keys, "q_idx", "keys"),
        ("next_run_either_way_of_keys", of_keys, "q_idx", "keys, either way"),
    ):
        text = f"{where.replace(_NAMES[target], 'GPUs')}, {name}"
        try:
            found = read.bounds(name)
            asked = read.asked_for(found, cast(Of, rows))
        except NotDefined as problem:
            yield unread("bounds", text, problem)
            continue
        others = [f"{one} in place of {own}" for one, own in asked if one is not own]
        by = f"called with {', '.join(others)}" if others else "equal as written"
        told: Outcome = "not proved" if others else "proved"
        yield Claim(
            "bounds", f"{text}, {found.function} for its own row", told, by, 0.0, None, moving
        )
        if "spans" not in found.function:
            continue
        spans = found.touched, found.unfull
        if (name, spans) in bounds:
            yield _bound(text, _AS_ABOVE, "", 0.0, moving)
            continue
        own_rows = _Prover(of, meaning, kernel, milliseconds)
        every = list(own_rows.bounds(spans, text, moving))
        if all(claim.outcome == "proved" for claim in every):
            bounds.append((name, spans))
        yield from every


def _read(subject: Subject, hooks: Hooks, meaning: Meaning, kernel: Kernel) -> TritonHooks:
    hooks = subject.passed(hooks)
    text = subject.rendered(hooks.source)
    return TritonHooks(
        subject.structure,
        hooks if text == hooks.source else replace(hooks, source=text),
        meaning,
        wide=kernel.bits == 64,
        library=subject.library,
    )


@dataclass(frozen=True)
class _Pairs:
    """Hooks of one pair: the result of each, and terms proved for earlier variants.

    Attributes:
        hook: gives the result of the hook for a kind of claim; of an element, whether it is kept.
        moving: the index that the hooks' loop runs over.
        scale: the factor from products to scores (`prove_real`).
        proved, variant: proved terms, and the variant of these hooks; None to prove all.
    """

    hook: Callable[[Kind], Term]
    moving: str
    scale: tuple[Term, bool] | None = None
    proved: _Proved = field(default_factory=dict)
    variant: _Variant | None = None


@dataclass(frozen=True)
class _Prover:
    """Proves claims about the hooks of an expression, for the calls of one kernel."""

    structure: Structure
    meaning: Meaning
    kernel: Kernel
    milliseconds: int

    @cached_property
    def known(self) -> list[Term]:
        return given(self.structure, self.meaning, self.kernel)

    def pairs(self, of: _Pairs, text: str) -> Iterator[Claim]:
        """Claims that hooks keep the same pairs as the mask, and compute the bias and its
        derivative as functions of real numbers."""
        yield judged("element", text, partial(self._judge, of, "element"), of.moving)
        if self.structure.bias == PLAIN_SCORE:
            return
        yield judged("bias", text, partial(self._judge, of, "bias"), of.moving)
        if derivative(self.structure.bias) != nodes.const(1.0):
            yield judged("derivative", text, partial(self._judge, of, "derivative"), of.moving)

    def _judge(self, of: _Pairs, kind: Kind) -> Verdict:
        before, found = DECIDED.copy(), of.hook(kind)
        known = [*self.known, *pair()]
        if kind != "element":
            (found,) = settled(known, [found], self.milliseconds)
        earlier = of.proved.setdefault((kind, of.moving, found), [])
        if of.variant is not None and any(one.holds_for(of.variant) for one in earlier):
            return _AS_ABOVE
        if kind == "element":
            verdict = self._element(found, of.moving)
        else:
            wanted, slope = self.meaning(self.structure.bias), kind == "derivative"
            verdict = prove_real(
                known, found, wanted, of.scale, slope=slope, milliseconds=self.milliseconds
            )
        if verdict.outcome == "proved" and of.variant is not None:
            earlier.append(of.variant)
        return replace(verdict, by=verdict.by + by_whom(before))

    def _element(self, found: Term, moving: str) -> Verdict:
        """Whether the mask keeps the same pairs and, in a loop over keys, the hook drops keys past
        the last one."""
        wanted = self.meaning(self.structure.mask)
        laws = document_laws(self.structure.mask, self.meaning)
        known = [*self.known, *pair()]
        (plain,) = settled(known, [found], self.milliseconds)
        same = terms.same(plain, aligned(wanted, plain))
        verdict = prove([*known, *laws], same, self.milliseconds)
        if verdict.outcome == "proved" and moving == "kv_idx":
            known = [*self.known, *past_the_end()]
            (plain,) = settled(known, [found], self.milliseconds)
            past = prove([*known, *laws], ~plain, self.milliseconds)
            verdict = verdict if past.outcome == "proved" else past
        return verdict

    def bounds(
        self, found: tuple[Sequence[Interval], Sequence[Interval]], text: str, moving: str
    ) -> Iterator[Claim]:
        forms = prove_structure(self.structure).forms
        known = [*self.known, *tile_and_key()]
        known += sizes_of_bounds(forms.spans, self.meaning, self.kernel)
        for side, spans, intervals in zip(
            ("touched", "not full"), (forms.touched, forms.unfull), found, strict=True
        ):
            before = DECIDED.copy()
            # For each interval of the text, the condition that it holds key K.
            told = [
                Interval(*settled(known, [of.low, of.high, of.some], self.milliseconds)).holds(K)
                for of in intervals
            ]
            of_widths = by_whom(before)
            if len(told) == 1:
                # If there are too many intervals, the kernel gets one around them all.
                told *= len(spans)
            mask = self.structure.mask
            of = mask if side == "touched" else nodes.negation(mask)
            together = cache(partial(self._together, of, known, told))
            if len(spans) != len(told):
                yield _bound(f"{text}, {side}", together(), _TOGETHER + of_widths, 0.0, moving)
                continue
            for number, (span, own) in enumerate(zip(spans, told, strict=True)):
                started = time.perf_counter()
                verdict, by = self._interval(span, own, known)
                if verdict.outcome != "proved":
                    verdict = together()
                seconds = time.perf_counter() - started
                name = f"{text}, {side} {number + 1}"
                yield _bound(name, verdict, by + of_widths, seconds, moving)

    def _together(self, mask: Node, known: list[Term], told: list[Term]) -> Verdict:
        """Whether each key that a query of the tile keeps lies in one of the intervals.

        That is enough for a kernel, even if its intervals differ from the closed form's.
        """
        try:
            kept = self.meaning(mask)
        except NotDefined as problem:
            return Verdict("open", f"not read: {problem}", 0.0)
        tile = [Q >= Q0, Q1 >= Q, *document_laws(mask, self.meaning)]
        return prove([*known, *tile], terms.either(~kept, *told), self.milliseconds)

    def _interval(self, span: Span, told: Term, known: list[Term]) -> tuple[Verdict, str]:
        """Whether the text's interval holds each key of the closed form's, and a note for the
        claim."""
        conditions: list[Term] = []
        whole = True
        for bounds, compare in (
            (span.lows, lambda bound: bound <= K),
            (span.highs, lambda bound: bound >= K),
            (span.guards, terms.at_least),
        ):
            for bound in bounds:
                try:
                    conditions.append(compare(self.meaning(bound)))
                except NotDefined:
                    whole = False  # a bound that reads a table kernels do not get
        inside = aligned(terms.both(*conditions), told)
        verdict = prove(known, ~inside | told, self.milliseconds)
        if verdict.outcome != "proved":
            return verdict, _TOGETHER
        if not whole:
            return verdict, (
                "; the kernel gets fewer bounds than the proof found: it visits more tiles"
            )
        exact = prove(known, ~told | inside, self.milliseconds)
        wider = exact.outcome != "proved"
        return verdict, "; wider than the closed form: it visits more tiles" if wider else ""


def _bound(text: str, verdict: Verdict, by: str, seconds: float, moving: str) -> Claim:
    outcome = OUTCOMES[verdict.outcome]
    return Claim("bounds", text, outcome, f"{verdict.by}{by}", seconds, verdict.model, moving)


# --- CPUs ----------------------------------------------------------------------------------------


def _of_cpu(subject: Subject, milliseconds: int) -> Iterator[Claim]:
    structure, where = subject.structure, _NAMES["cpu"]
    meaning = Meaning(subject.dtypes)
    hooks = subject.cpp
    if hooks is None:
        yield not_made("element", where, "torch's own operations compute the formula")
        return
    read = CppHooks(subject.rendered(hooks.source), _passed(subject, meaning))
    kernel = Kernel(bits=64, short=False, every_integer=True)
    prover = _Prover(structure, meaning, kernel, milliseconds)
    at = {"q_idx": Q, "kv_idx": K, "batch": BATCH, "head": HEAD}
    bits = {
        terms.variable(f"bits of n{slot.index}"): meaning.number(slot)
        for slot in structure.scalars
        if slot.kind == "real"
    }

    def resolved(term: Term) -> Term:
        return terms.replaced(
            term, lambda part: bits.get(part.args[0]) if part.op == "of_bits" else None
        )

    for lane in ("q_idx", "kv_idx"):

        def hook(kind: Kind, lane: str = lane) -> Term:
            name = {"element": "mask", "bias": "bias", "derivative": "slope"}[kind]
            # The slope's hook returns a gradient times the slope; the gradient is 1 here.
            before = terms.real(1.0) if kind == "derivative" else SCORE
            found = read.element(f"{name}_{lane[0]}", lane, at, SCORE, before).term
            return kept(resolved(found)) if kind == "element" else resolved(found)

        yield from prover.pairs(_Pairs(hook, "q_idx"), f"{where}, mask_{lane[0]}")
    if hooks.bounded:
        row = {"q0": Q0, "q1": Q1, "kv_len": KV_LEN, "batch": BATCH, "head": HEAD}
        try:
            ends = {place: resolved(term) for place, term in read.bounds(row).items()}
            if sorted(ends) != list(range(2 * (hooks.touched + hooks.unfull))):
                raise NotDefined(f"results at the places {sorted(ends)}")
        except (NotDefined, SyntaxError) as problem:
            yield unread("bounds", where, problem)
            return
        every = [Interval(ends[2 * i], ends[2 * i + 1], terms.TRUE) for i in range(len(ends) // 2)]
        sides = every[: hooks.touched], every[hooks.touched :]
        yield from prover.bounds(sides, f"{where}, bounds", "kv_idx")


def _passed(subject: Subject, meaning: Meaning) -> dict[int, Number | Array]:
    """The entries of the C++ hooks' argument `S`, by place; tables are stored row by row."""
    found: list[Number | Array] = []
    structure = subject.structure

    def add(of: Array, sizes: list[Term]) -> None:
        steps = [terms.multiply(terms.number(1), *sizes[axis:])
                 for axis in range(1, len(sizes) + 1)]  # fmt: skip
        found.append(of)
        found.extend([Number(term, INT64) for term in (*sizes, *steps, *sizes)])

    for slot in structure.slots:
        if slot.is_table:
            dtype = subject.dtypes[slot.index]
            of = native.ENTRY_TYPES[torch.float32 if dtype.is_floating_point else dtype]
            sizes = [meaning.size(slot, axis) for axis in range(slot.ndim)]
            add(Array(meaning.table(slot), of), sizes)
        elif slot.kind == "real":
            found.append(Number(terms.variable(f"bits of n{slot.index}"), INT64))
        else:
            found.append(Number(meaning.number(slot), INT64))
    # Tables made from document ids follow those of the slots.
    for reading in native.steps(structure):
        q_slot, kv_slot = (cast(Slot, own) for own in reading.own)
        rank = len(reading.args)
        sizes = step_sizes(q_slot, kv_slot, rank) if rank else []
        add(Array(step_table(str(reading.data), q_slot, kv_slot), "int32_t"), sizes)
    return dict(enumerate(found))


def judged(kind: str, text: str, judge: Callable[[], Verdict], moving: str = "kv_idx") -> Claim:
    """The claim with the verdict of `judge`, or "not proved" if the text cannot be read."""
    started = time.perf_counter()
    try:
        verdict = judge()
    except (NotDefined, SyntaxError) as problem:
        return unread(kind, text, problem, moving)
    seconds = time.perf_counter() - started
    return Claim(kind, text, OUTCOMES[verdict.outcome], verdict.by, seconds, verdict.model, moving)


def not_made(kind: str, text: str, why: object) -> Claim:
    """A claim about a text or table that does not exist."""
    return Claim(kind, text, "not made", str(why).rstrip("."), 0.0)


def unread(kind: str, text: str, problem: Exception, moving: str = "kv_idx") -> Claim:
    """A claim about a text that cannot be written as terms."""
    return Claim(kind, text, "not proved", f"not read: {problem}", 0.0, None, moving)
