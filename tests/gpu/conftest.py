"""Which kernels compute the gradients of short sequences."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

import pytest

from maskalg.tiles import backward


@pytest.fixture
def one_pass_from(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[int], None]]:
    """Sets how many keys, pairs and queries gradients in one pass need, for the length of a test.

    With 0 one pass serves the lengths that a float64 reference can have too.
    """
    pytest.importorskip("triton", reason="needs Triton")
    from maskalg.backends.triton.plan import backward_plan
    from maskalg.backends.triton.tuned import look_again

    def forget() -> None:
        backward_plan.cache_clear()
        look_again()  # also what is remembered of calls was chosen by another least

    def change(least: int) -> None:
        needed = backward.Least(least, least, least, least)
        found = {name: replace(p, least=needed) for name, p in backward.PATTERNS.items()}
        monkeypatch.setattr(backward, "PATTERNS", found)
        forget()

    yield change
    forget()
