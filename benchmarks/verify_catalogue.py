"""How much of the rendered kernels is proved to compute its mask, over the catalogue.

    python benchmarks/verify_catalogue.py [--targets ptx,triton,cpu,torch,page] [--masks NAME,NAME]
        [--again]

Claims that are wrong or not proved as they are found. At the end for each target how many masks are
whole, and the median and the most seconds of one, of one core; counts by kind of claim, those among
them that speak of a text or table that there is none of ("not made"); and the
claims about the walk over tiles, which are the same for every mask and proved once. With `--again`
z3 is asked whatever our own prover decides, each question once, and the answers are compared; the
seconds are those of both then. Needs z3: `pip install "maskalg[verify]"`.
"""

from __future__ import annotations

import argparse
import time
from collections import Counter
from collections.abc import Sequence
from statistics import median

import maskalg as ma
from maskalg.testing.catalogue import CATALOGUE
from maskalg.verifier import linear, solve, terms
from maskalg.verifier.report import TARGETS
from maskalg.verifier.walk.claims import of_installed_kernels


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


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    add = parser.add_argument
    add("--targets", default=",".join(TARGETS), help="kernels, with commas (%(default)s)")
    add("--seconds", type=float, default=10.0, help="of a claim at most (%(default)s)")
    add("--masks", help="names in the catalogue, with commas (all)")
    add("--again", action="store_true", help="ask z3 again what our own prover decides")
    options = parser.parse_args()
    again = ask_again(int(1000 * options.seconds)) if options.again else None
    names = options.masks.split(",") if options.masks else list(CATALOGUE)
    targets = options.targets.split(",")
    counts: Counter[tuple[str, str]] = Counter()
    times: dict[str, list[float]] = {target: [] for target in targets}
    whole: Counter[str] = Counter()
    began = time.process_time()
    walk = [claim for cpu in (False, True) for claim in of_installed_kernels(cpu, False)]
    of_walk = time.process_time() - began
    for name in names:
        for target in targets:
            # Of one core: z3 has one thread.
            began = time.process_time()
            found = ma.verify(CATALOGUE[name].mask, targets=[target], seconds=options.seconds)
            times[target].append(time.process_time() - began)
            whole[target] += found.whole
            told = "whole" if found.whole else "NOT WHOLE"
            print(f"{name}: {target}, {told}, {times[target][-1]:.1f} s", flush=True)
            for claim in found.claims:
                if claim.kind == "walk":
                    continue
                counts[claim.kind, claim.outcome] += 1
                if not claim.holds:
                    said = f"  {claim.outcome}: {claim.kind}, {claim.text}: {claim.by}"
                    print(said[:300], flush=True)
    for (kind, outcome), count in sorted(counts.items()):
        print(f"{kind:10} {outcome:12} {count:6}")
    for target in targets:
        print(
            f"{target}: {whole[target]} of {len(names)} masks whole; {median(times[target]):.2f} s "
            f"in the median, {max(times[target]):.1f} s at most"
        )
    proved = sum(claim.outcome == "proved" for claim in walk)
    print(f"the walk: {proved} of {len(walk)} claims proved, {of_walk:.1f} s, once")
    if again is not None:
        print(f"decided by our own prover, asked of z3 again: {dict(again)}")


if __name__ == "__main__":
    main()
