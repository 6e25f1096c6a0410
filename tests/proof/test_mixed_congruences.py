"""Remainders beside other remainders, documents, sets and windows: exact, and nothing evaluated."""

from __future__ import annotations

import pytest
import torch

from maskalg import causal, dilated, document, kv_idx, q_idx, sliding, table
from maskalg.testing import assert_closed_forms_sound, assert_labels_exact
from maskalg.values.algebra import Mask

IDS = torch.arange(64) // 9
RECURRING = torch.arange(64) // 5 % 4
flags = table(torch.arange(64) % 7 < 2, "flags")

MIXED = {
    "two dilations": dilated(3) & dilated(5),
    "two dilations, one kept": dilated(3) & ~dilated(5),
    "one of two dilations": dilated(3) | dilated(5),
    "two dilations in a window": dilated(3) & dilated(5) & sliding(17) & causal,
    "three dilations": dilated(2) & dilated(3) & ~dilated(5),
    "remainders that never meet": ((q_idx - kv_idx) % 4 == 1) & ((q_idx - kv_idx) % 6 == 2),
    "a set of queries": dilated(3) & flags[q_idx],
    "a set of keys": dilated(3) & flags[kv_idx] & causal,
    "no set of keys": dilated(4) & ~flags[kv_idx] & sliding(9),
    "sets of both": dilated(3) & flags[kv_idx] & flags[q_idx],
    "a window and documents": dilated(3) & sliding(12) & document(IDS),
    "documents that recur": dilated(3) & sliding(12) & document(RECURRING),
    "two dilations in documents": dilated(3) & dilated(4) & document(IDS) & causal,
    "other documents": dilated(3) & ~document(IDS) & causal,
    "a remainder of keys": dilated(3) & (kv_idx % 4 == 1) & causal,
    "shifted": (dilated(3) & dilated(5)).shift(q=4, kv=1),
    "shifted apart": dilated(3).shift(q=1) & dilated(5).shift(kv=2) & causal,
    "shifted by a tensor": (dilated(3) & flags[kv_idx] & causal).shift(q=torch.tensor(6)),
}


@pytest.mark.parametrize("name", MIXED)
def test_exact(name: str) -> None:
    mask: Mask = MIXED[name]
    assert mask.prove().exact, str(mask.prove())
    for q_len, kv_len, block in ((40, 40, 8), (37, 23, (3, 5)), (1, 33, 4)):
        assert assert_labels_exact(mask, q_len, kv_len, block=block).evaluated == 0
    assert_closed_forms_sound(mask, 30, 37, block_q=4)


@pytest.mark.parametrize("name", ["two dilations", "a set of keys", "a window and documents"])
def test_certified(name: str) -> None:
    certificate = MIXED[name].prove().check()
    assert certificate.sound and certificate.exact, str(certificate)
