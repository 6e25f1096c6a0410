"""How much of every proof is proved again by its certificate, over the catalogue.

    python benchmarks/certificates.py [--open]

Claims of soundness and of exactness, how many of each were proved and how many stay unchecked, and
the seconds of processor time that checks take, the proofs not counted. With `--open` the unchecked
claims are printed.
"""

from __future__ import annotations

import argparse
import time
from collections import Counter
from statistics import median

from maskalg.proof.check.certificate import Certificate
from maskalg.testing.catalogue import CATALOGUE


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--open", action="store_true", help="print the unchecked claims")
    options = parser.parse_args()
    claims: Counter[tuple[str, bool]] = Counter()
    verified: Counter[str] = Counter()
    found: list[tuple[float, str, Certificate]] = []
    for name, case in CATALOGUE.items():
        proof = case.mask.prove()
        began = time.process_time()
        certificate = proof.check()
        found.append((time.process_time() - began, name, certificate))
        claims.update((claim.kind, claim.proved) for claim in certificate.obligations)
        verified["exact" if certificate.exact else "sound" if certificate.sound else "nothing"] += 1
    print("| claims | proved | unchecked |\n|---|---|---|")
    for kind in ("sound", "exact"):
        print(f"| {kind} | {claims[kind, True]} | {claims[kind, False]} |")
    print(f"{len(found)} masks; verified as {dict(verified)}")
    print(f"a check takes {median(seconds for seconds, _, _ in found):.2f} s (median), at most:")
    for seconds, name, _ in sorted(found, key=lambda one: -one[0])[:3]:
        print(f"  {seconds:6.2f} s  {name}")
    for _, name, certificate in found if options.open else ():
        for claim in certificate.obligations:
            if not claim.proved:
                print(f"{name}: {claim.side} {claim.kind}: {claim.claim}\n    {claim.by}")


if __name__ == "__main__":
    main()
