"""`attn_implementation="maskalg"` in Hugging Face transformers.

    import maskalg.integrations.transformers
    model = AutoModel.from_pretrained(name, attn_implementation="maskalg")

Importing this module registers an attention implementation and its mask function, under one name,
which continuous batching (`model.generate_batch`) takes too.
The masks that a model composes (causal, sliding, chunked, packed sequences, padding) become
formulas, built once for a forward pass; a new step brings new values, not a new proof or kernel.
Soft-capping, sinks, position biases and grouped heads are computed as the model asks for them.
Dropout of attention weights and `output_attentions` are refused.

Source: `AttentionInterface` and `AttentionMaskInterface` of transformers 5.
"""

from __future__ import annotations

from .. import messages

try:
    from transformers import AttentionInterface, AttentionMaskInterface
except ImportError as missing:
    raise messages.integration_needs("transformers", "5.19", missing) from missing

from .admission import admit
from .attend import attend
from .continuous import attend_continuous
from .masks import NAME, make_mask, use_mask
from .model_mask import ModelMask, model_mask


def register() -> None:
    """Register "maskalg"; importing the module has done so.

    The mask function is registered too: without it, transformers would give decoders no mask.
    Continuous batching gives layers lengths instead of a mask.
    """
    AttentionInterface.register(NAME, attend)
    AttentionMaskInterface.register(NAME, make_mask)
    admit(NAME)


register()

__all__ = [
    "ModelMask",
    "attend",
    "attend_continuous",
    "make_mask",
    "model_mask",
    "register",
    "use_mask",
]
