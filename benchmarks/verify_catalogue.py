"""How much of the rendered kernels is proved to compute its mask, over the catalogue.

    python benchmarks/verify_catalogue.py [--targets ptx,triton,cpu] [--masks NAME,NAME]

Each mask: whole or not, and how long; claims that are wrong or not proved as they are found. At the
end counts by kind of claim, how many masks are whole, and the median and the most seconds of one.
Needs z3: `pip install "maskalg[verify]"`.
"""

from __future__ import annotations

import argparse
import time
from collections import Counter
from statistics import median

import maskalg as ma
from maskalg.testing.catalogue import CATALOGUE


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    add = parser.add_argument
    add("--targets", default="ptx,triton,cpu", help="kernels, with commas (%(default)s)")
    add("--seconds", type=float, default=3.0, help="of a claim at most (%(default)s)")
    add("--masks", help="names in the catalogue, with commas (all)")
    options = parser.parse_args()
    names = options.masks.split(",") if options.masks else list(CATALOGUE)
    counts: Counter[tuple[str, str]] = Counter()
    times: list[float] = []
    whole = 0
    for name in names:
        began = time.perf_counter()
        found = ma.verify(
            CATALOGUE[name].mask, targets=options.targets.split(","), seconds=options.seconds
        )
        times.append(time.perf_counter() - began)
        whole += found.whole
        print(f"{name}: {'whole' if found.whole else 'NOT WHOLE'}, {times[-1]:.1f} s", flush=True)
        for claim in found.claims:
            counts[claim.kind, claim.outcome] += 1
            if claim.outcome != "proved":
                said = f"  {claim.outcome}: {claim.kind}, {claim.text}: {claim.by}"
                print(said[:300], flush=True)
    for (kind, outcome), count in sorted(counts.items()):
        print(f"{kind:10} {outcome:12} {count:6}")
    print(
        f"{whole} of {len(names)} masks whole; {median(times):.2f} s in the median, "
        f"{max(times):.1f} s at most"
    )


if __name__ == "__main__":
    main()
