"""maskalg: attention masks and score biases as values that compose, prove and compile."""

from .algebra import Bias, Mask, Score, everything, nothing
from .attention import attention
from .biases import alibi, relative, softcap
from .index import batch, head, kv_idx, maximum, minimum, q_idx, scalar, table, where
from .masks import (
    block_causal,
    causal,
    chunked,
    dense,
    dilated,
    document,
    padding,
    prefix,
    sliding,
    window,
)
from .weights import softmax
