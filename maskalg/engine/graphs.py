"""The one place that asks torch's CUDA graph trees, `torch.compile(mode="reduce-overhead")`.

Before it captures a function, torch runs it once with the graph's own memory, where nothing may
stay alive but results: torch raises an error if something does. It relies on
`torch._inductor.cudagraph_trees.get_manager`, and on `stream`, on which such functions run.
Without these, every call of a process that loaded graph trees counts as made by them, with a
warning.
"""

from __future__ import annotations

import sys
import warnings
from functools import cache
from typing import Final

import torch

_TREES: Final = "torch._inductor.cudagraph_trees"


def trees_allocate() -> bool:
    """Whether memory that is allocated now is that of graph trees, so that it cannot be kept."""
    trees = sys.modules.get(_TREES)
    if trees is None or not torch.cuda.is_initialized():
        return False
    index = torch.cuda.current_device()
    try:
        manager = trees.get_manager(index, create_if_none_exists=False)
        if manager is None:
            return False
        return bool(manager.stream.cuda_stream == torch._C._cuda_getCurrentRawStream(index))
    except AssertionError:
        return False  # torch 2.10, in a thread without graph trees
    except (AttributeError, TypeError):
        _warn()
        return True


@cache
def _warn() -> None:
    warnings.warn(
        f"maskalg does not know the CUDA graph trees of torch {torch.__version__}. In this process "
        "it keeps no tables and labels of tiles between calls, which costs time in each call.",
        stacklevel=2,
    )
