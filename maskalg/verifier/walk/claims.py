"""Claims about the walk over tiles, which is the same for every expression."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import lru_cache
from itertools import chain
from typing import Final

from ..claims import Claim, Outcome
from ..meaning import NotDefined
from .bits import lemmas_of_bits
from .blocks import FILE, lemmas_of_blocks
from .drawn import lemmas_of_drawn_rows, wrong_rows
from .example import wrong_walk
from .example_of_blocks import wrong_blocks
from .example_of_hopper import wrong_walk_of_hopper
from .example_of_marks import wrong_marks
from .hopper import lemmas_of_hopper
from .loops import Unproved
from .marks import FUNCTIONS as OF_MARKS
from .marks import lemmas_of_marks
from .runs import Lemma, Sources, lemmas
from .turns import lemmas_of_turns

_EVERY: Final = (
    lemmas, lemmas_of_marks, lemmas_of_bits, lemmas_of_hopper, lemmas_of_drawn_rows,
    lemmas_of_turns, lemmas_of_blocks,
)  # fmt: skip
_EXAMPLES: Final[dict[str, Callable[[Sources | None], str | None]]] = {
    FILE: wrong_blocks, "kept_bits": lambda sources: None,
    "hopper_rows": wrong_rows, "hopper_": wrong_walk_of_hopper,
    **dict.fromkeys([f"runs.{name}" for name in OF_MARKS], wrong_marks), "": wrong_walk,
}  # fmt: skip
"""Functions that run a text on small tables, by the first letters of the functions they check."""


@lru_cache(maxsize=2)
def of_installed_kernels(cpu: bool) -> tuple[Claim, ...]:
    """The claims about the kernels of GPUs, or the C++ loop: proved once in a process."""
    return tuple(walk_claims(only=lambda function: function.startswith(FILE) == cpu))


def walk_claims(
    sources: Sources | None = None,
    milliseconds: int = 10_000,
    only: Callable[[str], bool] = lambda function: True,
) -> Iterator[Claim]:
    """Every claim about the walk; or those about files of kernels that have other texts.

    Where one is not proved, walks are run on small tables of intervals, and a table at which one
    goes wrong is told.

    Args:
        sources: other texts, by the name of a file: of kernels, or "skeleton" of the C++ loop.
        milliseconds: that a step may take.
        only: whether a function, by its file and name, is one of those that are asked for.
    """
    examples: dict[str, str | None] = {}
    for function, text, prove in chain(*[of(sources, milliseconds) for of in _EVERY]):
        if not only(function) or (sources and function.partition(".")[0] not in sources):
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
            of = next(start for start in _EXAMPLES if function.startswith(start))
            if of not in examples:
                examples[of] = _EXAMPLES[of](sources)
            found = examples[of]
            outcome, by = ("wrong", f"run: {found}") if found else (outcome, by)
        yield Claim("walk", f"{function}: {text}", outcome, by, lemma.seconds)
