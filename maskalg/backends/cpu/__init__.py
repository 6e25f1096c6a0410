"""The CPU backend."""

from ..traits import Traits

TRAITS = Traits(device="cpu", where="on any machine, by tiles")
