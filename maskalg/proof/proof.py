"""`mask.prove()`: the closed forms of a structure, found once and printed for a person."""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

from ..engine.normal_form import Structure, bound
from ..engine.recent import Recent
from ..formula import nodes
from ..formula.expression import Expression
from ..formula.nodes import Node
from ..formula.printing import formula_text
from ..formula.shown import Shown
from .closed_forms import RUNGS, ClosedForms, Residue, Span, every_key, rung_of

if TYPE_CHECKING:
    from .check.certificate import Certificate
    from .digits.prove import DigitProof
    from .literals import Clause
    from .projection import Box, KeyInterval
    from .symbols import Symbols

_CACHE: Final[Recent[str, Proof]] = Recent(4096)
_made = 0


@dataclass(frozen=True)
class Proof(Shown):
    """Which blocks of a mask are empty, full or partial, for all values of its parameters.

    For a tile of queries q0..q1, a key k is *touched* when some query of the tile keeps it and
    *not full* when some query drops it. A tile of keys is EMPTY when none of its keys is touched,
    FULL when none is not full, and PARTIAL otherwise.

    Attributes:
        mask: the formula of the mask, without its values.
        formula: the same as text.
        forms: the closed forms, as formulas.
        touched, unfull, assumptions: these and the declared bounds as text, a line for each.
        exact: every EMPTY and FULL block is found (for documents: if their ids are contiguous).
        reasons: why not, where it is not.
        rung: the last step that is needed: "closed form", "digits", "token sets", "tile
            predicates", "summaries" or "evaluation".
        milliseconds: what the proof took when it was made.
    """

    mask: Node
    formula: str
    forms: ClosedForms
    touched: tuple[str, ...]
    unfull: tuple[str, ...]
    assumptions: tuple[str, ...]
    milliseconds: float

    @property
    def exact(self) -> bool:
        return self.forms.exact

    @property
    def rung(self) -> str:
        return self.forms.rung

    @property
    def reasons(self) -> tuple[str, ...]:
        return self.forms.reasons

    def check(self) -> Certificate:
        """Prove each claim of the closed forms once more, by linear arithmetic and a few laws.

        Returns:
            A `Certificate` that lists every claim and how it was proved. It says "unchecked" of
            what it could not prove, which does not make it wrong, and verifies nothing else.
        """
        from .check.certificate import certify

        return certify(self.mask, self.forms)

    def steps(self) -> str:
        """The proof as a person would write it: literals, elimination, closed forms, result."""
        from .words.telling import told

        return "\n".join(text for _, text in told(self))

    def to_latex(self) -> str:
        """The mask and its closed forms in LaTeX, as an `aligned` block of amsmath."""
        from .words.latex import proof_latex

        return proof_latex(self)

    def __str__(self) -> str:
        lines = [f"mask      {self.formula}"]
        lines += [f"given     {text}" for text in self.assumptions]
        lines += ["for a tile of queries q0..q1 and keys k0..k1:"]
        lines += _listed("touched", self.touched, "no key")
        lines += _listed("not full", self.unfull, "no key")
        iff = "iff" if self.exact else "if"
        lines += [f"EMPTY     {iff} k0..k1 meets no touched key"]
        lines += [f"FULL      {iff} k0..k1 meets no key that is not full"]
        lines += [f"proof     {self.claim} ({self.rung}, {self.milliseconds:.0f} ms, once)"]
        lines += [f"          because {reason}" for reason in self.reasons]
        return "\n".join(lines)

    @property
    def claim(self) -> str:
        """Whether every empty and full block is found, in words."""
        pairs = {pair for span in self._spans() for pair in span.documents}
        documents = sorted({slot.name for pair in pairs for slot in pair})
        claim = "exact" if self.exact else "sound, not exact: open tiles are evaluated"
        if self.exact and documents and all(span.exact for span in self._spans()):
            claim += f" if equal entries of {' and '.join(documents)} are contiguous"
        return claim

    def _spans(self) -> tuple[Span, ...]:
        return self.forms.touched + self.forms.unfull


def prove(expression: Expression) -> Proof:
    """The proof for the structure of `expression`; a second one of the structure is a look-up."""
    return prove_structure(bound(expression).structure)


def prove_structure(structure: Structure) -> Proof:
    """The proof of a structure's mask, from the cache where it was made before."""
    global _made
    found = _CACHE.recall(structure.mask_key)
    if found is None:
        # Two threads may both prove it; they then share the first proof that was done.
        found = _CACHE.keep(structure.mask_key, _prove(structure))
        _made += 1
    return found


def proofs_made() -> int:
    """How many structures were proved in this process."""
    return _made


def _prove(structure: Structure) -> Proof:
    from .digits.prove import digit_proof
    from .literals import Clauses
    from .projection import Projection
    from .signs import OverBudget, Signs
    from .symbols import Symbols

    started = time.perf_counter()
    digits = digit_proof(structure.mask)
    if digits is not None:
        return _by_digits(structure, digits, started)
    symbols = Symbols()
    signs = Signs(symbols)
    clauses = Clauses(symbols, signs)
    projection = Projection(symbols, signs)
    reasons: list[str] = []

    def side(holds: bool) -> tuple[tuple[Span, ...], tuple[str, ...]]:
        signs.restart()
        try:
            return _project(clauses.of(structure.mask, holds), projection, symbols, reasons)
        except OverBudget as over:
            reasons.append(str(over))
            mask = structure.mask
            whole = every_key(mask if holds else nodes.negation(mask))
            return (whole,), ("every key (at most)",)

    touched, touched_text = side(True)
    unfull, unfull_text = side(False)
    rung = RUNGS[max((RUNGS.index(rung_of(span)) for span in touched + unfull), default=0)]
    return Proof(
        mask=structure.mask,
        formula=formula_text(structure.mask),
        forms=ClosedForms(touched, unfull, rung, tuple(dict.fromkeys(reasons))),
        touched=touched_text,
        unfull=unfull_text,
        assumptions=_assumptions(symbols),
        milliseconds=1000 * (time.perf_counter() - started),
    )


def _by_digits(structure: Structure, digits: DigitProof, started: float) -> Proof:
    from .digits.hull import hull_spans

    touched, unfull = (hull_spans(digits.forms, touched=side) for side in (True, False))
    return Proof(
        mask=structure.mask,
        formula=formula_text(structure.mask),
        forms=ClosedForms(touched, unfull, "digits", (), digits.forms),
        touched=digits.touched,
        unfull=digits.unfull,
        assumptions=digits.assumptions,
        milliseconds=1000 * (time.perf_counter() - started),
    )


def _project(
    clauses: list[Clause], projection: Any, symbols: Symbols, reasons: list[str]
) -> tuple[tuple[Span, ...], tuple[str, ...]]:
    from .projection import interval_text
    from .section import formula_of, section_of

    spans: dict[Span, str] = {}
    for clause in clauses:
        interval = projection.interval(clause)
        if interval is not None:
            span = _span(interval, symbols)
            if not span.decided:
                span = replace(
                    span,
                    section=section_of(clause, projection, symbols),
                    clause=formula_of(clause, symbols),
                )
            if not span.decided:
                reasons += interval.reasons
            by_position = not span.exact and span.section is not None
            spans.setdefault(span, interval_text(interval, by_position))
    return tuple(spans), tuple(spans.values())


def _span(interval: KeyInterval, symbols: Symbols) -> Span:
    def formulas(expressions: list[Any]) -> tuple[Any, ...]:
        return tuple(symbols.to_node(expression) for expression in expressions)

    residue = None
    if interval.congruence is not None and interval.box is not None:
        residue = _residue(interval, interval.box, symbols)
    return Span(
        lows=formulas(interval.lows),
        highs=formulas(interval.highs),
        guards=formulas(interval.guards),
        residue=residue,
        exact=interval.exact,
        documents=tuple(
            sorted(interval.documents, key=lambda pair: (pair[0].index, pair[1].index))
        ),
        keys=nodes.conjunction(*interval.keys) if interval.keys else None,
    )


def _residue(interval: KeyInterval, box: Box, symbols: Symbols) -> Residue:
    congruence = interval.congruence
    assert congruence is not None
    sides = (box.q_lows, box.q_highs, box.k_lows, box.k_highs, box.d_lows, box.d_highs)
    bounds = [tuple(symbols.to_node(bound) for bound in side) for side in sides]
    return Residue(
        symbols.to_node(congruence.offset),
        symbols.to_node(congruence.modulus),
        symbols.to_node(congruence.residue),
        congruence.holds,
        *bounds,
    )


def _assumptions(symbols: Symbols) -> tuple[str, ...]:
    from .symbols import k, q, q0

    hidden = {q, k, q0}
    sets = tuple(
        f"{name}: the queries with {formula_text(formula)}"
        for name, formula in symbols.sets.items()
    )
    return sets + tuple(
        sorted(
            f"{symbol} >= {low}"
            for symbol, low in symbols.lows.items()
            if symbol not in hidden and not symbol.is_Dummy and str(symbol) not in ("batch", "head")
        )
    )


def _listed(title: str, rows: tuple[str, ...], empty: str) -> list[str]:
    rows = rows or (empty,)
    return [f"{title if i == 0 else '      or':<9} {row}" for i, row in enumerate(rows)]
