"""The door to transformers' continuous batching, whose list of attention names is closed.

It relies on two methods of transformers 5.19 and later (tested: 5.19, 5.23 and 5.24):

- `ContinuousBatchingManager.switch_to_cb_friendly_attn(model, …)` refuses names that are not its
  own. It is not called for models whose name is admitted.
- `PagedAttentionCache.update(key_states, value_states, layer_idx, kwargs)`, which models call since
  5.24, copies all keys of a step. For those models it hands the cache to the layer, too, which then
  writes the step's keys and reads the others in place, where it can.

Where a method is not there, transformers says that it does not know the name.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from .continuous import hand_over


def admit(name: str) -> None:
    """Let models with the attention of this name take part in continuous batching."""
    from transformers.generation import continuous_batching as batching

    _wrap(batching.ContinuousBatchingManager, "switch_to_cb_friendly_attn", _unchecked, name)
    _wrap(batching.PagedAttentionCache, "update", _left_to_layers, name)


def _wrap(owner: type, method: str, how: Callable[..., Any], name: str) -> None:
    """Replace a method of transformers once."""
    found = getattr(owner, method, None)
    if found is not None and getattr(found, "admits", None) != name:
        made = how(found, name)
        # Not `functools.wraps`: it would copy what keeps `torch.compile` out of `update`.
        made.__doc__, made.admits = found.__doc__, name
        setattr(owner, method, made)


def _unchecked(checked: Callable[..., Any], name: str) -> Callable[..., Any]:
    def switch(manager: Any, model: Any, *arguments: Any, **options: Any) -> Any:
        if model.config._attn_implementation == name:
            return None
        return checked(manager, model, *arguments, **options)

    return switch


def _left_to_layers(updated: Callable[..., Any], name: str) -> Callable[..., Any]:
    def update(
        cache: Any, key_states: Any, value_states: Any, layer_idx: int, kwargs: dict[str, Any]
    ) -> Any:
        if cache.config._attn_implementation != name:
            return updated(cache, key_states, value_states, layer_idx, kwargs)
        of = cache.layer_to_allocator[layer_idx]
        read, write = (kwargs[rows][of.index] for rows in ("read_index", "write_index"))
        own = of, layer_idx, key_states, value_states
        handed = hand_over(*own, read, write, kwargs["max_length_q"])
        kwargs.update(cache=cache, handed=handed)
        return handed.key, handed.value

    return update
