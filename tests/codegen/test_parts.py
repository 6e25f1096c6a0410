"""Head dimensions in parts that are powers of two."""

import pytest

pytest.importorskip("triton", reason="needs Triton")
parts = pytest.importorskip("maskalg_kernels.hopper_parts", reason="needs Gluon")


@pytest.mark.parametrize("size", range(8, 257, 8))
def test_parts_follow_one_another_and_hold_all_dimensions(size):
    for found in (parts._depths(size), parts._widths(size)):
        assert [first for first, _ in found] == [
            sum(width for _, width in found[:place]) for place in range(len(found))
        ]
        assert all(width & (width - 1) == 0 and width >= 16 for _, width in found)
        assert sum(width for _, width in found) >= size
    assert sum(width for _, width in parts._depths(size)) < size + 16
    assert len(parts._widths(size)) <= 2


def test_parts_of_some_dimensions():
    assert parts._depths(112) == [(0, 64), (64, 32), (96, 16)]
    assert parts._widths(80) == [(0, 64), (64, 16)]
    assert parts._widths(96) == [(0, 64), (64, 32)]
    assert parts._widths(112) == [(0, 128)]
    assert parts._widths(160) == [(0, 128), (128, 32)]
    assert parts._widths(192) == [(0, 128), (128, 64)]
    assert parts._widths(224) == [(0, 256)]
