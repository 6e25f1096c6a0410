"""Messages of attributes and bound values of an expression."""

from __future__ import annotations

from ..errors import MaskAttributeError, MaskTypeError, MaskValueError

_ASKED_OF_MASKS = frozenset(
    (
        *("show", "prove", "blocks", "segments", "to_dense", "cost", "bandwidth", "is_empty"),
        *("witness", "rows_have_a_key", "simplify", "to_mask_mod", "complement"),
    )
)
_OF_TENSORS = frozenset(("ndim", "shape", "dtype", "device", "dim", "size"))
_MOVES = frozenset(("cuda", "cpu", "half", "bfloat16", "float", "double"))


def called(what: object) -> MaskTypeError:
    return MaskTypeError(
        f"`{what!r}(…)`: an expression is a value and takes no arguments. Compose it, `{what!r} & "
        "sliding(256)`; ask it with lengths, `.to_dense(q_len, kv_len)`; as a function of indices "
        "it is `.to_mask_mod()`, or `.to_score_mod()`."
    )


def not_a_position(call: str, found: str) -> MaskTypeError:
    return MaskTypeError(
        f"{call}: positions are integers: an index expression such as kv_idx // 16, an integer "
        f"tensor [length] or [batch, length], or one integer >= 0. Got {found}. A table is read at "
        "indices: table(x)[kv_idx]."
    )


def unknown_parameter(name: str, known: list[str]) -> MaskTypeError:
    have = ", ".join(known) if known else "none"
    return MaskTypeError(
        f"bind({name}=…): this expression has no parameter {name!r}; it has {have}."
    )


def bound_tensor(name: str, wanted: tuple[str, int], found: tuple[object, int]) -> MaskValueError:
    return MaskValueError(
        f"bind({name}=…): expected a tensor of kind {wanted[0]} and rank {wanted[1]}, as it was "
        f"built with, got {found[0]} and rank {found[1]}. Another kind or rank is another "
        "structure: build a new expression."
    )


def out_of_order(call: str, name: str, order: str) -> MaskValueError:
    wanted = "ascend" if order == "ascending" else "lie next to each other where they are equal"
    return MaskValueError(
        f"{call}: entries of {name} must {wanted}, as those of the table that was declared "
        f"{order!r}. Write document.from_cu_seqlens(cu_seqlens) for packed documents, and "
        "document(ids), without an order, for ids that lie in any."
    )


def bound_type(name: str, value: object, wanted: str) -> MaskTypeError:
    return MaskTypeError(
        f"bind({name}=…): expected {wanted}, as it was built with, got {type(value).__name__}. "
        "Another kind of value is another structure: build a new expression."
    )


def no_attribute(kind: str, name: str) -> MaskAttributeError:
    """An expression of a kind ("Mask", "Bias", "Score") has no attribute of a name."""
    text = f"a {kind} has no attribute {name!r}."
    if name in _ASKED_OF_MASKS and kind == "Score":
        text += f" Its mask has: write score.mask.{name}(…)."
    if name in _ASKED_OF_MASKS and kind == "Bias":
        text += (
            " It is asked of masks, and a bias keeps every pair; bias.plot(…) draws what it adds."
        )
    if name in _MOVES:
        text += " Write mask.to('cuda') or mask.to('cpu'): tensors move, and keep their dtypes."
    if name in _OF_TENSORS:
        text += (
            " It is a formula, no tensor: mask.to_dense(q_len, kv_len) writes a mask out, and a "
            "model of transformers takes maskalg.integrations.transformers.model_mask(mask, batch, "
            "q_len) for attention_mask."
        )
    return MaskAttributeError(text)
