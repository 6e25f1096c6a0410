"""Messages of models of other libraries that ask for what maskalg does not compute."""

from __future__ import annotations

from ..errors import BackendError, MaskTypeError, MaskValueError, MissingPackageError

_DROPOUTS = ("attention_dropout", "attention_probs_dropout_prob", "attn_pdrop", "dropout_rate")


def integration_needs(package: str, least: str) -> MissingPackageError:
    return MissingPackageError(
        f"maskalg.integrations.{package} needs {package} {least} or newer: "
        f"pip install 'maskalg[{package}]'."
    )


def registry_changed(package: str, version: str, missing: str) -> ImportError:
    return ImportError(
        f"{package} {version} has no {missing}, where maskalg registers its attention. Call "
        "ma.attention in the model itself, or install the version that constraints.txt names."
    )


def model_dropout(dropout: float, config: object) -> BackendError:
    """`config` is that of the layer, or None: the attributes it has are named."""
    names = [name for name in _DROPOUTS if getattr(config, name, None) == dropout] or _DROPOUTS
    return BackendError(
        f"the model asks for attention dropout {dropout}, which is not built. Set "
        f"`config.{' = 0.0` or `config.'.join(names)} = 0.0`, call `model.eval()`, or train "
        'with attn_implementation="eager".'
    )


def no_attention_weights() -> BackendError:
    return BackendError(
        "output_attentions=True: the weights are never written out. Load the model with "
        'attn_implementation="eager" to look at them.'
    )


def model_argument(name: str, value: object) -> MaskTypeError:
    return MaskTypeError(
        f"the model passes {name}={_short(value)} to its attention, and maskalg does not know "
        f'whether it changes the result. Use attn_implementation="eager" for this model.'
    )


def mask_argument(name: str, value: object) -> MaskTypeError:
    return MaskTypeError(
        f"transformers passes {name}={_short(value)} to the mask, and maskalg does not know what "
        "it means. Use a version of transformers that `maskalg[transformers]` names."
    )


def no_model_mask(found: object) -> MaskTypeError:
    return MaskTypeError(
        f"attention_mask is {found!r}, and a model takes a mask with its lengths. Write "
        "attention_mask=model_mask(mask, batch, q_len)."
    )


def causal_without_mask() -> MaskValueError:
    return MaskValueError(
        "a causal layer was called with attention_mask=None for more than one query, which "
        "eager attention reads as `everything` and SDPA as `causal`. Call the layer through its "
        "model, or pass attention_mask=model_mask(ma.causal, batch, q_len)."
    )


def model_mask_lengths(
    found: tuple[int, ...], batch: int, q_len: int, kv_len: int
) -> MaskValueError:
    return MaskValueError(
        f"the mask was built for {list(found)} [batch, 1, q_len, kv_len], and attention is called "
        f"with batch {batch}, q_len {q_len}, kv_len {kv_len}."
    )


def mask_is_no_tensor(used: str) -> MaskTypeError:
    return MaskTypeError(
        f"the model computes with its attention mask ({used}), which is a formula here, not a "
        'tensor. Use attn_implementation="eager" or "sdpa" for this model.'
    )


def attention_mask_rank(shape: tuple[int, ...]) -> MaskValueError:
    return MaskValueError(
        f"attention_mask must be [batch, kv_len], or [batch, heads or 1, q_len, kv_len], got "
        f"{list(shape)}."
    )


def packed_batch(batch: int) -> MaskValueError:
    return MaskValueError(
        f"cu_seq_lens_q describes documents packed into one row, got a batch of {batch}. Pass the "
        "documents as one row, or position_ids that start again at 0 without cu_seq_lens."
    )


def documents_leak() -> str:
    return (
        "position_ids start again within a row, as those of packed documents do, and the mask lets "
        "documents attend to each other: with a cache, and in a model that tells its mask no "
        "positions, transformers does not look for them. Pass use_cache=False, or cu_seq_lens_q "
        "and cu_seq_lens_k."
    )


def packed_without_mask() -> MaskValueError:
    return MaskValueError(
        "cu_seq_lens_q is given beside no mask, or one that is written out. Leave the attention "
        "mask to the model, or put the documents into it."
    )


def no_paged_cache() -> MaskValueError:
    return MaskValueError(
        'attn_implementation="paged|maskalg" was called without the cache of continuous batching. '
        'Call model.generate_batch(prompts), or select "maskalg" for other calls: '
        'model.set_attn_implementation("maskalg").'
    )


def mask_of_batching(found: object) -> MaskTypeError:
    return MaskTypeError(
        f"continuous batching was given attention_mask={_short(found)}, and makes its masks from "
        "the requests' lengths and the layers' windows. Leave attention_mask out."
    )


def own_mask_of_batching(mask: object) -> MaskValueError:
    return MaskValueError(
        f"use_mask gave the model {mask!r}, and continuous batching cuts prompts into chunks and "
        "drops keys by the model's own windows. Call model.generate, or ma.attention(..., "
        "pages=ma.Pages(table, lengths)) in a loop of your own."
    )


def keys_are_gone(mask: object, first: int) -> MaskValueError:
    return MaskValueError(
        f"use_mask gave the model {mask!r}, and the cache has dropped keys 0 to {first - 1}, which "
        "the mask might keep. Use a cache without a window: "
        "model.generate(..., past_key_values=DynamicCache())."
    )


def not_a_mask_to_use(found: object) -> MaskTypeError:
    return MaskTypeError(
        f"use_mask(model, mask): mask must be a mask or `mask + bias`, got {type(found).__name__}."
    )


def not_a_mask_expression(found: object) -> MaskTypeError:
    return MaskTypeError(
        f"mask_expr must be a mask, a bias or `mask + bias`, got {type(found).__name__}."
    )


def mask_twice() -> MaskTypeError:
    return MaskTypeError(
        "mask_expr and attn_mask or is_causal are both given. Compose them: "
        "`mask_expr & ma.dense(attn_mask)`, `mask_expr & ma.causal`."
    )


def context_parallel() -> BackendError:
    return BackendError(
        "context parallelism is not built for maskalg in diffusers. Leave parallel_config out, or "
        "choose another attention backend."
    )


def _short(value: object) -> str:
    shape = getattr(value, "shape", None)
    return repr(value) if shape is None else f"a tensor of shape {list(shape)}"
