"""maskalg: attention masks and score biases as values that compose, prove and compile.

mask = causal & (sliding(256) | prefix(4)) & document(ids)
out = attention(query, key, value, mask + alibi(slopes))
"""

from importlib import import_module
from importlib.metadata import PackageNotFoundError, version
from typing import TYPE_CHECKING, Any

from . import errors, nn
from . import views as views  # tells notebooks how to show values
from .attention import attention
from .engine.float8 import to_float8
from .errors import (
    BackendError,
    MaskalgError,
    MaskAttributeError,
    MaskTypeError,
    MaskValueError,
    RecompilationWarning,
)
from .values.algebra import Bias, Mask, Score, everything, nothing
from .values.biases import (
    FireParameters,
    alibi,
    decay,
    decomposed,
    dense_bias,
    fire,
    graphormer,
    kerple_log,
    kerple_power,
    key_bias,
    relative,
    relative_2d,
    sandwich,
    shaw,
    softcap,
    t5,
)
from .values.choice import where
from .values.elementary import (
    cos,
    exp,
    floor,
    log,
    maximum,
    minimum,
    power,
    sin,
    sqrt,
    tan,
    tanh,
    truncate,
)
from .values.index import batch, bias, head, kv_idx, q_idx, scalar, table
from .values.masks import (
    attention_slices,
    block_causal,
    block_diffusion,
    block_table,
    causal,
    chunked,
    dense,
    dilated,
    document,
    flashmask,
    global_tokens,
    media,
    modality,
    morton_neighborhood,
    neighborhood,
    padding,
    per_document,
    permutation,
    prefix,
    shared_prefix,
    sliding,
    sliding_tile,
    spans,
    spatial,
    strided,
    temporal,
    tiled_neighborhood,
    tree,
    vertical_slash,
    window,
)
from .values.weights import (
    Weight,
    linear,
    relu,
    relu_squared,
    sigmoid,
    softmax,
    softmax_plus_one,
    softmax_with_sink,
)

if TYPE_CHECKING:
    from .codegen.store import cache_dir
    from .explanation import explain, render
    from .export import to_attention_slices, to_flashmask
    from .questions.decide import equivalent, implies
    from .tracing import mask, score
    from .views.inspect.sheet import plot

# What is asked for by hand, and not in every step, is imported when it is.
_LATE = {
    "cache_dir": "codegen.store",
    "equivalent": "questions.decide",
    "explain": "explanation",
    "implies": "questions.decide",
    "mask": "tracing",
    "plot": "views.inspect.sheet",
    "render": "explanation",
    "score": "tracing",
    "to_attention_slices": "export",
    "to_flashmask": "export",
}


def __getattr__(name: str) -> Any:
    if name not in _LATE:
        raise errors.not_in_package(name)
    found = globals()[name] = getattr(import_module(f".{_LATE[name]}", __name__), name)
    return found


def __dir__() -> list[str]:
    return sorted({*globals(), *_LATE})


try:
    __version__ = version("maskalg")
except PackageNotFoundError:  # a source tree that was not installed
    __version__ = "0+unknown"

__all__ = [
    "attention",
    "to_float8",
    "nn",
    "render",
    "explain",
    "cache_dir",
    # pictures
    "plot",
    # questions about masks
    "equivalent",
    "implies",
    # masks
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
    # formats of other libraries
    "to_attention_slices",
    "to_flashmask",
    # biases and weights
    "FireParameters",
    "alibi",
    "decay",
    "decomposed",
    "dense_bias",
    "fire",
    "graphormer",
    "kerple_log",
    "kerple_power",
    "key_bias",
    "relative",
    "relative_2d",
    "sandwich",
    "shaw",
    "softcap",
    "linear",
    "relu",
    "relu_squared",
    "sigmoid",
    "t5",
    "softmax",
    "softmax_plus_one",
    "softmax_with_sink",
    # FlexAttention's functions
    "mask",
    "score",
    # formulas of one's own
    "batch",
    "bias",
    "head",
    "kv_idx",
    "maximum",
    "minimum",
    "q_idx",
    "scalar",
    "table",
    "where",
    # real functions of them
    "cos",
    "exp",
    "floor",
    "log",
    "power",
    "sin",
    "sqrt",
    "tan",
    "tanh",
    "truncate",
    # types
    "Bias",
    "Mask",
    "Score",
    "Weight",
    "BackendError",
    "MaskAttributeError",
    "MaskTypeError",
    "MaskValueError",
    "MaskalgError",
    "RecompilationWarning",
]
