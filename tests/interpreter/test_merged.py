"""The kernel that joins parts of keys in Triton's interpreter, against the operations of torch."""

import os

import pytest
import torch

import maskalg as ma
from tests.cases.parts import LAYOUTS, parts

kernels = pytest.importorskip("maskalg.backends.triton.merged", reason="needs Triton")
pytestmark = pytest.mark.skipif(
    os.environ.get("TRITON_INTERPRET") != "1", reason="needs TRITON_INTERPRET=1"
)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
@pytest.mark.parametrize("number, shape, tokens_first", LAYOUTS)
def test_parts(number, shape, tokens_first, dtype):
    outs, lses = parts(number, shape, dtype, tokens_first=tokens_first)
    outs[-1] = outs[-1].clone(memory_format=torch.contiguous_format)  # lies as others do not
    if len(outs) > 2:
        outs[0] = outs[0].mT.contiguous().mT  # its last dimension is not the innermost
    found, lse = kernels.merged(outs, lses)
    wanted, of_wanted = ma.merge(outs, lses)
    assert found.dtype == dtype and found.shape == wanted.shape
    tolerance = 1e-6 if dtype == torch.float32 else 1e-3
    torch.testing.assert_close(found, wanted, atol=tolerance, rtol=tolerance)
    torch.testing.assert_close(lse, of_wanted, atol=1e-5, rtol=1e-6)
