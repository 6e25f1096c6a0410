"""A cache of the most recently used results, for all threads."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable
from contextlib import suppress
from typing import TypeVar

Key = TypeVar("Key", bound=Hashable)
Found = TypeVar("Found")


class Recent(OrderedDict[Key, Found]):
    """At most `most` results by key; past that, the least recently used result is dropped.

    With `size`, such as bytes of a result, `most` limits the sum of all sizes instead.

    Threads may share one. Readers take no lock: after the look-up, and before the result is marked
    as used, another thread or the end of a tensor may remove it.
    """

    def __init__(self, most: int, size: Callable[[Found], int] | None = None) -> None:
        super().__init__()
        self.most, self.size = most, size
        # Reentrant: an object that ends while the lock is held may remove its results.
        self._writing = threading.RLock()

    def recall(self, key: Key) -> Found | None:
        """The result kept for a key, which counts as used now; or None."""
        found = self.get(key)
        if found is not None:
            with suppress(KeyError):
                self.move_to_end(key)
        return found

    def keep(self, key: Key, found: Found) -> Found:
        """Keep a result, and return the one that is kept: the first, if threads made several."""
        with self._writing:
            kept = self.setdefault(key, found)
            with suppress(KeyError):
                self.move_to_end(key)
            while self._held() > self.most:
                with suppress(KeyError):
                    self.popitem(last=False)
        return kept

    def _held(self) -> int:
        while self.size is not None:
            with suppress(RuntimeError):  # a result was removed meanwhile
                return sum(map(self.size, tuple(self.values())))
        return len(self)
