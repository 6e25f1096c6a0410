"""`verify()`: every claim about the kernels of an expression, and which are proved."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, cast

import torch

from .. import errors
from ..engine.normal_form import Bound, Structure, bound
from ..formula import nodes
from ..formula.expression import Expression
from ..formula.parameters import Slot, kind_of
from ..proof.proof import Proof
from ..schedule.rung import rung_of
from .claims import KERNELS, Claim, Target, claims, subject_of
from .exported import claims_of_export, claims_of_page
from .given import MOST_OF_TABLE
from .solve import Model
from .walk.claims import of_installed_kernels
from .walk.tables import claims_of_call

TRUSTED: Final = (
    "the compilers of the text (Triton, ptxas, the C++ compiler), and the GPU or CPU",
    "the body of the loop around the hooks: products, softmax, loads of queries, keys and values",
    "asynchronous copies, barriers and the order of warps in Hopper's pipelines",
    "a launch starts a program for each row of tiles, or for each part of a row",
    "keys in pages: the page and row of each key, the request of each row of tiles "
    "(`kernels/requests.py`, `hopper_pages.py`), and that values which no row keeps are zero or "
    "finite",
    "the lines of the C++ loop that call the functions of intervals",
    "labels of tiles that kernels look up, and runs of keys on CPUs: they are checked for one call "
    "only",
    "bits of pairs and tables of distances are made again when the tensors they read change",
    "a table of distances holds the values of its formula (`backends/triton/arguments.py`); tests "
    "compare them",
    "each operation on real numbers in masks rounds as its name says, and no two are fused",
    "SymPy, and the rounding of biases, which tests compare",
    "gradients of entries of tables, and tiles that begin with documents (`backend='aligned'`): "
    "their texts are not read, and tests compare results",
    f"tables have at most {MOST_OF_TABLE:,} entries along an axis, and are stored row by row",
    "tables made of document ids obey the laws in `proof/check/laws.py`; tests compare them",
    "torch, and the kernels that FlexAttention compiles; in its functions, integers past 64 bits "
    "(`engine/long_integers.py`), which tests compare, and tables as long as the call",
    "JavaScript's doubles, and the functions of `views/explore/static` that formulas call, which "
    "tests run",
    "the prover of linear claims (`proof/check/refutation.py`), z3 where that prover leaves claims "
    "open, and the readers of `maskalg/verifier/reading`",
)
"""Assumptions of all proofs."""

TARGETS: Final[tuple[Target, ...]] = (*KERNELS, "torch", "page")

MOST_OF_CALL: Final = 8192
"""The longest call whose pairs may all be compared."""

_SECONDS: Final = 10.0
_DTYPES: Final = {"int": torch.int64, "real": torch.float32, "bool": torch.bool}


@dataclass(frozen=True)
class Verification:
    """Claims about the kernels of an expression.

    Attributes:
        expression: the mask or score, as text.
        claims: each claim, with its outcome, how it was proved, and the seconds it took.
        trusted: assumptions of all claims.
    """

    expression: str
    claims: tuple[Claim, ...]
    trusted: tuple[str, ...] = TRUSTED

    @property
    def whole(self) -> bool:
        """Whether every claim is proved, apart from those that are "not made"."""
        return all(claim.holds for claim in self.claims)

    @property
    def wrong(self) -> tuple[Claim, ...]:
        """The refuted claims, each with numbers at which the kernel computes another mask."""
        return tuple([claim for claim in self.claims if claim.outcome == "wrong"])

    def __str__(self) -> str:
        lines = [self.expression]
        for claim in self.claims:
            lines.append(f"{claim.outcome:<11} {claim.kind:<10} {claim.text}")
            lines.append(f"{'':11} {'':10} {claim.by}, {claim.seconds:.2f} s")
            if claim.model is not None:
                lines += [f"{'':22} {line}" for line in counterexample(claim.model)]
        proved, absent = (
            sum(claim.outcome == outcome for claim in self.claims)
            for outcome in ("proved", "not made")
        )
        seconds = sum(claim.seconds for claim in self.claims)
        told = f"proved      {proved} of {len(self.claims) - absent} claims in {seconds:.1f} s"
        lines.append(f"{told}; {absent} not made" if absent else told)
        lines += [f"{'trusted' if not i else '':<11} {text}" for i, text in enumerate(self.trusted)]
        return "\n".join(lines)


def verify(
    expression: Expression,
    *,
    targets: Sequence[Target] = TARGETS,
    length: int | None = None,
    seconds: float = _SECONDS,
) -> Verification:
    """Prove that the kernels of an expression compute its mask, for every index.

    The text that would run is read back and compared with the formula, for all positions below the
    length, all numbers in their declared ranges and all entries of a table's dtype. Runs of tiles
    that the host looks up in its tables are compared for one call. Linear claims are proved without
    z3. Other claims need it, and are "not proved" without: `pip install "maskalg[verify]"`.

    Args:
        expression: a mask, or a mask with biases.
        targets: "ptx" for NVIDIA, "triton" for other GPUs, "cpu" for C++, "torch" for the functions
            and tables that other libraries are given, "page" for the JavaScript of `explore`.
        length: queries and keys of a call with the numbers and tensors of the expression. All its
            runs of tiles are compared with each pair. If None, only runs that the host looks up
            are compared, in a call of as many positions as the tensors have.
        seconds: time limit of a claim, after which it is "not proved".

    Returns:
        A `Verification`. Print it: it says why a claim is not proved.

    Examples:
        >>> verify(causal & sliding(256)).whole
        True
    """
    if not isinstance(expression, Expression):
        raise errors.not_a_score(expression)
    wrong = [target for target in targets if target not in TARGETS]
    if wrong:
        raise errors.MaskValueError(
            f"target {wrong[0]!r} is not known; choose from {', '.join(TARGETS)}."
        )
    if length is not None and not 0 < length <= MOST_OF_CALL:
        raise errors.MaskValueError(
            "the length of a call that is computed pair by pair must be 1 to "
            f"{MOST_OF_CALL}, got {length!r}. For all lengths, leave it out: `verify(mask)`."
        )
    form = bound(expression)
    kernels = [target for target in targets if target in KERNELS]
    found = list(_of_every_call(form, kernels, seconds))
    if kernels:
        found += claims_of_call(form, length, kernels, looked_up_only=length is None)
    if "torch" in targets:
        found += claims_of_export(expression, length, int(1000 * seconds))
    if "page" in targets:
        found += claims_of_page(form, int(1000 * seconds))
    return Verification(str(expression), tuple(found))


def verify_proof(proof: Proof, dtypes: Mapping[str, torch.dtype]) -> Verification:
    """`proof.check(kernel=True)`: claims about a mask whose numbers and tensors are unknown."""
    slots = sorted({cast(Slot, slot) for slot in proof.mask.params}, key=lambda slot: slot.index)
    structure = Structure(proof.formula, proof.formula, proof.mask, nodes.SCORE, tuple(slots))
    tables = {slot.name: slot for slot in structure.tables}
    for name, dtype in dtypes.items():
        if name not in tables:
            names = (
                f"those of this mask are {', '.join(tables)}" if tables else "this mask has none"
            )
            raise errors.MaskValueError(f"check(dtypes=…): no table is called {name!r}; {names}.")
        if kind_of(dtype) != tables[name].kind:
            raise errors.MaskValueError(
                f"check(dtypes=…): table {name!r} has entries of another kind than {dtype}; write "
                f"a dtype such as {_DTYPES[tables[name].kind]}."
            )
    values = [
        torch.zeros((1,) * slot.ndim, dtype=dtypes.get(slot.name, _DTYPES[slot.kind]))
        if slot.is_table
        else max(slot.low or 1, 1)
        for slot in slots
    ]
    found = list(_of_every_call(Bound(structure, tuple(values)), KERNELS, _SECONDS))
    if rung_of(structure).in_kernel != "spans":
        text = "runs of tiles that kernels look up"
        found.append(
            Claim("runs", text, "not proved", "a proof has no tensors; write ma.verify(mask)", 0.0)
        )
    return Verification(proof.formula, tuple(found))


def _of_every_call(form: Bound, targets: Sequence[Target], seconds: float) -> Iterator[Claim]:
    """Claims about all calls of an expression."""
    yield from claims(subject_of(form), tuple(targets), int(1000 * seconds))
    for cpu in (False, True):
        if set(targets) & ({"cpu"} if cpu else {"ptx", "triton"}):
            yield from of_installed_kernels(cpu)


def counterexample(model: Model) -> list[str]:
    """Numbers at which a claim is wrong, as text."""
    values = [f"{name} = {value}" for name, value in sorted(model.values.items())]
    entries = [f"{table}[{place}] = {value}" for (table, place), value in model.entries.items()]
    return [f"wrong at {', '.join(values)}", *([f"with {', '.join(entries)}"] if entries else [])]
