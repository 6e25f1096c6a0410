"""Random lengths and sides of blocks for hypothesis."""

from __future__ import annotations

from dataclasses import dataclass

from ..values.by_hand import LONGEST
from . import messages

try:
    from hypothesis import strategies as st
    from hypothesis.strategies import DrawFn
except ImportError as missing:
    raise messages.needs_hypothesis("maskalg.testing.strategies") from missing


@dataclass(frozen=True)
class Shape:
    """Lengths and block sides to look at a mask with."""

    q_len: int
    kv_len: int
    block_q: int
    block_kv: int

    @property
    def lengths(self) -> tuple[int, int]:
        return self.q_len, self.kv_len

    @property
    def block(self) -> tuple[int, int]:
        return self.block_q, self.block_kv


@st.composite
def shapes(draw: DrawFn) -> Shape:
    """Lengths up to `LONGEST`, equal or not, and blocks that divide them or not."""
    q_len = draw(st.integers(1, LONGEST))
    kv_len = draw(st.one_of(st.just(q_len), st.integers(1, LONGEST)))
    block_q = draw(st.sampled_from((1, 2, 3, 4, 5, 7, 8, 16)))
    block_kv = draw(st.one_of(st.just(block_q), st.sampled_from((1, 2, 3, 4, 5, 7, 8, 16))))
    return Shape(q_len, kv_len, block_q, block_kv)
