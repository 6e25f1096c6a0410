"""The mask catalogue: one small file a family, a formula each."""

from ..algebra import everything, nothing
from .dense import dense
from .document import document
from .local import block_causal, causal, chunked, dilated, sliding, window
from .prefix import padding, prefix

__all__ = [
    "block_causal",
    "causal",
    "chunked",
    "dense",
    "dilated",
    "document",
    "everything",
    "nothing",
    "padding",
    "prefix",
    "sliding",
    "window",
]
