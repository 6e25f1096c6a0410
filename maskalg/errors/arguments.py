"""Of the arguments that atoms take."""

from __future__ import annotations

from .kinds import MaskTypeError, MaskValueError


def not_an_integer(call: str, argument: str, value: object, low: int) -> MaskTypeError:
    return MaskTypeError(
        f"{call}: {argument} must be an integer >= {low}, got {value!r} of type "
        f"{type(value).__name__}."
    )


def below(call: str, argument: str, value: int | float, low: int) -> MaskValueError:
    return MaskValueError(f"{call}: {argument} must be an integer >= {low}, got {value}.")


def negative_window(call: str, argument: str, value: int) -> MaskValueError:
    return MaskValueError(f"{below(call, argument, value, 0)} None is unlimited.")


def above_int32(call: str, argument: str, value: int) -> MaskValueError:
    return MaskValueError(
        f"{call}: {argument} must fit a 32-bit integer, got {value}. For a limit that never "
        "binds, leave the atom out, or use None in window(left, right)."
    )


def tensor_dtype(call: str, argument: str, found: object, wanted: str) -> MaskTypeError:
    listed = found in ("list", "tuple", "ndarray") and "tensor" in wanted.lower()
    hint = " A list or an array holds numbers, in rows of one length." if listed else ""
    return MaskTypeError(f"{call}: {argument} must be {wanted}, got {found}.{hint}")


def tensor_shape(call: str, argument: str, found: object, wanted: str) -> MaskValueError:
    return MaskValueError(f"{call}: {argument} must have shape {wanted}, got {found}.")


_FROM_MASK = (
    "An attention mask [batch, kv_len], Boolean or of 0 and 1, enters as "
    "ma.padding.from_mask(attention_mask)."
)


def padding_dtype(found: object) -> MaskTypeError:
    problem = tensor_dtype("padding", "lengths", found, "an int32 or int64 tensor")
    return MaskTypeError(f"{problem} {_FROM_MASK}")


def padding_shape(found: object) -> MaskValueError:
    return MaskValueError(f"{tensor_shape('padding', 'lengths', found, '[batch]')} {_FROM_MASK}")


def dense_dtype(found: object) -> MaskTypeError:
    return MaskTypeError(f"{tensor_dtype('dense', 'tensor', found, 'a bool tensor')} {_FROM_MASK}")


def key_bias_rows(found: object) -> MaskValueError:
    return MaskValueError(
        f"key_bias: tensor of shape {found} may be [batch, length] or [heads, length]. Write "
        "tensor[:, None] for the former, tensor[None] for the latter."
    )


def canvas_shape(call: str, found: object) -> MaskTypeError:
    return MaskTypeError(
        f"{call}: shape must be one to three integers, the slowest axis first, got {found!r}. "
        f"Write `{call}((height, width), …)`."
    )


def per_axis(call: str, argument: str, found: object, axes: int) -> MaskTypeError:
    return MaskTypeError(
        f"{call}: {argument} must be one value, or {axes} of them for a canvas of {axes} axes, "
        f"got {found!r}."
    )


def window_too_large(
    call: str, argument: str, size: int, dilation: int, extent: int
) -> MaskValueError:
    apart = f" {dilation} apart" if dilation > 1 else ""
    return MaskValueError(
        f"{call}: {argument} is {size} keys{apart}, the axis holds {extent}. Take at most "
        f"{extent // dilation}."
    )


def tile_does_not_divide(call: str, axis: str, tile: int, extent: int) -> MaskValueError:
    return MaskValueError(
        f"{call}: the {axis} {extent} of the canvas is no multiple of the tile's {tile}. Pad the "
        f"canvas to {-(-extent // tile) * tile}."
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


def bound_type(name: str, value: object, wanted: str) -> MaskTypeError:
    return MaskTypeError(
        f"bind({name}=…): expected {wanted}, as it was built with, got {type(value).__name__}. "
        "Another kind of value is another structure: build a new expression."
    )
