"""Claims about the walk over tiles, which is the same for every expression."""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from itertools import chain

from ..claims import Claim, Outcome
from ..meaning import NotDefined
from .example import wrong_walk
from .hopper import lemmas_of_hopper
from .loops import Unproved
from .runs import Lemma, Sources, lemmas


@lru_cache(maxsize=1)
def of_installed_kernels() -> tuple[Claim, ...]:
    """The claims about the kernels that are installed: proved once in a process."""
    return tuple(walk_claims())


def walk_claims(sources: Sources | None = None, milliseconds: int = 10_000) -> Iterator[Claim]:
    """Every claim about the walk; or those about files of kernels that have other texts.

    Where one is not proved, walks are run on small tables of intervals, and a table at which one
    goes wrong is told.
    """
    found: list[str | None] = []
    every = chain(lemmas(sources, milliseconds), lemmas_of_hopper(sources, milliseconds))
    for function, text, prove in every:
        if sources and function.partition(".")[0] not in sources:
            continue
        try:
            lemma = Lemma(function, text, prove())
        except Unproved as stopped:
            lemma = Lemma(function, text, stopped.steps)
        except NotDefined as problem:
            lemma = Lemma(function, text, (), f"not read: {problem}")
        outcome: Outcome
        outcome, by = lemma.outcome
        if outcome != "proved":
            found = found or [wrong_walk(sources)]
            outcome, by = ("wrong", f"run: {found[0]}") if found[0] else (outcome, by)
        yield Claim("walk", f"{function}: {text}", outcome, by, lemma.seconds)
