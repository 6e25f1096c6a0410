"""What is said where TRL is not installed."""

import sys

import pytest

pytest.importorskip("transformers", reason="needs transformers")

from maskalg.errors import MissingPackageError
from maskalg.integrations.trl import register


def test_the_extra_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "trl", None)
    with pytest.raises(MissingPackageError, match=r"needs trl 1.16 or newer: .*maskalg\[trl\]"):
        register()
