"""The GPU backend."""

from ..traits import Traits

TRAITS = Traits(device="cuda", float8=True, pages=True)
