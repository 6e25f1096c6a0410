"""A proof in words: headings and lines, in the order a person would write them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Literal

from ..projection import interval_text
from .story import Step, Story, literal_text, story_of

if TYPE_CHECKING:
    from ..proof import Proof

Line = tuple[Literal["heading", "text"], str]

_INDENT: Final = "   "


def told(proof: Proof) -> list[Line]:
    """The lines of a proof; a heading stands before each of its parts."""
    story = story_of(proof.mask)
    lines = [*_mask(proof), *_literals(story), *_elimination(proof, story), *_result(proof)]
    return lines[1:]


def _mask(proof: Proof) -> list[Line]:
    given: list[Line] = [("text", f"{_INDENT}given      {text}") for text in proof.assumptions]
    return [*_part("The mask", [proof.formula]), *given]


def _literals(story: Story) -> list[Line]:
    if story.digits:
        return _part("Digits of a position x", list(story.digits))
    lines = _part("Literals: a pair of a query q and a key k is", [])
    for name, steps in (("kept", story.kept), ("dropped", story.dropped)):
        if steps is None:
            lines += _texts(f"{name} when", ["(more cases than the proof looks at)"], 14)
            continue
        cases = [" and ".join(map(literal_text, step.literals)) or "always" for step in steps]
        lines += _texts(f"{name} when", cases or ["never"], 14)
    return lines


def _elimination(proof: Proof, story: Story) -> list[Line]:
    if story.digits:
        lines = _part("Keys that some query of a box keeps or drops, digit by digit", [])
        for name, texts in (("touched", proof.touched), ("not full", proof.unfull)):
            lines += _texts(name, list(texts) or ["no key"])
        return lines
    lines = _part("Eliminated: q, over the tile q0 <= q <= q1", [])
    for name, steps in (("touched", story.kept), ("not full", story.dropped)):
        if steps is None:
            lines += _texts(name, ["every key (at most)"])
            continue
        rows = [row for step in steps for row in _keys(step)]
        lines += _texts(name, rows or ["no key"])
    return lines


def _keys(step: Step) -> list[str]:
    interval, section = step.interval, step.section
    if interval is None:
        return []
    if section is None or interval.exact:
        return [interval_text(interval, False)]
    by, of = ("key", "queries") if section.other == "kv_idx" else ("query", "keys")
    parts = (
        ("an equal entry", section.equal),
        ("an ordered entry", section.order),
        ("such a distance", section.distances),
        ("an allowed pair", section.relation),
    )
    needed = " and ".join(name for name, part in parts if part)
    rest = f"one of its {of} " + (f"has {needed}" if needed else "lies between its bounds")
    text = interval_text(interval, False).removesuffix(" (at most)")
    return [f"{text}, and {by} by {by}: {rest}"]


def _result(proof: Proof) -> list[Line]:
    iff = "iff" if proof.exact else "if"
    rows = [
        f"EMPTY  {iff} k0..k1 meets no touched key",
        f"FULL   {iff} k0..k1 meets no key that is not full",
        f"exactness  {proof.claim}",
        f"rung       {proof.rung}",
        f"time       {proof.milliseconds:.0f} ms, once for all values of the parameters",
    ]
    reasons = [f"because    {reason}" for reason in proof.reasons]
    return [
        *_part("A block of the queries q0..q1 and the keys k0..k1 is", rows[:2]),
        *_part("Result", rows[2:] + reasons),
    ]


def _part(heading: str, rows: list[str]) -> list[Line]:
    return [("text", ""), ("heading", heading), *(("text", _INDENT + row) for row in rows)]


def _texts(name: str, rows: list[str], width: int = 11) -> list[Line]:
    """Rows after a name, with `or` between them; the axes of a row stand below each other."""
    lines: list[Line] = []
    for i, row in enumerate(rows):
        first, *others = row.split("; ")
        lines.append(("text", f"{_INDENT}{name if i == 0 else 'or':<{width}}{first}"))
        lines += [("text", f"{_INDENT}{'  and':<{width}}{other}") for other in others]
    return lines
