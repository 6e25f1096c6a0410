"""The reference: every pair of the dense matrix, by torch's own operations."""

from ..traits import Traits

TRAITS = Traits(of_torch=True, wide=True, where="on any device, with memory for the dense matrix")
