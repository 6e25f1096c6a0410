"""Lists of intervals as terms: lists of any length, in which a function stores entries.

An entry is an uninterpreted function of its place, until another one is stored there. A fact about
an arbitrary place `a` is used at each place that occurs in a claim. So no proof is by induction
over a list.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Final

from .. import terms
from ..meaning import NotDefined
from ..reading.values import INT64, Indexed, Number
from ..terms import Term

PLACE: Final = terms.variable("a")
"""An arbitrary place of a list."""

FARTHEST: Final = 2**62
_serials = itertools.count()


@dataclass(frozen=True, eq=False)
class Intervals(Indexed):
    """One version of a list of numbers first, end, first, end, …; a store makes a new version.

    Attributes:
        read: the first (side 0) or the end (side 1) of the interval at a place.
        put_in: called for each store with the place and the number; returns the number as a term.
        changed: the places that were stored to.
    """

    name: str
    read: Callable[[Term, int], Term]
    put_in: Callable[[Term, Number], Term]
    changed: tuple[Term, ...] = ()

    def at(self, index: Term) -> Number:
        return Number(self.read(*_place(index)), INT64)

    def put(self, index: Term, value: Number) -> Intervals:
        at, own = _place(index)
        new, before = self.put_in(at, value), self.read

        def read(place: Term, side: int) -> Term:
            old = before(place, side)
            return terms.choice(terms.equal(place, at), new, old) if side == own else old

        return replace(self, read=read, changed=(*self.changed, at))

    def chosen(self, condition: Term, otherwise: Indexed) -> Intervals:
        assert isinstance(otherwise, Intervals)
        one, other = self.read, otherwise.read

        def read(place: Term, side: int) -> Term:
            return terms.choice(condition, one(place, side), other(place, side))

        changed = dict.fromkeys((*self.changed, *otherwise.changed))
        return replace(self, read=read, changed=tuple(changed))

    def unknown(self) -> Intervals:
        return unknown(self.name, self.put_in)

    def holds(self, place: Term, key: Term) -> Term:
        """Whether the interval at a place holds a key."""
        return terms.within(self.read(place, 0), key, self.read(place, 1))


def unknown(name: str, put_in: Callable[[Term, Number], Term]) -> Intervals:
    """A list of unknown entries."""
    ends = [terms.Table(f"{name} {next(_serials)}", "int", -FARTHEST, FARTHEST) for _ in range(2)]
    return Intervals(name, lambda place, side: terms.entry(ends[side], place), put_in)


def _place(index: Term) -> tuple[Term, int]:
    """The place of the interval that an index falls in, and its side."""
    # Addresses count modulo 2**64, so the sum needs no wrapping at earlier steps.
    parts = terms.polynomial(terms.unwrapped_ring(index, 64))
    if any(times % 2 for atoms, times in parts.items() if atoms):
        raise NotDefined(f"a place that may be an interval's first or its end: {index}")
    constant = parts.pop((), 0)
    rows = [terms.multiply(terms.number(times // 2), *atoms) for atoms, times in parts.items()]
    return terms.add(*rows, terms.number(constant // 2)), constant % 2


class Facts:
    """Facts about lists of intervals: the meaning of `within`, and facts about arbitrary places."""

    def __init__(self) -> None:
        self._lists: dict[str, Intervals] = {}
        self._names: dict[Intervals, str] = {}

    def within(self, of: Intervals, count: Term, key: Term) -> Term:
        """Whether one of the first `count` intervals holds a key."""
        name = self._names.setdefault(of, f"within {of.name} {next(_serials)}")
        self._lists[name] = of
        return terms.apply(name, count, key, sort="bool")

    def laws(self, given: Sequence[Term], claim: Term) -> list[Term]:
        """Facts about the places that occur in a claim and its assumptions.

        A key within a list lies in the interval at some unknown place. Conversely, a key that lies
        in the interval at one of the places is within the list.
        """
        found: list[Term] = []
        spoken = dict.fromkeys(
            part for term in (*given, claim) for part in term.walk()
            if part.op == "apply" and part.data in self._lists
        )  # fmt: skip
        places: dict[Term, None] = {}
        for said in spoken:
            place = terms.variable(f"the place in {said.serial}")
            found.append(~said | self._lies(said, place))
            places.update(dict.fromkeys((place, *self._lists[said.data].changed)))
        for term in (*given, *found, claim):
            if term is claim or not of_any_place(term):
                entries = [part for part in term.walk() if part.op == "entry"]
                places.update(dict.fromkeys(entry.args[0] for entry in entries))
        for said, place in itertools.product(spoken, places):
            found.append(~self._lies(said, place) | said)
        after = dict.fromkeys([place + 1 for place in places]) | places
        for term in filter(of_any_place, given):
            for place in after if _of_neighbours(term) else places:
                found.append(terms.replaced(term, {PLACE: place}.get))
        return found

    def _lies(self, said: Term, place: Term) -> Term:
        count, key = said.args
        lies = self._lists[said.data].holds(place, key)
        return terms.within(terms.number(0), place, count) & lies


def of_any_place(term: Term) -> bool:
    """Whether a fact is about an arbitrary place."""
    return any(part is PLACE for part in term.walk())


def _of_neighbours(term: Term) -> bool:
    return any(part.op == "entry" and part.args[0] is not PLACE for part in term.walk())
