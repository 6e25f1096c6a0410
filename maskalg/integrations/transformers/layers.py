"""Options of a model's layer beside its mask: each is refused, or becomes a term of the scores.

`output_capturing._active_collector` of transformers is private: it holds what a forward pass
collects, also where a model does not pass `output_attentions` on to its layers. Where it is not
there, such models return no weights and no error.
"""

from __future__ import annotations

from typing import Any, Final, cast

import torch

from ...errors import BackendError, MaskTypeError
from ...values.algebra import Bias, Mask, Score
from ...values.biases import softcap as softcap_bias
from ...values.weights import Weight, softmax, softmax_with_sink
from .. import messages

try:
    from transformers.utils import output_capturing
except ImportError:
    output_capturing = None

# Arguments that models pass along and that change nothing here: the mask holds the window and the
# positions, and some models hand the arguments of `generate` on to the encoder of their images.
_KNOWN: Final = frozenset(
    (
        *(
            "position_ids",
            "cache_position",
            "position_embeddings",
            "past_key_values",
            "cache",
            "use_cache",
        ),
        *("sliding_window", "max_length_q", "max_length_k", "seq_idx", "deterministic"),
        *("num_items_in_batch", "labels", "return_dict", "logits_to_keep", "layer_idx"),
        *("output_hidden_states", "output_router_logits", "output_scores", "output_logits"),
        *("max_length", "max_new_tokens", "min_length", "min_new_tokens", "do_sample"),
        *("num_beams", "num_return_sequences", "return_dict_in_generate"),
    )
)


def _collects_weights(config: object) -> bool:
    """Whether the model's forward pass collects the attention weights of its layers."""
    collector = getattr(output_capturing, "_active_collector", None)
    if collector is None or torch.compiler.is_compiling():
        return bool(getattr(config, "output_attentions", None))
    return "attentions" in (collector.get() or ())


def check_layer(module: torch.nn.Module, dropout: float, options: dict[str, Any]) -> None:
    """Refuse options of a layer that no kernel computes."""
    config = getattr(module, "config", None)
    if dropout > 0 and module.training:
        raise messages.model_dropout(dropout, config)
    wanted = options.pop("output_attentions", None)
    if _collects_weights(config) if wanted is None else wanted:
        raise BackendError(
            "output_attentions=True: the weights are never written out. Load the model with "
            'attn_implementation="eager" to look at them.'
        )
    for name, value in options.items():
        if name not in _KNOWN and value is not None:
            raise MaskTypeError(
                f"the model passes {name}={messages.short(value)} to its attention, and maskalg "
                "does not know whether it changes the result. Use "
                'attn_implementation="eager" for this model.'
            )


def capped(score: Mask | Score | None, softcap: float | None) -> Mask | Score | Bias | None:
    """A mask with a soft-cap, made once for the layers that share the mask."""
    if score is None or softcap is None:
        return score if softcap is None else softcap_bias(softcap)
    if torch.compiler.is_compiling():
        return score + softcap_bias(softcap)
    remembered = score.__dict__.get("_capped")
    if remembered is None or remembered[0] != softcap:
        remembered = score.__dict__["_capped"] = (softcap, score + softcap_bias(softcap))
    return cast(Score, remembered[1])


def weight_of(s_aux: torch.Tensor | None) -> Weight:
    """The weight of a layer, with its sinks where it has some."""
    return softmax if s_aux is None else softmax_with_sink(s_aux)
