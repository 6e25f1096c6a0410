"""The mask catalogue: one small file a family, a formula each."""

from ..algebra import everything, nothing
from .dense import dense
from .document import document
from .frames import spatial, temporal
from .local import block_causal, causal, chunked, dilated, sliding, window
from .neighborhood import morton_neighborhood, neighborhood, tiled_neighborhood
from .prefix import padding, prefix
from .sliding_tile import sliding_tile

__all__ = [
    "block_causal",
    "causal",
    "chunked",
    "dense",
    "dilated",
    "document",
    "everything",
    "morton_neighborhood",
    "neighborhood",
    "nothing",
    "padding",
    "prefix",
    "sliding",
    "sliding_tile",
    "spatial",
    "temporal",
    "tiled_neighborhood",
    "window",
]
