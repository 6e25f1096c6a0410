"""maskalg: attention masks and score biases as values that compose, prove and compile.

mask = causal & (sliding(256) | prefix(4)) & document(ids)
out = attention(query, key, value, mask + alibi(slopes))
"""

from importlib.metadata import PackageNotFoundError, version

from .algebra import Bias, Mask, Score, everything, nothing
from .attention import attention
from .biases import alibi, decay, relative, softcap
from .codegen.store import cache_dir
from .elementary import cos, exp, floor, log, power, sin, sqrt, tan, tanh, truncate
from .errors import BackendError, MaskalgError, MaskTypeError, MaskValueError
from .explain import explain, render
from .index import batch, bias, head, kv_idx, maximum, minimum, q_idx, scalar, table, where
from .masks import (
    block_causal,
    causal,
    chunked,
    dense,
    dilated,
    document,
    morton_neighborhood,
    neighborhood,
    padding,
    prefix,
    sliding,
    sliding_tile,
    spatial,
    temporal,
    tiled_neighborhood,
    window,
)
from .reasoning.decide import equivalent, implies
from .tracing import mask, score
from .weights import (
    Weight,
    linear,
    relu,
    relu_squared,
    sigmoid,
    softmax,
    softmax_plus_one,
    softmax_with_sink,
)

try:
    __version__ = version("maskalg")
except PackageNotFoundError:  # a source tree that was not installed
    __version__ = "0+unknown"

__all__ = [
    "attention",
    "render",
    "explain",
    "cache_dir",
    # questions about masks
    "equivalent",
    "implies",
    # masks
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
    # biases and weights
    "alibi",
    "decay",
    "relative",
    "softcap",
    "linear",
    "relu",
    "relu_squared",
    "sigmoid",
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
    "MaskTypeError",
    "MaskValueError",
    "MaskalgError",
]
