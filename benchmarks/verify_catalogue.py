"""How much of the rendered kernels is proved to compute its mask, over the catalogue.

    python benchmarks/verify_catalogue.py [--targets ptx,triton,cpu,torch,page] [--masks NAME,NAME]
        [--again] [--jobs N] [--json FILE]

Claims that are wrong or not proved as they are found. At the end for each target how many masks are
whole, and the median and the most seconds of one, of one core; counts by kind of claim, those among
them that speak of a text or table that there is none of ("not made"); and the
claims about the walk over tiles, which are the same for every mask and proved once. With `--again`
z3 is asked whatever our own prover decides, each question once in each process, and the answers are
compared; the seconds are those of both then. `--json` keeps what is done, and goes on from there.
Needs z3: `pip install "maskalg[verify]"`.
"""

from __future__ import annotations

import argparse
import time
from collections import Counter
from collections.abc import Sequence
from functools import cache
from statistics import median
from typing import Any

from verify_jobs import results

import maskalg as ma
from maskalg.testing.catalogue import CATALOGUE
from maskalg.verifier import linear, solve, terms
from maskalg.verifier.claims import KERNELS
from maskalg.verifier.report import TARGETS
from maskalg.verifier.walk.claims import of_installed_kernels


@cache
def ask_again(milliseconds: int) -> Counter[str]:
    """What z3 finds, from now on, of each question that our own prover decides."""
    own, seen, found = linear.is_refuted, set(), Counter[str]()

    def both(
        given: Sequence[terms.Term],
        denied: Sequence[Sequence[terms.Term]],
        budget: linear.Budget = linear.QUICK,
    ) -> bool:
        if not own(given, denied, budget):
            return False
        claim = terms.no(terms.either(*[terms.both(*every) for every in denied]))
        if (*given, claim) not in seen:
            seen.add((*given, claim))
            outcome = solve._by_z3(given, claim, milliseconds)[0]
            found[outcome] += 1
            if outcome != "proved":
                print(f"  z3, {outcome}: {claim} given {given}"[:1000], flush=True)
        return True

    linear.is_refuted = both
    return found


def verified(name: str, target: str, seconds: float, again: bool) -> dict[str, Any]:
    """The claims about one mask on one target, or about the walk, in seconds of this process."""
    asked = ask_again(int(1000 * seconds)) if again else Counter[str]()
    before = Counter(asked)
    if target in KERNELS:  # the walk once in each process, which is no time of a mask
        of_installed_kernels(target == "cpu", False)
    # Of one core: z3 has one thread.
    began = time.process_time()
    if target == "walk":
        claims = [claim for cpu in (False, True) for claim in of_installed_kernels(cpu, False)]
    else:
        found = ma.verify(CATALOGUE[name].mask, targets=[target], seconds=seconds).claims
        claims = [claim for claim in found if claim.kind != "walk" or not claim.holds]
    return {
        "name": name, "target": target, "seconds": time.process_time() - began,
        "whole": all(claim.holds for claim in claims), "again": dict(asked - before),
        "counts": [[*which, n] for which, n in
                   Counter((claim.kind, claim.outcome) for claim in claims).items()],
        "rest": [f"{claim.outcome}: {claim.kind}, {claim.text}: {claim.by}"[:300]
                 for claim in claims if not claim.holds],
    }  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    add = parser.add_argument
    add("--targets", default=",".join(TARGETS), help="kernels, with commas (%(default)s)")
    add("--seconds", type=float, default=10.0, help="of a claim at most (%(default)s)")
    add("--masks", help="names in the catalogue, with commas (all)")
    add("--again", action="store_true", help="ask z3 again what our own prover decides")
    add("--jobs", type=int, default=1, help="processes (%(default)s)")
    add("--json", default="", help="file of what is done, to go on from")
    options = parser.parse_args()
    names = options.masks.split(",") if options.masks else list(CATALOGUE)
    targets = options.targets.split(",")
    jobs = [[name, target, options.seconds, options.again] for name in names for target in targets]
    walk = ["", "walk", options.seconds, options.again]
    every = []
    for one in results(verified, [walk, *jobs], options.jobs, options.json):
        every.append(one)
        told = "whole" if one["whole"] else "NOT WHOLE"
        print(f"{one['name']}: {one['target']}, {told}, {one['seconds']:.1f} s", flush=True)
        for line in one["rest"]:
            print(f"  {line}", flush=True)
    counts: Counter[tuple[str, str]] = Counter()
    asked: Counter[str] = Counter()
    for one in every:
        asked.update(one["again"])
        counts.update({(kind, outcome): n for kind, outcome, n in one["counts"]})
    for (kind, outcome), count in sorted(counts.items()):
        print(f"{kind:10} {outcome:12} {count:6}")
    for target in targets:
        of = [one for one in every if one["target"] == target]
        times = [one["seconds"] for one in of]
        print(
            f"{target}: {sum(one['whole'] for one in of)} of {len(of)} masks whole; "
            f"{median(times):.2f} s in the median, {max(times):.1f} s at most"
        )
    (once,) = (one for one in every if one["target"] == "walk")
    total = sum(n for *_, n in once["counts"])
    proved = sum(n for _, outcome, n in once["counts"] if outcome == "proved")
    print(f"the walk: {proved} of {total} claims proved, {once['seconds']:.1f} s, once")
    if options.again:
        print(f"decided by our own prover, asked of z3 again: {dict(asked)}")


if __name__ == "__main__":
    main()
