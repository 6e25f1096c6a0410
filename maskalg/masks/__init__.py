"""The mask catalogue: one small file a family, a formula each."""

from ..algebra import everything, nothing
from .block_table import block_table
from .dense import dense
from .diffusion import block_diffusion
from .document import document
from .flashmask import flashmask
from .frames import spatial, temporal
from .global_tokens import global_tokens
from .local import block_causal, causal, chunked, dilated, sliding, strided, window
from .modality import media, modality, spans
from .neighborhood import morton_neighborhood, neighborhood, tiled_neighborhood
from .permutation import permutation
from .prefix import padding, prefix
from .restarted import per_document
from .shared_prefix import shared_prefix
from .slices import attention_slices
from .sliding_tile import sliding_tile
from .tree import tree
from .vertical_slash import vertical_slash

__all__ = [
    "attention_slices",
    "block_causal",
    "block_diffusion",
    "block_table",
    "causal",
    "chunked",
    "dense",
    "dilated",
    "document",
    "everything",
    "morton_neighborhood",
    "neighborhood",
    "flashmask",
    "global_tokens",
    "media",
    "modality",
    "nothing",
    "padding",
    "per_document",
    "permutation",
    "prefix",
    "shared_prefix",
    "sliding",
    "sliding_tile",
    "spatial",
    "temporal",
    "tiled_neighborhood",
    "spans",
    "strided",
    "tree",
    "vertical_slash",
    "window",
]
