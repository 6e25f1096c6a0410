"""Wrong texts of kernels, given to the verifier and run.

    TRITON_INTERPRET=1 python -m tests.verifier.mutants \\
        [--count 600] [--seed 0] [--masks NAME,NAME] [--passed] [--milliseconds 3000]

Rules (`mutation.py`) change the rendered texts of masks: hooks of Triton and of PTX with 32 and 64
bits, C++, loop bounds of both; with `--passed` the numbers and tables that hooks are passed. Each
mutant is put to the verifier in the text's place. Refuted: the
numbers that the verifier gives are run, and the answer must be another one; of an interval that
lacks a key, other intervals may hold it ("refuted, same"). Not proved: small calls are run to find
such numbers. Proved: small calls are run and must all give the formula's answers.
Prints a table by rule; the exit status is 1 where a mutant is accepted that answers otherwise, or
where a refutation changes no answer. Needs z3, Triton and a C++ compiler.
"""

from __future__ import annotations

import argparse
import random
import sys
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from typing import cast

import torch
import z3

import maskalg as ma
from maskalg.backends.cpu.native import hooks as native
from maskalg.codegen.bits import may_cost
from maskalg.codegen.hooks import Hooks, hooks_of
from maskalg.codegen.style import Bits
from maskalg.engine.normal_form import Structure, bound, transposed
from maskalg.formula.nodes import SCORE
from maskalg.testing.catalogue import CATALOGUE
from maskalg.verifier import terms
from maskalg.verifier.claims import Claim, Subject, claims, subject_of
from maskalg.verifier.given import Kernel, given
from maskalg.verifier.meaning import Meaning

from . import running
from .calls import Numbers, small_calls
from .mutation import Mutant, of_arguments, of_cpp, of_triton

OUTCOMES = ("refuted, run", "not proved, run", "refuted, same", "not proved", "proved, run")
WRONG = ("ACCEPTED, wrong", "REFUTED, same")


def masks() -> dict[str, ma.Mask]:
    """Masks whose texts have all that printers write."""
    q, k = ma.q_idx, ma.kv_idx
    far = ma.table(torch.tensor([-(2**31), 5, 2**31 - 1], dtype=torch.int32), "far")
    x, y = (ma.table(torch.tensor([2**62, 3, -(2**63)]), name) for name in "xy")
    block = ma.scalar(4, "block", low=1)
    near, many = torch.tensor([-(2**31), 7]), torch.tensor([5, 3], dtype=torch.int32)
    off = k + ma.table(near.int(), "near")[ma.batch] - q
    named = ["causal sliding", "sinks and window", "dilated", "strided", "prefix LM per batch"]
    return {
        **{name: CATALOGUE[name].mask for name in named},
        "chunks": ma.causal & (q // block == k // block) & (q % block >= k % 3),
        "padding": ma.causal & ma.padding(torch.tensor([3, 5])),
        "entries of 32 bits": (q - far[q]) // block == (k - far[q]) // block,
        "quotients of entries": (q - far[q]) // block >= k - 3,
        "remainders of entries": off % ma.table(many, "many", low=1)[ma.batch] == 2,
        "entries of 64 bits": x[q] + 3 >= y[k],
        "multiples of the head": q - k <= 1_000_000_000 * ma.head - 5,
    }


@dataclass(frozen=True)
class Text:
    """A text of a mask's kernels: for a target ("ptx", "triton", "cpu"), of a width in bits, in the
    plainest way or by bits of pairs."""

    mask: str
    subject: Subject
    target: str
    bits: int
    by_bits: Bits = ""

    @property
    def structure(self) -> Structure:
        return self.subject.structure

    @cached_property
    def kernel(self) -> Kernel:
        if self.target == "cpu":
            return Kernel(bits=64, short=False, every_integer=True)
        found = self.subject.kernel(self.bits)
        assert found is not None
        return found

    @cached_property
    def hooks(self) -> Hooks:
        style = self.subject.style(self.bits, ptx=self.target == "ptx")
        return hooks_of(self.structure, replace(style, bits=self.by_bits), backward=True)

    @cached_property
    def cpp(self) -> native.Hooks | None:
        return self.subject.cpp

    @cached_property
    def transposed(self) -> Structure:
        other = transposed(self.structure)
        return Structure(other.key, other.mask_key, other.mask, SCORE, other.slots)

    def mutants(self, passed: bool) -> list[Mutant]:
        if passed:
            return list(of_arguments(self.hooks)) if self.target != "cpu" else []
        if self.target != "cpu":
            of = list(of_triton(self.hooks.source))
            # Of runs that are looked up alone nothing is claimed.
            of = [m for m in of if "next" not in m.function or m.function in self.bounded]
            # Of hooks by bits, those that differ from the plain ones.
            return [m for m in of if not self.by_bits or m.function.startswith("masked")]
        return list(of_cpp(self.cpp.source)) if self.cpp else []

    @cached_property
    def bounded(self) -> set[str]:
        """The hooks of runs that claims are proved of."""
        return {name for claim in self.proved for name in claim.split(", ") if "next" in name}

    @cached_property
    def proved(self) -> set[str]:
        """The claims that are proved of the right text."""
        of = claims(self.subject, (self.target,), 10_000, (self.bits,))  # type: ignore[arg-type]
        return {claim.text for claim in of if claim.outcome == "proved"}

    def has(self, numbers: Numbers, q: int, k: int) -> bool:
        """Whether such a kernel runs in calls with such a pair."""
        pair = {"q_idx": q, "kv_idx": k}
        return all(numbers.value(condition, pair) for condition in self.known)

    @cached_property
    def known(self) -> list[terms.Term]:
        return given(self.structure, Meaning(self.subject.dtypes), self.kernel)

    def first_refusal(self, mutant: Mutant, milliseconds: int) -> Claim | None:
        if mutant.passed is None:
            subject = replace(self.subject, rendered=lambda _: mutant.text)
        else:
            subject = replace(self.subject, passed=lambda _: cast(Hooks, mutant.passed))
        found = None
        for claim in claims(subject, (self.target,), milliseconds, (self.bits,)):  # type: ignore[arg-type]
            if claim.model is not None:
                return claim
            known = claim.text in self.proved or claim.by.startswith("not read")
            if claim.outcome != "proved" and known:
                found = found or claim
        return found


def texts(names: list[str]) -> Iterator[Text]:
    every = masks()
    for name in names:
        subject = subject_of(bound(every[name]))
        for target, bits in (("ptx", 32), ("ptx", 64), ("triton", 32), ("triton", 64), ("cpu", 64)):
            if target == "cpu" or subject.kernel(bits) is not None:
                yield Text(name, replace(subject, variant=""), target, bits)
            if bits == 32 and subject.limbs.get(32) == 1 and may_cost(subject.structure):
                for kind in ("rows", "tiles"):
                    of_bits = replace(subject, variant=f"bits of pairs in {kind}")
                    yield Text(name, of_bits, target, bits, by_bits=kind)


# --- running -------------------------------------------------------------------------------------


def answers_otherwise(text: Text, mutant: Mutant, numbers: Numbers, claim: Claim | None) -> str:
    """What a mutant answers otherwise in a call: "" if nothing. With a claim, at its numbers."""
    values = numbers.values
    if claim is not None and claim.kind == "element":
        return _pairs(text, mutant, numbers, [(values["q_idx"], values["kv_idx"])], claim)
    if claim is not None:
        row = values["q0"], values["q1"]
        return _interval(text, mutant, numbers, row, [values["kv_idx"]], at_numbers=True)
    lengths = values["q_len"], values["kv_len"]
    if "next" in mutant.function or mutant.function == "bounds":
        if mutant.function.endswith("of_keys"):
            lengths = lengths[::-1]
        rows = [(a, b) for a in range(lengths[0]) for b in range(a, lengths[0])]
        found = (_interval(text, mutant, numbers, row, range(lengths[1])) for row in rows)
        return next(filter(None, found), "")
    past = 2 if "keys" not in mutant.function and mutant.function != "mask_q" else 0
    pairs = [(q, k) for q in range(lengths[0]) for k in range(lengths[1] + past)]
    return _pairs(text, mutant, numbers, pairs, None)


def _pairs(
    text: Text, mutant: Mutant, numbers: Numbers, pairs: list[tuple[int, int]], claim: Claim | None
) -> str:
    if claim is None:
        pairs = [pair for pair in pairs if text.has(numbers, *pair)]
    if not pairs:
        return ""
    if text.target == "cpu":
        of_keys = mutant.function == "mask_q"
        found = running.kept_by_cpp(mutant.text, numbers, pairs, of_keys)
    else:
        of_keys = mutant.function.endswith("of_keys")
        wide = text.bits == 64
        hooks = mutant.passed or text.hooks
        found = running.kept_by_triton(mutant.text, hooks, numbers, pairs, of_keys, wide)
        if claim is not None:  # it may be wrong by what it reads outside of a table
            numbers = Numbers(numbers.structure, numbers.dtypes, {**numbers.values, "outside": -1},
                              numbers.entries)  # fmt: skip
            other = running.kept_by_triton(mutant.text, hooks, numbers, pairs, of_keys, wide)
            if other != found:
                return f"{pairs[0]}: reads outside of a table"
    for (q, k), kept in zip(pairs, found, strict=True):
        if text.target == "cpu" and k >= numbers.values["kv_len"]:
            continue
        if kept is not numbers.wanted(q, k):
            return f"q_idx {q}, kv_idx {k}: {kept}"
    return ""


def _interval(
    text: Text,
    mutant: Mutant,
    numbers: Numbers,
    row: tuple[int, int],
    keys: range | list[int],
    at_numbers: bool = False,
) -> str:
    """A key of the tile that no touched interval holds, or that no interval says to mask, by itself
    or in a tile of keys; or that another row of labels is asked for than by the right text.

    At the numbers of a claim (`at_numbers`) lengths are those of its side.
    """
    of = numbers
    if text.target == "cpu":
        assert text.cpp is not None
        touched, every = text.cpp.touched, text.cpp.touched + text.cpp.unfull
        found = running.intervals_by_cpp(mutant.text, numbers, row, touched, every)
    else:
        if mutant.function.endswith("of_keys") and not at_numbers:
            swapped = dict(numbers.values)
            swapped["kv_len"], swapped["q_len"] = swapped["q_len"], swapped["kv_len"]
            of = Numbers(text.transposed, numbers.dtypes, swapped, numbers.entries)
        elif mutant.function.endswith("of_keys"):
            of = Numbers(text.transposed, numbers.dtypes, numbers.values, numbers.entries)
        wide = text.bits == 64
        hooks = mutant.passed or text.hooks
        found, right = (
            running.intervals_by_triton(one, passed, of, mutant.function, row, wide)
            for one, passed in ((mutant.text, hooks), (text.hooks.source, text.hooks))
        )
        if found[2] != right[2]:
            return f"queries {row}: {found[2]} is asked for"
        if not right[0]:
            return ""
    first, last = row
    queries = [*range(first, min(first + 150, last + 1)), *range(max(last - 149, first), last + 1)]
    queries += [numbers.values["q_idx"]] if at_numbers else []
    for k in keys:
        kept = {of.wanted(q, k) for q in queries}
        for block in (1, 16, 32, 64, 128):
            touched, unfull = (
                any(a <= b and a // block <= k // block <= b // block for a, b in intervals)
                for intervals in found[:2]
            )
            if True in kept and not touched:
                return f"queries {row}, key {k}: not visited"
            if touched and False in kept and not unfull:
                return f"queries {row}, key {k}: not masked"
    return ""


_LEAST = {
    **dict.fromkeys(("batch", "head", "q_idx", "kv_idx", "q0", "q1"), 0),
    **dict.fromkeys(("batches", "heads", "q_len", "kv_len"), 1),
}
"""Of what a refutation does not speak: any number will do."""


def outcome_of(text: Text, mutant: Mutant, milliseconds: int) -> tuple[str, str]:
    """What becomes of a mutant, and why."""
    told = ""
    try:
        claim = text.first_refusal(mutant, milliseconds)
    except (TypeError, AttributeError, z3.Z3Exception) as problem:
        return "not read", f"{type(problem).__name__}: {problem}"
    if claim is not None and claim.model is not None:
        values = {**_LEAST, **claim.model.values}
        numbers = Numbers(text.structure, text.subject.dtypes, values, claim.model.entries)
        at = replace(mutant, function=_function(text, claim))
        told = running.apart(lambda: answers_otherwise(text, at, numbers, claim) or "same")
        if told not in ("same", "crashed") and not told.startswith("raised"):
            return "refuted, run", told
    for numbers in small_calls(text.structure, text.subject.dtypes, text.known, 6):
        found = running.apart(lambda n=numbers: answers_otherwise(text, mutant, n, None) or "same")  # type: ignore[misc]
        if found.startswith("raised"):
            return "does not run", found
        if found != "same":
            if claim is None:
                return "ACCEPTED, wrong", f"{numbers.values}: {found}"
            if claim.model is None:
                return "not proved, run", f"{found} ({claim.by})"
            return "refuted, run", found
    if claim is None:
        return "proved, run", ""
    if claim.by.startswith("not read"):
        return "not read", claim.by
    if claim.model is not None:
        # Of one interval among others that hold the key as well, or of keys that no query keeps.
        same = "refuted, same" if claim.kind == "bounds" else "REFUTED, same"
        return same, f"{claim.model}: {told}"
    return "not proved", claim.by


def _function(text: Text, claim: Claim) -> str:
    """The function that a claim is of."""
    if text.target == "cpu":
        return claim.text.split(", ")[2]
    if claim.kind == "bounds":
        return claim.text.split(", ")[2]
    return "masked" if claim.moving == "kv_idx" else "masked_of_keys"


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    add = parser.add_argument
    add("--count", type=int, default=600, help="of mutants (%(default)s)")
    add("--seed", type=int, default=0, help="of the choice among all (%(default)s)")
    add("--masks", help="names, with commas (all)")
    add("--passed", action="store_true", help="mutants of what hooks are passed, not of their text")
    add("--milliseconds", type=int, default=3000, help="of a claim at most (%(default)s)")
    add("--loud", action="store_true", help="print every mutant")
    options = parser.parse_args()
    names = options.masks.split(",") if options.masks else list(masks())
    every = list(texts(names))
    drawn = random.Random(options.seed)
    left = [
        (text, drawn.sample(found, len(found)))
        for text in every
        if (found := text.mutants(options.passed))
    ]
    total = sum(len(found) for _, found in left)
    print(f"{total} mutants of {len(left)} texts of {len(names)} masks", flush=True)
    counts: Counter[tuple[str, str]] = Counter()
    began, done = time.perf_counter(), 0
    while done < options.count and any(mutants for _, mutants in left):
        for text, mutants in left:
            if done >= options.count or not mutants:
                continue
            mutant = mutants.pop()
            outcome, why = outcome_of(text, mutant, options.milliseconds)
            counts[mutant.rule, outcome] += 1
            done += outcome in OUTCOMES or outcome in WRONG
            if options.loud or outcome in WRONG or outcome.startswith("not proved"):
                where = f"{text.mask}, {text.target} {text.bits}, {mutant.function}"
                change = f"{mutant.rule}: {mutant.before[-120:]} => {mutant.after[-120:]}"
                print(f"{outcome}: {where}, {change} | {why}"[:700], flush=True)
    columns = [*OUTCOMES, *WRONG, "not read", "does not run"]
    print(f"{'rule':18}" + "".join(f"{name:>18}" for name in columns))
    for rule in sorted({rule for rule, _ in counts}):
        print(f"{rule:18}" + "".join(f"{counts[rule, name]:18}" for name in columns))
    totals = Counter(dict.fromkeys(columns, 0))
    for (_, name), number in counts.items():
        totals[name] += number
    print(f"{'all':18}" + "".join(f"{totals[name]:18}" for name in columns))
    print(f"{done} mutants in {time.perf_counter() - began:.0f} s")
    return 1 if sum(counts[key] for key in counts if key[1] in WRONG) else 0


if __name__ == "__main__":
    sys.exit(main())
