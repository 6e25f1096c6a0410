"""Messages about models of other libraries that need features maskalg does not have."""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError, version

from ..errors import BackendError, MaskTypeError, MaskValueError, MissingPackageError

_DROPOUTS = ("attention_dropout", "attention_probs_dropout_prob", "attn_pdrop", "dropout_rate")


def integration_needs(package: str, least: str, missing: ImportError) -> MissingPackageError:
    says = (
        f"maskalg.integrations.{package} needs {package} {least} or newer: "
        f"pip install 'maskalg[{package}]'."
    )
    try:
        found = version(package)
    except PackageNotFoundError:
        return MissingPackageError(says)
    cause: BaseException = missing
    while cause.__cause__ is not None:
        cause = cause.__cause__
    return MissingPackageError(
        f"{says} {package} {found} is installed, and importing it failed: {cause}"
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
        f"the model asks for attention dropout {dropout}, which is not built. Build the model with "
        f"{' = 0.0, or '.join(names)} = 0.0, as in from_pretrained(name, {names[0]}=0.0), call "
        '`model.eval()`, or train with attn_implementation="eager".'
    )


def other_attention(name: str) -> MaskValueError:
    return MaskValueError(
        f"use_mask: the model computes its attention by {name!r}, which would not see the mask. "
        'Load the model with attn_implementation="maskalg", or call '
        'model.set_attn_implementation("maskalg").'
    )


def not_in_table(name: str, table: str, known: tuple[str, ...]) -> BackendError:
    """`table` holds a model's attention layers by the names in `known`."""
    instead = "sdpa" if "sdpa" in known else "eager"
    return BackendError(
        f'attn_implementation="{name}": the model takes its attention layers from the table '
        f"{table}, which has only {', '.join(map(repr, known))}. Write "
        f'attn_implementation="{instead}". If only a part of a larger model does, pass a dict from '
        f'the names of its configurations, such as {{"": "{name}", "vision_config": "{instead}"}}.'
    )


def mask_is_no_tensor(used: str) -> MaskTypeError:
    return MaskTypeError(
        f"the model computes with its attention mask ({used}), which is a formula here, not a "
        'tensor. Use attn_implementation="eager" or "sdpa" for this model; if you passed the '
        'formula to it, "maskalg".'
    )


def written_dtype(dtype: object) -> MaskTypeError:
    return MaskTypeError(
        f"make_mask(dtype={dtype}): a mask is written out in a floating dtype, which is added to "
        "the scores, or in torch.bool, True where kept. Write dtype=torch.float32, and convert "
        "what you read of it."
    )


def biased_mask_of_flags(mask: object) -> MaskTypeError:
    return MaskTypeError(
        f"{mask!r} has dtype torch.bool and holds a bias, which True and False cannot say. Write "
        "make_mask(dtype=torch.float32, …), or leave the bias out."
    )


def attention_mask_rank(shape: tuple[int, ...]) -> MaskValueError:
    return MaskValueError(
        f"attention_mask must be [batch, kv_len], or [batch, heads or 1, q_len, kv_len], got "
        f"{list(shape)}."
    )


def short(value: object) -> str:
    shape = getattr(value, "shape", None)
    return repr(value) if shape is None else f"a tensor of shape {list(shape)}"
