"""Descriptors are encoded once for a place in memory and a shape, and unknown launchers refused.

`test_launches.py` compares what reaches the driver with what Triton's own launch passes.
"""

from types import SimpleNamespace

import pytest
import torch

driver = pytest.importorskip("triton.backends.nvidia.driver")

from maskalg.backends.triton.launching.descriptors import Descriptor, encoder_of  # noqa: E402

BLOCK = {"swizzle": 3, "elem_size": 2, "elem_type": 10, "block_size": [1, 1, 64, 64]}
SIGNATURE = {0: "tensordesc<bf16[1,1,64,128]>", 1: "i32", 2: "tensordesc<bf16[1,1,64,128]>"}


def compiled_with(**changed):
    """A compiled kernel as Triton has it, but for what is changed of its launcher."""
    wrapper = driver.wrap_handle_tensordesc(print, SIGNATURE, [BLOCK, BLOCK])
    launcher = {
        "launch": wrapper, "global_scratch_size": 0, "profile_scratch_size": 0,
        "launch_cooperative_grid": False, "launch_pdl": False,
    }  # fmt: skip
    launcher = SimpleNamespace(**launcher | changed)
    return SimpleNamespace(run=launcher, function=1, packed_metadata=(4, 1, 0))


@pytest.fixture
def encoded(monkeypatch):
    """Stands for the driver's encoding, which needs a GPU; counts."""
    found = []

    def encode(descriptor, block, *_launch):
        found.append(descriptor.base)
        return [(descriptor.base.data_ptr(), block["swizzle"]), *descriptor.shape]

    monkeypatch.setattr(driver, "make_tensordesc_arg", encode)
    return found


def test_a_place_is_encoded_once(encoded):
    encoder = encoder_of(compiled_with())
    first, second = torch.zeros(1, 2, 64, 128), torch.zeros(1, 2, 32, 128)
    arguments = [Descriptor(first), 5, Descriptor(second)]
    found = [encoder.encoded(arguments) for _ in range(2)]
    assert encoded == [first, second]
    places = [(tensor.data_ptr(), 3) for tensor in (first, second)]
    assert found[0] == found[1] == [places[0], *first.shape, 5, places[1], *second.shape]


def test_another_shape_of_the_same_memory_is_another(encoded):
    encoder = encoder_of(compiled_with())
    whole = torch.zeros(1, 2, 64, 128)
    for tensor in (whole, whole[:, :, :32], whole[:, :1]):
        pointer, *shape = encoder.encoded([Descriptor(tensor), 5, Descriptor(whole)])[:5]
        assert pointer == (whole.data_ptr(), 3) and tuple(shape) == tuple(tensor.shape)


def test_other_launchers_are_left_to_triton(encoded):
    assert encoder_of(compiled_with(global_scratch_size=8)) is None
    assert encoder_of(compiled_with(profile_scratch_size=8)) is None
    assert encoder_of(compiled_with(gsan_enabled=True)) is None
    assert encoder_of(SimpleNamespace(run=SimpleNamespace(launch=print))) is None
    assert encoder_of(SimpleNamespace(run=lambda *arguments: None)) is None
    plain = driver.wrap_handle_tensordesc(print, {0: "i32"}, None)
    assert encoder_of(SimpleNamespace(run=SimpleNamespace(launch=plain))) is None
