"""maskalg: attention masks and score biases as values that compose, prove and compile.

mask = causal & (sliding(256) | prefix(4)) & document(ids)
out = attention(query, key, value, mask + alibi(slopes))
"""

from importlib import import_module
from importlib.metadata import PackageNotFoundError, version
from typing import TYPE_CHECKING, Any

from . import errors as errors
from . import nn as nn
from . import verifier as verifier  # tells proofs how to check kernels
from . import views as views  # tells notebooks how to show values
from .attention import attention as attention
from .backends.merge import merge as merge
from .engine.cache import cache_dir as cache_dir
from .engine.float8 import to_float8 as to_float8
from .engine.pages import Pages as Pages
from .errors.kinds import *
from .values import algebra, biases, choice, elementary, index, masks, weights
from .values.algebra import *
from .values.biases import *
from .values.choice import *
from .values.elementary import *
from .values.index import *
from .values.masks import *
from .values.weights import *

if TYPE_CHECKING:
    from . import parallel as parallel
    from .explanation import explain as explain
    from .explanation import render as render
    from .export import to_attention_slices as to_attention_slices
    from .export import to_flashmask as to_flashmask
    from .questions.decide import equivalent as equivalent
    from .questions.decide import implies as implies
    from .tracing import mask as mask
    from .tracing import score as score
    from .verifier.report import verify as verify
    from .views.inspect.sheet import plot as plot

# What is asked for by hand, and not in every step, is imported when it is.
_LATE = {
    "equivalent": "questions.decide",
    "explain": "explanation",
    "implies": "questions.decide",
    "mask": "tracing",
    "parallel": "parallel",
    "plot": "views.inspect.sheet",
    "render": "explanation",
    "score": "tracing",
    "to_attention_slices": "export",
    "to_flashmask": "export",
    "verify": "verifier.report",
}


def __getattr__(name: str) -> Any:
    if name not in _LATE:
        raise errors.not_in_package(name, [] if name.startswith("_") else globals()["__all__"])
    room = import_module(f".{_LATE[name]}", __name__)
    found = globals()[name] = room if name == _LATE[name] else getattr(room, name)
    return found


def __dir__() -> list[str]:
    return sorted({*globals(), *_LATE})


try:
    __version__ = version("maskalg")
except PackageNotFoundError:  # a source tree that was not installed
    __version__ = "0+unknown"

# To a type checker every name imported above is public: it reads no list made at run time.
if not TYPE_CHECKING:
    __all__ = [
        *("attention", "merge", "Pages", "to_float8", "nn", "cache_dir"),
        *_LATE,
        *masks.__all__,
        *biases.__all__,
        *weights.__all__,
        *choice.__all__,
        *index.__all__,
        *elementary.__all__,
        *algebra.__all__,
        *errors.kinds.__all__,
    ]
