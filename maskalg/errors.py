"""Every message a user can meet, on one page.

Each says what was typed, what was found, and what to write instead.
"""

from __future__ import annotations


class MaskalgError(Exception):
    """Base of the errors below, for `except`."""


class MaskTypeError(MaskalgError, TypeError):
    """An operand or argument of the wrong type."""


class MaskValueError(MaskalgError, ValueError):
    """An argument of the right type with an impossible value or shape."""


class BackendError(MaskalgError, RuntimeError):
    """A backend that cannot serve this call; the message names what would."""


# --- the algebra ---------------------------------------------------------------------------------


def used_as_bool(what: object) -> MaskTypeError:
    return MaskTypeError(
        f"{what!r} has no truth value: it was used with `and`, `or`, `not`, `if` or a chained "
        "comparison. Write `a & b`, `a | b`, `~a`, and `(x <= q_idx) & (q_idx < y)`."
    )


def or_with_bias(left: object, right: object) -> MaskTypeError:
    return MaskTypeError(
        f"`{left!r} | ({right!r})` has no meaning: a bias cannot belong to one side of `|`. "
        "Add it after choosing what is kept: `(a | b) + bias`. If you wrote `a | b + bias`, note "
        "that Python binds `+` tighter than `|`: write `(a | b) + bias`."
    )


def not_of_bias(what: object) -> MaskTypeError:
    return MaskTypeError(
        f"`~({what!r})` has no meaning: only a mask can be negated. Write `~mask + bias`."
    )


def mask_and_bias(mask: object, bias: object) -> MaskTypeError:
    return MaskTypeError(
        f"`{mask!r} & {bias!r}`: a bias adds to the score, it keeps or drops nothing. "
        f"Write `{mask!r} + {bias!r}`."
    )


def mask_plus_mask(left: object, right: object) -> MaskTypeError:
    return MaskTypeError(
        f"`{left!r} + {right!r}` adds two masks. Write `a & b` for what both keep or `a | b` "
        "for what either keeps; `+` is for a bias."
    )


def score_plus_score(left: object, right: object) -> MaskTypeError:
    return MaskTypeError(
        f"`({left!r}) + ({right!r})` adds two scores that both hold a mask. Write `a & b`: masks "
        "combine and biases add."
    )


def not_an_index(what: object) -> MaskTypeError:
    return MaskTypeError(
        f"expected an index expression (q_idx, kv_idx, batch, head or arithmetic on them) or a "
        f"number, got {what!r} of type {type(what).__name__}. Tensors enter through "
        "`ma.table(tensor)[index]`, named numbers through `ma.scalar(value)`."
    )


def real_index(what: object) -> MaskTypeError:
    return MaskTypeError(
        f"{what!r} is a real number; tables, `//` and `%` take integers. Write "
        "`ma.truncate(x)` for its integer part."
    )


def table_rank(name: str, shape: tuple[int, ...], given: int) -> MaskTypeError:
    return MaskTypeError(
        f"table {name} has shape {list(shape)} and takes {len(shape)} "
        f"{'index' if len(shape) == 1 else 'indices'}, {given} were given."
    )


def where_branches(then: object, otherwise: object) -> MaskTypeError:
    return MaskTypeError(
        f"ma.where chooses between two masks or two index expressions, got {type(then).__name__} "
        f"and {type(otherwise).__name__}."
    )


# --- arguments of atoms --------------------------------------------------------------------------


def not_an_integer(call: str, argument: str, value: object, low: int) -> MaskTypeError:
    return MaskTypeError(
        f"{call}: {argument} must be an integer >= {low}, got {value!r} of type "
        f"{type(value).__name__}."
    )


def below(call: str, argument: str, value: int | float, low: int) -> MaskValueError:
    return MaskValueError(f"{call}: {argument} must be an integer >= {low}, got {value}.")


def above_int32(call: str, argument: str, value: int) -> MaskValueError:
    return MaskValueError(
        f"{call}: {argument} must fit a 32-bit integer, got {value}. For a limit that never "
        "binds, leave the atom out, or use None in window(left, right)."
    )


def tensor_dtype(call: str, argument: str, found: object, wanted: str) -> MaskTypeError:
    return MaskTypeError(f"{call}: {argument} must be {wanted}, got {found}.")


def tensor_shape(call: str, argument: str, found: object, wanted: str) -> MaskValueError:
    return MaskValueError(f"{call}: {argument} must have shape {wanted}, got {found}.")


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


def bound_type(name: str, value: object, wanted: str) -> MaskTypeError:
    return MaskTypeError(
        f"bind({name}=…): expected {wanted}, as it was built with, got {type(value).__name__}. "
        "Another kind of value is another structure: build a new expression."
    )


# --- lengths and shapes --------------------------------------------------------------------------


def length(name: str, value: object) -> MaskValueError:
    return MaskValueError(f"{name} must be an integer >= 0, got {value!r}.")


def block_size(value: object) -> MaskValueError:
    return MaskValueError(
        f"block must be an integer >= 1 or a pair (block_q, block_kv) of them, got {value!r}."
    )


def table_too_short(
    name: str, shape: tuple[int, ...], axis: int, needed: int, what: str
) -> MaskValueError:
    return MaskValueError(
        f"{name} of shape {list(shape)} has {shape[axis]} entries along dimension {axis}, but "
        f"{what} reads {needed}. Pass {name} with at least {needed} entries there, or shift less."
    )


def negative_index(name: str, index: str, lowest: int) -> MaskValueError:
    return MaskValueError(
        f"{name} would be read at {index} = {lowest}, before its first entry. Indices are global "
        "and start at 0: shift by no less, or pass a longer tensor and shift it."
    )


def table_extent(
    name: str, shape: tuple[int, ...], axis: int, found: int, what: str
) -> MaskValueError:
    return MaskValueError(
        f"{name} of shape {list(shape)} has {shape[axis]} entries along dimension {axis}, which "
        f"stands for {what}, but {what} is {found}. Pass {found} entries, or 1 for all."
    )


def needs_heads() -> MaskValueError:
    return MaskValueError(
        "the expression depends on `head`, and no table tells how many there are: pass heads=…."
    )


def not_4d(name: str, shape: tuple[int, ...]) -> MaskValueError:
    return MaskValueError(
        f"attention: {name} must have shape [batch, heads, length, head_dim], got {list(shape)}."
    )


def shapes_do_not_fit(what: str, query: object, key: object, value: object) -> MaskValueError:
    return MaskValueError(
        f"attention: {what}; got query {list(query)}, key {list(key)}, value {list(value)}."  # type: ignore[call-overload]
    )


def tensors_differ(what: str, found: str) -> MaskTypeError:
    return MaskTypeError(f"attention: query, key and value must share one {what}, got {found}.")


def unsupported_dtype(dtype: object) -> MaskTypeError:
    return MaskTypeError(
        f"attention: float16, bfloat16, float32 (and float64 off the GPU kernels) are served, got "
        f"{dtype}."
    )


def wrong_device(name: str, found: object, wanted: object) -> MaskValueError:
    return MaskValueError(
        f"{name} lives on {found}, query on {wanted}. Move the expression once: "
        f"`mask = mask.to({str(wanted)!r})`."
    )


def not_a_score(what: object) -> MaskTypeError:
    return MaskTypeError(
        f"attention: score must be a mask, a bias or `mask + bias`, got {type(what).__name__}. "
        "A Boolean tensor enters as ma.dense(tensor), a FlexAttention function through its formula."
    )


def unknown_backend(name: object, known: list[str]) -> MaskValueError:
    return MaskValueError(f"backend={name!r} is not known; choose one of {', '.join(known)}.")


def no_backend_for(device: str) -> BackendError:
    return BackendError(
        f"no backend is chosen by itself for device {device!r}. Ask for one: backend='cpu' or "
        "backend='reference' run on any device torch supports."
    )


def head_dim_unsupported(found: int) -> BackendError:
    return BackendError(
        f"the fused kernel serves head dimensions 8 to 256, got {found}. "
        "backend='reference' serves any."
    )


def unsupported_weight(what: object) -> MaskTypeError:
    return MaskTypeError(f"weight must be a weight function such as ma.softmax, got {what!r}.")


def weight_formula(name: str, found: object) -> MaskTypeError:
    return MaskTypeError(
        f"Weight({name!r}, formula): the formula is a bias, a function of the score such as "
        f"ma.score(lambda s, b, h, q, k: s * s), got {type(found).__name__}."
    )


def weight_unnormalised_exp(name: str) -> MaskValueError:
    return MaskValueError(
        f"Weight({name!r}, normalised=False) without a formula would be exp of any score, which "
        "overflows. Give a formula, or leave normalised=True."
    )


def weight_sink_of_formula(name: str) -> MaskValueError:
    return MaskValueError(
        f"Weight({name!r}, formula, sink=…): a sink is a logit, so it needs w = exp. Leave the "
        "formula out."
    )


def no_lse_of(name: str) -> MaskValueError:
    return MaskValueError(
        f"return_lse=True: weight={name} has no logarithm of a sum of exponentials. Leave "
        "return_lse out, or use softmax weights."
    )


def bench_needs_gpu() -> BackendError:
    return BackendError(
        "no CUDA device was found (torch.cuda.is_available() is False). On a CPU, "
        "`maskalg demo` compares with scaled_dot_product_attention."
    )


def no_such_case(wanted: list[str], known: list[str]) -> MaskValueError:
    return MaskValueError(
        f"--cases {','.join(wanted)} names no case. The cases: {', '.join(known)}."
    )


def too_many_scalars(count: int, most: int) -> BackendError:
    return BackendError(
        f"the expression holds {count} numbers, the kernel takes {most}. Gather some of them in a "
        "tensor: `ma.table(tensor)[i]`."
    )


def not_a_positive_number(call: str, argument: str, value: object) -> MaskTypeError:
    return MaskTypeError(
        f"{call}: {argument} must be a positive number, got {value!r} of type "
        f"{type(value).__name__}."
    )


def not_positive(call: str, argument: str, value: float) -> MaskValueError:
    return MaskValueError(f"{call}: {argument} must be a positive finite number, got {value}.")


def not_a_tensor(name: str, what: object) -> MaskTypeError:
    return MaskTypeError(f"attention: {name} must be a torch.Tensor, got {type(what).__name__}.")


def reserved_name(name: str) -> MaskValueError:
    return MaskValueError(
        f"{name!r} cannot name a parameter: take a Python identifier other than q, k, q0, q1, "
        "batch and head."
    )


def kernel_dtype(dtype: object) -> BackendError:
    return BackendError(
        f"the fused kernel serves float16, bfloat16 and float32, got {dtype}. "
        "backend='reference' serves float64."
    )


def no_gpu() -> BackendError:
    return BackendError(
        "backend='triton' needs tensors on a GPU, got CPU tensors. Leave backend out, or ask for "
        "backend='cpu'. (TRITON_INTERPRET=1 runs the kernel in Triton's interpreter, for tests.)"
    )


def not_contiguous(shape: tuple[int, ...], stride: tuple[int, ...]) -> BackendError:
    return BackendError(
        f"a table of shape {list(shape)} and stride {list(stride)} is not contiguous, and too "
        "large to be copied at every call. Build the expression from `tensor.contiguous()`."
    )


def divisor_unbounded(call: str) -> MaskValueError:
    return MaskValueError(
        f"{call}: the divisor is not known to be positive. Declare its lower bound: "
        "ma.scalar(value, low=1), or ma.table(tensor, low=1)[index]."
    )


def where_condition(found: object) -> MaskTypeError:
    return MaskTypeError(
        f"ma.where(condition, …): the condition must be a mask, such as `head % 2 == 0`, got "
        f"{type(found).__name__}."
    )


def no_double_backward() -> BackendError:
    return BackendError(
        "the gradient of a gradient is not built (backward was called with create_graph=True). "
        "backend='reference' differentiates twice."
    )


# --- questions about masks -----------------------------------------------------------------------


def not_a_mask(call: str, what: object) -> MaskTypeError:
    return MaskTypeError(
        f"{call} asks about masks, got {what!r} of type {type(what).__name__}. A score is asked "
        "about by the mask it was built from."
    )


def kv_len_alone(kv_len: int) -> MaskValueError:
    return MaskValueError(
        f"kv_len={kv_len!r} was given without q_len: pass both, or neither for every position."
    )


# --- tracing -------------------------------------------------------------------------------------


_OPAQUE = "or pass opaque=True, which evaluates the function itself, element by element"


def not_a_function(call: str, found: object) -> MaskTypeError:
    arguments = "score, b, h, q_idx, kv_idx" if call == "score" else "b, h, q_idx, kv_idx"
    return MaskTypeError(
        f"ma.{call}: expected a function {call}_mod({arguments}), got {type(found).__name__}."
    )


def traced_control_flow(name: str, what: str) -> MaskTypeError:
    return MaskTypeError(
        f"the function uses a value that depends on {name} in {what}, which a formula cannot "
        "follow. Write torch.where(condition, a, b) for a choice, `&`, `|`, `~` for logic and "
        f"torch.minimum or torch.maximum for min and max, {_OPAQUE}."
    )


def untraceable(operation: str) -> MaskTypeError:
    return MaskTypeError(
        f"{operation} has no formula. Compute it before, and let the function capture the result "
        f"as a tensor, {_OPAQUE}."
    )


def traced_in_place(operation: str) -> MaskTypeError:
    return MaskTypeError(
        f"{operation}(…) changes a value in place. Write `x = x.{operation.rstrip('_')}(…)`."
    )


def traced_real_index() -> MaskTypeError:
    return MaskTypeError(
        "a tensor is indexed by a real number. Write `x.long()` for its integer part."
    )


def traced_rank(shape: tuple[int, ...], given: int) -> MaskTypeError:
    return MaskTypeError(f"a tensor of shape {list(shape)} is given {given} indices.")


def traced_row_too_long(shape: tuple[int, ...], limit: int) -> MaskValueError:
    return MaskValueError(
        f"a row of shape {list(shape)} is reduced, entry by entry, which is served up to {limit} "
        f"entries. Compute it before, {_OPAQUE}."
    )


def traced_divisor(divisor: str, why: str) -> MaskValueError:
    return MaskValueError(
        f"the function divides by {divisor}, and {why}. Divisors must be positive: write "
        "torch.clamp(divisor, min=1) if it always is."
    )


def traced_shape(name: str, shape: tuple[int, ...]) -> MaskTypeError:
    return MaskTypeError(
        f"{name} returns a row of shape {list(shape)} for single indices, expected one number. "
        "Index every dimension of the tensors it reads."
    )


def traced_result(call: str, wanted: str, found: str) -> MaskTypeError:
    return MaskTypeError(
        f"{call}: the function returns a value of kind {found}, expected {wanted}. Write "
        "`x != 0` for a truth value, torch.where(condition, 1.0, 0.0) for a number."
    )


def tracing_failed(name: str, reason: Exception) -> MaskTypeError:
    return MaskTypeError(
        f"{name} could not be traced: {type(reason).__name__}: {reason}. Write it with operators "
        f"and torch functions of its arguments, {_OPAQUE}."
    )


def opaque_on_gpu(name: str, is_mask: bool) -> BackendError:
    dense = "ma.dense(mask.to_dense(q_len, kv_len, batch=…, heads=…))"
    return BackendError(
        f"{name} was taken with opaque=True, and GPU kernels hold formulas alone. "
        + (f"Write {dense} for a tensor of its values" if is_mask else "Write it as a formula")
        + ", or use backend='reference'."
    )
