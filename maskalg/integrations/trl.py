"""TRL's tree attention on maskalg: rollouts that share prefixes, each token computed once.

    maskalg.integrations.trl.register()
    trainer = AsyncGRPOTrainer(...)

TRL packs the rollouts of a step into a prefix tree (`TreeRow` of `trl.experimental.async_grpo`) and
computes its attention by gathering the keys and values along every path for a kernel from a hub.
`register` puts `attend` in that function's place, under TRL's own name: unique tokens alone, in the
kernels of `ma.attention`, on a CPU too, with soft-caps, windows and sinks.

Source: `tree_attention` of TRL 1.16.
"""

from __future__ import annotations

from typing import Any, Final, cast

import torch

from ..engine.memory import Memory
from ..formula.derived import note_documents
from ..values.algebra import Mask
from ..values.index import kv_idx, q_idx, table
from ..values.masks import shared_prefix
from . import messages
from .transformers import attend as attend_of_model
from .transformers import model_mask

__all__ = ["attend", "register", "tree_mask"]

_MASKS: Final = Memory(8)  # of a forward pass, by window


def attend(
    module: torch.nn.Module,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: None,
    *,
    tree_kv_index: torch.Tensor,
    tree_cu_seqlens_q: torch.Tensor,
    tree_cu_seqlens_k: torch.Tensor,
    tree_max_seqlen_q: int,
    tree_max_seqlen_k: int,
    sliding_window: int | None = None,
    **options: Any,
) -> tuple[torch.Tensor, None]:
    """Attention of a layer over a packed tree, as TRL's trainer asks for it.

    Args:
        module: the layer.
        query: `[1, heads, tokens, head_dim]`.
        key: `[1, kv_heads, tokens, head_dim]`.
        value: `[1, kv_heads, tokens, value_dim]`.
        attention_mask: None; the tree is the mask.
        tree_kv_index: packed positions of the tokens on the path to each segment, end to end.
        tree_cu_seqlens_q: int32 `[segments + 1]`, where segments begin.
        tree_cu_seqlens_k: int32 `[segments + 1]`, where their paths begin in `tree_kv_index`.
        tree_max_seqlen_q: tokens of the longest segment; not needed here.
        tree_max_seqlen_k: tokens of the longest path; not needed here.
        sliding_window: a token keeps this many tokens at the end of its path, itself included;
            None keeps the whole path.
        options: further arguments of `maskalg.integrations.transformers.attend`: `scaling`,
            `softcap`, sinks (`s_aux`), dropout (refused).

    Returns:
        `[1, tokens, heads, value_dim]`, and None for the weights.
    """
    tokens = query.shape[2]
    given = (tree_kv_index, tree_cu_seqlens_q, tree_cu_seqlens_k)
    mask = _MASKS.of_tensors(
        (tokens, sliding_window), given, lambda: tree_mask(*given, tokens, sliding_window)
    )
    whole = model_mask(mask, query.shape[0], tokens)
    return attend_of_model(module, query, key, value, whole, **options)


def tree_mask(
    tree_kv_index: torch.Tensor,
    tree_cu_seqlens_q: torch.Tensor,
    tree_cu_seqlens_k: torch.Tensor,
    tokens: int,
    sliding_window: int | None = None,
) -> Mask:
    """The mask of a tree that `TreeRow.pack` described; arguments as of `attend`.

    Nothing is read from the device.
    """
    starts, paths = tree_cu_seqlens_q.long(), tree_cu_seqlens_k.long()
    own, count = starts.diff(), len(starts) - 1
    # The token before a segment on its path is the last of the segment it continues.
    before = paths[1:] - own - 1
    rooted = before < paths[:-1]
    last = tree_kv_index[before.clamp(min=0)]
    parents = torch.searchsorted(starts, last, right=True) - 1
    parents = torch.where(rooted, -1, parents)
    mask = shared_prefix.from_cu_seqlens(starts, parents, total=tokens)
    if not torch.compiler.is_compiling():
        (end,) = mask.parameters.values()
        note_documents(cast(torch.Tensor, end), count, len(tree_kv_index) / max(count, 1))
    if sliding_window is None:
        return mask
    depths = table(shared_prefix.depths(starts, parents, total=tokens), "depths")
    return mask & (depths[q_idx] - depths[kv_idx] < sliding_window)


def register() -> None:
    """Put `attend` in the place of TRL's tree attention, before or after a trainer is built.

    TRL's trainers register their function anew when they are built, and find this one.

    Raises:
        MissingPackageError: TRL is not installed.
        ImportError: a TRL that has no such function.
    """
    try:
        import trl
        from trl.experimental.async_grpo import packing
    except ImportError as missing:
        raise messages.integration_needs("trl", "1.16", missing) from missing
    for name in ("tree_attention", "register_tree_attention", "TREE_ATTENTION"):
        if name not in vars(packing):
            raise messages.registry_changed("trl", trl.__version__, name)
    packing.tree_attention = attend
    packing.register_tree_attention()
