"""The mask catalogue: one small file a family, a formula each."""

from ..algebra import everything, nothing
from .block_table import block_table
from .canvases.frames import spatial, temporal
from .canvases.neighborhood import morton_neighborhood, neighborhood, tiled_neighborhood
from .canvases.sliding_tile import sliding_tile
from .dense import dense
from .diffusion import block_diffusion
from .documents.document import document
from .documents.modality import media, modality, spans
from .documents.restarted import per_document
from .documents.shared_prefix import shared_prefix
from .documents.tree import tree
from .flashmask import flashmask
from .global_tokens import global_tokens
from .local import block_causal, causal, chunked, dilated, sliding, strided, window
from .permutation import permutation
from .prefix import padding, prefix
from .slices import attention_slices
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
