"""Weight functions: what turns a score into a weight."""

from .softmax import Weight, softmax

__all__ = ["Weight", "softmax"]
