"""`mask.prove()`: the closed forms of a structure, proved once and printed."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, Literal, overload

from ..engine import KERNEL_CHECKS
from ..engine.normal_form import Structure, as_named
from ..engine.recent import Recent
from ..formula.expression import Expression
from ..formula.nodes import Node
from ..formula.printing import Shown, formula_text
from ..formula.separation import has_mod
from . import stored
from .closed_forms import ClosedForms, Told, last_rung

if TYPE_CHECKING:
    import torch

    from ..verifier.report import Verification
    from .check.certificate import Certificate
    from .elimination import Elimination

_CACHE: Final[Recent[str, Proof]] = Recent(4096)
_READ: Final[Recent[str, ClosedForms]] = Recent(4096)

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
        touched, unfull, assumptions: the intervals and the declared bounds, as lines of text.
        exact: every EMPTY and FULL block is found (for documents: if their ids are contiguous).
        reasons: why the proof is not exact, if it is not.
        rung: the last step that is needed: "closed form", "digits", "token sets", "tile
            predicates", "summaries" or "evaluation".
        milliseconds: the time the proof took when it was made.
        elimination: the steps, for `steps()`; None if digits decide the mask.
    """

    mask: Node
    formula: str
    forms: ClosedForms
    touched: tuple[str, ...]
    unfull: tuple[str, ...]
    assumptions: tuple[str, ...]
    milliseconds: float
    elimination: Elimination | None = field(repr=False, compare=False)

    @property
    def exact(self) -> bool:
        return self.forms.exact

    @property
    def rung(self) -> str:
        return self.forms.rung

    @property
    def reasons(self) -> tuple[str, ...]:
        return self.forms.reasons

    @overload
    def check(self, *, kernel: Literal[False] = False) -> Certificate: ...

    @overload
    def check(
        self, *, kernel: Literal[True], dtypes: Mapping[str, torch.dtype] | None = None
    ) -> Verification: ...

    def check(
        self, *, kernel: bool = False, dtypes: Mapping[str, torch.dtype] | None = None
    ) -> Certificate | Verification:
        """Prove each claim of the closed forms once more, by linear arithmetic and a few laws.

        Args:
            kernel: prove that the text of the kernels computes the mask instead, on all targets, as
                `maskalg.verify` does. Claims that are not linear need z3:
                `pip install "maskalg[verify]"`.
            dtypes: dtypes of tables, by their names in `formula`; by default tables of
                integers are int64, of real numbers float32.

        Returns:
            A `Certificate` that lists every claim and how it was proved. An "unchecked" claim could
            not be proved, which does not make it wrong. With `kernel`, a `Verification`. A proof
            has no tensors, so kernels that look up runs of tiles in tables made of tensors stay
            "not proved".

        Raises:
            MaskValueError: `dtypes` names no table of the mask, or gives one a dtype of another
                kind.
        """
        if kernel:
            return KERNEL_CHECKS[0](self, dtypes or {})
        from .check.certificate import certify

        return certify(self.mask, self.forms)

    def steps(self) -> str:
        """The proof step by step: literals, elimination, closed forms, result."""
        from .printed import told

        return "\n".join(text for _, text in told(self))

    def to_latex(self) -> str:
        """The mask and its closed forms in LaTeX, as an `aligned` block of amsmath."""
        from .printed import proof_latex

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
        pairs = {pair for span in self.forms.spans for pair in span.documents}
        documents = sorted({slot.name for pair in pairs for slot in pair})
        claim = "exact" if self.exact else "sound, not exact: open tiles are evaluated"
        if self.exact and documents and all(span.exact for span in self.forms.spans):
            claim += f" if equal entries of {' and '.join(documents)} are contiguous"
        return claim


def prove(expression: Expression) -> Proof:
    """The proof for the structure of `expression`; a second one of that structure is a look-up."""
    return prove_structure(as_named(expression))


def prove_structure(structure: Structure) -> Proof:
    """The proof of a structure's mask, from the cache if it was made before."""
    global _made
    found = _CACHE.recall(structure.mask_key)
    if found is None:
        # Two threads may both prove it; they then share the proof that was done first.
        found = _CACHE.keep(structure.mask_key, _prove(structure))
        _made += 1
    return found


def closed_forms_of(structure: Structure) -> ClosedForms:
    """The closed forms of a structure's mask: proved, or read from the cache folder."""
    key = structure.mask_key
    proof = _CACHE.recall(key)
    if proof is not None:
        return proof.forms
    forms = _READ.recall(key)
    if forms is None:
        forms = stored.read(structure)
        if forms is None:
            forms = prove_structure(structure).forms
            stored.write(structure, forms)
        else:
            _READ.keep(key, forms)
    return forms


def proofs_made() -> int:
    """How many structures were proved in this process."""
    return _made


def _prove(structure: Structure) -> Proof:
    # SymPy is loaded with the first proof, not with the package.
    from .elimination import eliminated

    started = time.perf_counter()
    found, steps = None, None
    if has_mod(structure.mask):
        from .digits.prove import digit_proof

        found = digit_proof(structure.mask)
    if found is None:
        steps = eliminated(structure.mask)
        kept, dropped = steps.kept, steps.dropped
        rung = last_rung(kept.spans + dropped.spans)
        reasons = tuple(dict.fromkeys(kept.reasons + dropped.reasons))
        forms = ClosedForms(kept.spans, dropped.spans, rung, reasons)
        found = Told(forms, kept.texts, dropped.texts, steps.assumptions)
    text = formula_text(structure.mask)
    milliseconds = 1000 * (time.perf_counter() - started)
    return Proof(structure.mask, text, *found, milliseconds, steps)


def _listed(title: str, rows: tuple[str, ...], empty: str) -> list[str]:
    rows = rows or (empty,)
    return [f"{title if i == 0 else '      or':<9} {row}" for i, row in enumerate(rows)]
