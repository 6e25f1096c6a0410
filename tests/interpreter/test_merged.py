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


def test_parts_and_result_are_slices_of_longer_tensors():
    """The result takes the place of a part, and parts differ in dtype and order."""
    outs, lses = parts(3, (2, 3, 50, 24), torch.float16, tokens_first=False)
    wanted, of_wanted = ma.merge(outs, lses)
    whole, of_whole = torch.full((2, 3, 90, 24), 7.0).half(), torch.full((2, 3, 90), 7.0)
    room, of_room = whole[:, :, 20:70], of_whole[:, :, 20:70]
    outs = [room.copy_(outs[0]), outs[1].float(), outs[2].transpose(1, 2).contiguous()]
    outs[2] = outs[2].transpose(1, 2)  # tokens first in memory
    kernels.fill_merged(outs, lses, room, of_room)
    torch.testing.assert_close(room, wanted, atol=1e-3, rtol=1e-3)
    torch.testing.assert_close(of_room, of_wanted, atol=1e-5, rtol=1e-6)
    for tensor, written in ((whole, room), (of_whole, of_room)):
        assert (tensor == 7).sum() == tensor.numel() - written.numel()
