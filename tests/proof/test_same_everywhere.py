"""Proofs are the same in every process, on every thread, and however an expression is joined."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Callable

import torch

import maskalg as ma
from maskalg import causal, chunked, dilated, document, padding, prefix, q_idx, sliding, window
from maskalg.engine.extents import Extents
from maskalg.engine.normal_form import bound
from maskalg.proof.proof import Proof, prove_structure
from maskalg.schedule.rung import rung_of
from maskalg.schedule.tiling import Tiling
from maskalg.testing.catalogue import CATALOGUE

PRINTED = """
import functools
import operator
from maskalg.engine.normal_form import bound
from maskalg.proof.elimination import eliminated
from maskalg.proof.printed import literal_text
from maskalg.testing.catalogue import CATALOGUE
from maskalg import *
import torch
names = ("sinks and window", "causal sliding documents", "document per batch with ids of keys")
for mask in [CATALOGUE[name].mask for name in names] + [
    dilated(6) | window(4, 3) | padding(torch.tensor([9, 4]), queries=True) & sliding(8),
    (causal | prefix(3)) & (sliding(5) | document(torch.arange(64) // 9)) & ~chunked(4),
]:
    proof = mask.prove()
    sides = (proof.forms.touched, proof.forms.unfull)
    print(proof.touched, proof.unfull, proof.assumptions, proof.reasons)
    for span in proof.forms.touched + proof.forms.unfull:
        print(span.lows, span.highs, span.guards)
        if span.residue is not None:
            r = span.residue
            print(r.q_lows, r.q_highs, r.k_lows, r.k_highs, r.d_lows, r.d_highs)

# More steps than a proof may take: where it ends shows in how many were taken when.
video = neighborhood((8, 8, 8), 3) & document.from_lengths([100, 200, 212])
image = (neighborhood((32, 16), 5) | chunked(7)) & document.from_lengths([512])
for mask in (video, ~video, image):
    found = eliminated(bound(mask).structure.mask)
    for side in (found.kept, found.dropped):
        print([*map(literal_text, (each for step in side.steps or () for each in step.clause))])
    print(found.kept.reasons, found.dropped.reasons, found.signs._steps)

# More numbers than kernels are passed one by one.
many = tiled_neighborhood((16, 16), (2, 2), (1, 3)) | neighborhood((16, 16), 3)
windows = [causal.shift(q=i) & sliding(i + 3) & ~prefix(i) for i in range(12)]
for mask in (many, many | neighborhood((8, 32), 5), functools.reduce(operator.or_, windows)):
    print(render(mask), render(mask, ptx=True))
"""


def printed(seed: str) -> str:
    """What a process with other hashes of strings, and so other orders of sets, prints."""
    run = subprocess.run(
        [sys.executable, "-c", PRINTED],
        env={**os.environ, "PYTHONHASHSEED": seed},
        capture_output=True,
        text=True,
        check=True,
    )
    assert run.stdout.count("\n") > 10
    return run.stdout


def test_every_process_proves_the_same() -> None:
    assert printed("1") == printed("2")


def together(count: int, work: Callable[[], object]) -> list[object]:
    """What `count` threads return that start at the same moment; raises what one of them raises."""
    start = threading.Barrier(count)
    found: list[object] = []
    wrong: list[BaseException] = []

    def run() -> None:
        start.wait()
        try:
            found.append(work())
        except BaseException as error:
            wrong.append(error)

    threads = [threading.Thread(target=run) for _ in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if wrong:
        raise wrong[0]
    return found


def new_masks() -> list[ma.Mask]:
    """Structures that no other test has proved: the atoms stand among numbers of their own."""
    return [
        (causal | prefix(7)) & (sliding(8) | chunked(6)) & (q_idx >= number)
        for number in range(1001, 1005)
    ] + [~(sliding(4) & dilated(3)) | window(number, 2) & (q_idx >= 1005) for number in range(3)]


def test_threads_share_one_proof_of_a_structure() -> None:
    found = together(6, lambda: [prove_structure(bound(mask).structure) for mask in new_masks()])
    for proofs in found:
        assert isinstance(proofs, list)
        assert all(a is b for a, b in zip(proofs, found[0], strict=True))  # type: ignore[arg-type,call-overload]
    again = together(3, lambda: [bound(mask).structure for mask in new_masks()])
    for structures in again:
        assert all(a is b for a, b in zip(structures, again[0], strict=True))  # type: ignore[arg-type,call-overload]


def test_threads_prove_what_one_thread_proves() -> None:
    from maskalg.proof import proof as module

    structures = [bound(CATALOGUE[name].mask).structure for name in list(CATALOGUE)[::4]]

    def proved() -> list[Proof]:
        return [module._prove(structure) for structure in structures]

    alone = proved()
    for proofs in together(4, proved):
        for one, other in zip(alone, proofs, strict=True):  # type: ignore[call-overload]
            assert (one.touched, one.unfull, one.reasons) == (
                other.touched,
                other.unfull,
                other.reasons,
            )
            assert repr(one.forms) == repr(other.forms)


def test_threads_compute_the_same_blocks() -> None:
    ids = torch.arange(96) // 11
    mask = causal & sliding(17) & document(ids) | prefix(5) & padding(torch.tensor([70, 96]))
    wanted = mask.blocks(96, block=8).labels
    for labels in together(4, lambda: mask.blocks(96, block=8).labels):
        assert torch.equal(labels, wanted)  # type: ignore[arg-type]


def test_order_of_operands_changes_neither_structure_nor_proof() -> None:
    a, b, c = sliding(9), prefix(3), causal
    one, other = bound(c & (a | b)), bound((b | a) & c)
    assert one.structure is other.structure
    extents = Extents(64, 64, 1, 1)
    runs = [rung_of(form.structure).runs(Tiling(form, extents, (8, 8))) for form in (one, other)]
    assert torch.equal(runs[0].first, runs[1].first)
