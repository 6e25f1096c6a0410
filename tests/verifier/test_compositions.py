"""Random compositions: what the verifier calls wrong would be."""

import pytest
from hypothesis import HealthCheck, given, settings

import maskalg as ma
from maskalg.testing.strategies import masks

pytest.importorskip("z3")


@settings(max_examples=5, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
@given(masks(depth=3))
def test_no_kernel_is_wrong(case):
    found = ma.verify(case.mask, targets=("triton", "cpu"), seconds=1)
    assert not found.wrong, str(found)
    assert any(claim.outcome == "proved" for claim in found.claims)
