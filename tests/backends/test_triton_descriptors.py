"""Descriptors encoded once: what the launcher in C is passed is what Triton's own would pass."""

from types import SimpleNamespace

import pytest
import torch

driver = pytest.importorskip("triton.backends.nvidia.driver")

from maskalg.backends.triton_descriptors import Descriptor, encoder_of  # noqa: E402

BLOCK = {"swizzle": 3, "elem_size": 2, "elem_type": 10, "block_size": [1, 1, 64, 64]}
SIGNATURE = {0: "tensordesc<bf16[1,1,64,128]>", 1: "i32", 2: "tensordesc<bf16[1,1,64,128]>"}


def compiled_with(calls, scratch=0):
    """A compiled kernel as Triton has it, whose launcher in C keeps what it is passed."""
    wrapper = driver.wrap_handle_tensordesc(lambda *a: calls.append(a), SIGNATURE, [BLOCK, BLOCK])
    launcher = SimpleNamespace(
        launch=wrapper, global_scratch_size=scratch, profile_scratch_size=0,
        launch_cooperative_grid=False, launch_pdl=False,
    )  # fmt: skip
    return SimpleNamespace(run=launcher)


@pytest.fixture
def encoded(monkeypatch):
    """Stands for the driver's encoding, which needs a GPU; counts."""
    found = []

    def encode(descriptor, block):
        found.append(descriptor.base)
        return [(descriptor.base.data_ptr(), block["swizzle"]), *descriptor.shape]

    monkeypatch.setattr(driver, "make_tensordesc_arg", encode)
    return found


def test_what_triton_passes_encoded_once(encoded):
    calls = []
    compiled = compiled_with(calls)
    encoder = encoder_of(compiled)
    first, second = torch.zeros(1, 2, 64, 128), torch.zeros(1, 2, 32, 128)
    arguments = [Descriptor(first), 5, Descriptor(second)]
    found = [encoder.encoded(arguments) for _ in range(2)]
    assert encoded == [first, second]
    base = (1, 1, 1, 0, "function", *encoder.options, "metadata", None, None, None)
    compiled.run.launch(*base, *arguments)
    assert calls[0] == (*base, *found[0]) == (*base, *found[1])


def test_another_shape_of_the_same_memory_is_another(encoded):
    encoder = encoder_of(compiled_with([]))
    whole = torch.zeros(1, 2, 64, 128)
    for tensor in (whole, whole[:, :, :32], whole[:, :1]):
        pointer, *shape = encoder.encoded([Descriptor(tensor), 5, Descriptor(whole)])[:5]
        assert pointer == (whole.data_ptr(), 3) and tuple(shape) == tuple(tensor.shape)


def test_other_launchers_are_left_to_triton(encoded):
    assert encoder_of(compiled_with([], scratch=8)) is None
    assert encoder_of(SimpleNamespace(run=SimpleNamespace(launch=print))) is None
    assert encoder_of(SimpleNamespace(run=lambda *arguments: None)) is None
    plain = driver.wrap_handle_tensordesc(print, {0: "i32"}, None)
    assert encoder_of(SimpleNamespace(run=SimpleNamespace(launch=plain))) is None
