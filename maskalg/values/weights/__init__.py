"""Weight functions: what turns a score into a weight."""

from .rectified import linear, relu, relu_squared
from .sigmoid import sigmoid
from .softmax import softmax, softmax_plus_one, softmax_with_sink
from .weight import Weight

__all__ = [
    "Weight",
    "linear",
    "relu",
    "relu_squared",
    "sigmoid",
    "softmax",
    "softmax_plus_one",
    "softmax_with_sink",
]
