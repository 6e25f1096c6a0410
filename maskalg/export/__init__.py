"""Masks in the formats of other libraries."""

from .attention_slices import to_attention_slices
from .flashmask import to_flashmask

__all__ = ["to_attention_slices", "to_flashmask"]
