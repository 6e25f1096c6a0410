"""Parts of transformers that accept only its own names of attention, made to accept one more.

Continuous batching has a closed list of names, to which the name is added. Some models take their
attention layers from tables of their own, in which the name is missing; an error says so, in place
of a bare `KeyError`. This relies on methods of transformers 5.19 and later (tested: 5.19, 5.23 and
5.24):

- `ContinuousBatchingManager.switch_to_cb_friendly_attn(model, …)` refuses names that are not its
  own. It is not called for models whose name is admitted.
- `PagedAttentionCache.update(key_states, value_states, layer_idx, kwargs)`, which models call since
  5.24, copies all keys of a step. For those models it hands the cache to the layer, too, which then
  writes the step's keys and reads the others in place, where it can.
- `PreTrainedModel.get_correct_attn_implementation(requested_attention, …)` is called as a model is
  built, and before its layers are. An entry that raises is added to the tables of the model's
  modules, so that only models that look in a table are refused.

Where a method is not there, transformers says that it does not know the name.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from typing import Any, NoReturn

import torch
from transformers import PreTrainedModel

from .. import messages
from .continuous import hand_over


def admit(name: str) -> None:
    """Let models with the attention of this name take part in continuous batching.

    Models that know no attention but their own say so as they are built.
    """
    from transformers.generation import continuous_batching as batching

    _wrap(PreTrainedModel, "get_correct_attn_implementation", _told, name)
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
        cache: Any,
        key_states: Any,
        value_states: Any,
        layer_idx: int,
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        if kwargs is None:  # transformers then says which argument the model leaves out
            return updated(cache, key_states, value_states, layer_idx)
        if cache.config._attn_implementation != name:
            return updated(cache, key_states, value_states, layer_idx, kwargs)
        of = cache.layer_to_allocator[layer_idx]
        read, write = (kwargs[rows][of.index] for rows in ("read_index", "write_index"))
        own = of, layer_idx, key_states, value_states
        handed = hand_over(*own, read, write, kwargs["max_length_q"])
        kwargs.update(cache=cache, handed=handed)
        return handed.key, handed.value

    return update


def _told(checked: Callable[..., Any], name: str) -> Callable[..., Any]:
    def check(model: Any, requested_attention: str | None, *others: Any, **options: Any) -> Any:
        if requested_attention == name:
            for found, table in _tables(type(model)):
                table.setdefault(name, _refusing(name, found, tuple(table)))
        return checked(model, requested_attention, *others, **options)

    return check


def _tables(model_class: type) -> Iterator[tuple[str, dict[Any, Any]]]:
    """The tables from attention names to layers in the modules of a model, with their names."""
    for module in dict.fromkeys(each.__module__ for each in model_class.__mro__):
        for found, table in list(getattr(sys.modules.get(module), "__dict__", {}).items()):
            if isinstance(table, dict) and "eager" in table and all(map(_is_layer, table.values())):
                yield f"{module}.{found}", table


def _is_layer(entry: object) -> bool:
    return isinstance(entry, type) and issubclass(entry, torch.nn.Module)


def _refusing(name: str, table: str, known: tuple[str, ...]) -> Callable[..., NoReturn]:
    """An entry of a table: whoever would build a layer of it is told what the table knows."""

    def refuse(*arguments: Any, **options: Any) -> NoReturn:
        raise messages.not_in_table(name, table, known)

    return refuse
