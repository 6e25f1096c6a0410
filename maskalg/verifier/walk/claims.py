"""Claims about the walk over tiles, which is the same for every expression."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from datetime import date
from functools import lru_cache
from hashlib import sha256
from pathlib import Path
from typing import Final

import maskalg

from ...engine.cache import cache_dir, replace
from ...errors.kinds import MissingPackageError
from ..claims import Claim, Outcome
from ..meaning import NotDefined
from ..reading.triton import installed, kernel_folder, kernel_module
from ..solve import solver
from . import bits, blocks, drawn, hopper, marks, runs, turns
from .blocks import FILE, Walk, skeleton
from .loops import Proof, Step, Unproved, Walker
from .runs import Sources

_LEMMAS: Final[tuple[Proof, ...]] = (
    *runs.LEMMAS, *marks.LEMMAS, *bits.LEMMAS, *hopper.LEMMAS, *drawn.LEMMAS, *turns.LEMMAS,
    *blocks.LEMMAS,
)  # fmt: skip


@lru_cache(maxsize=2)
def of_installed_kernels(cpu: bool, kept: bool = True) -> tuple[Claim, ...]:
    """The claims about the kernels of GPUs, or the C++ loop, once in a process.

    Once all are proved, the cache folder keeps that result (`kept`) for the same source text and
    versions of Python and z3, and each claim says when it was proved. If a source file changed
    since this file was imported, the cache is neither read nor written.
    """

    def asked(function: str) -> bool:
        return function.startswith(FILE) == cpu

    try:
        version = solver().get_full_version()
    except MissingPackageError:
        version = "no z3"
    versions = sha256(f"{version} {sys.version}".encode()).hexdigest()
    file = f"{'cpu' if cpu else 'gpu'}_{_AT_IMPORT[:24]}{versions[:8]}.json"
    path = cache_dir() / "verified" / file
    same = _digest() == _AT_IMPORT
    if kept and same and (before := _kept(path)):
        listed = [_text(function, text) for function, text, _ in _listed(asked)]
        if [claim.text for claim in before] == listed:
            return before
    installed.cache_clear()  # a text may have been read before this file was imported
    found = tuple(walk_claims(only=asked))
    proved = all(claim.outcome == "proved" for claim in found)
    if found and proved and same and _digest() == _AT_IMPORT:
        claims = [(claim.text, claim.by) for claim in found]
        with suppress(OSError):  # no place to keep it
            written = json.dumps({"date": date.today().isoformat(), "claims": claims})
            replace(path, written.encode())
    return found


def _kept(path: Path) -> tuple[Claim, ...]:
    """The claims in a file of the cache; none if it is unreadable or has other contents."""
    with suppress(OSError, ValueError, KeyError, TypeError):
        told = json.loads(path.read_text())
        return tuple(
            Claim("walk", text, "proved", f"proved before, on {told['date']}: {by}", 0.0)
            for text, by in told["claims"]
        )
    return ()


def _digest(folders: Iterable[Path] | None = None) -> str:
    """A digest of the source of the package and of the kernels. The proofs of the walk depend on
    this source and on the versions of z3 and Python alone."""
    digest = sha256()
    for folder in folders or (Path(maskalg.__file__).parent, kernel_folder()):
        for file in sorted([*folder.rglob("*.py"), *folder.rglob("*.cpp")]):
            digest.update(f"{file.relative_to(folder)} {file.stat().st_size} ".encode())
            digest.update(file.read_bytes())
    return digest.hexdigest()


_AT_IMPORT: Final = _digest()


def _listed(only: Callable[[str], bool], sources: Sources | None = None) -> list[Proof]:
    """The claims to make."""
    return [
        lemma for lemma in _LEMMAS
        if only(lemma[0]) and (not sources or lemma[0].partition(".")[0] in sources)
    ]  # fmt: skip


def _walker(file: str, sources: Sources | None, milliseconds: int) -> Walker:
    if file == FILE:
        return Walk((sources or {}).get(FILE) or skeleton(), milliseconds)
    return Walker(kernel_module(file, sources), milliseconds)


def _text(function: str, text: str) -> str:
    return f"{function}: {text}"


def walk_claims(
    sources: Sources | None = None,
    milliseconds: int = 10_000,
    only: Callable[[str], bool] = lambda function: True,
) -> Iterator[Claim]:
    """All claims about the walk; with `sources`, only those about the files in it.

    Args:
        sources: texts in place of files of kernels, by name, or of the C++ loop ("skeleton").
        milliseconds: time limit of a step.
        only: whether to make the claims about a function, by its file and name.
    """
    for function, text, prove in _listed(only, sources):
        steps: Sequence[Step] = ()
        outcome: Outcome = "proved"
        try:
            walker = _walker(function.partition(".")[0], sources, milliseconds)
            prove(walker)
            steps = walker.steps
            by_z3 = sum("z3" in step.verdict.by for step in steps)
            by = f"{len(steps)} steps, {by_z3} of them by z3 and the others by our own prover"
        except Unproved as stopped:
            steps, last = stopped.steps, stopped.steps[-1]
            outcome, by = "not proved", f"not shown: {last.text} ({last.verdict.by})"
        except (NotDefined, SyntaxError) as problem:
            outcome, by = "not proved", f"not read: {problem}"
        seconds = sum(step.verdict.seconds for step in steps)
        yield Claim("walk", _text(function, text), outcome, by, seconds)
