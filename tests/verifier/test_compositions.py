"""Random compositions: what the verifier calls wrong would be."""

import pytest
from hypothesis import HealthCheck, assume, given, settings

import maskalg as ma
from maskalg.formula.comparisons import holds_entry
from maskalg.testing.strategies import masks

pytest.importorskip("z3")


def divides_by_entry(mask):
    """Known to be wrong for entries near the end of their dtype (`docs/verified.md`)."""
    divisions = (node for node in mask.mask_node.walk() if node.op in ("floordiv", "mod"))
    return any(holds_entry(node.args[1]) for node in divisions)


@settings(max_examples=5, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
@given(masks(depth=3))
def test_no_kernel_is_wrong(case):
    assume(not divides_by_entry(case.mask))
    found = ma.verify(case.mask, targets=("triton", "cpu"), seconds=1)
    assert not found.wrong, str(found)
    assert any(claim.outcome == "proved" for claim in found.claims)
