"""Of lengths, shapes, dtypes and devices given to a call, and of what no backend serves."""

from __future__ import annotations

from .kinds import BackendError, MaskTypeError, MaskValueError, RecompilationWarning
from .strangers import entering, instead


def length(name: str, value: object) -> MaskValueError:
    return MaskValueError(f"{name} must be an integer >= 0, got {value!r}.")


def block_size(value: object) -> MaskValueError:
    return MaskValueError(
        f"block must be an integer >= 1 or a pair (block_q, block_kv) of them, got {value!r}."
    )


def needs_count(index: str) -> MaskValueError:
    given = "heads" if index == "head" else index
    return MaskValueError(
        f"the expression depends on `{index}`, and no table tells how many: pass {given}=…."
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
    return MaskTypeError(
        f"attention: query, key and value must share one {what}, got {found}. Write "
        f"key.to(query.{what}), value.to(query.{what})."
    )


def unsupported_dtype(dtype: object) -> MaskTypeError:
    return MaskTypeError(
        f"attention: float16, bfloat16, float32, float8_e4m3fn (and float64 off the GPU kernels) "
        f"are served, got {dtype}. Convert query, key and value to one of them: query.float()."
    )


def wrong_device(name: str, found: object, wanted: object) -> MaskValueError:
    return MaskValueError(
        f"{name} lives on {found}, query on {wanted}. Move the expression once: "
        f"`mask = mask.to({str(wanted)!r})`."
    )


def not_a_score(what: object) -> MaskTypeError:
    return MaskTypeError(
        f"attention: score must be a mask, a bias or `mask + bias`, got {type(what).__name__}. "
        f"{entering(what)}"
    )


_LEARNED = (
    "Multiply the query by a scale that is a tensor: ma.attention(query * scale, key, value, "
    "score, scale=1.0)."
)


def module_mask(found: object) -> MaskTypeError:
    return MaskTypeError(
        "ma.nn.Attention: mask must be a mask such as document(ids), a bias, or `mask + bias`, got "
        f"{type(found).__name__}. {entering(found)}"
    )


def scale_type(found: object) -> MaskTypeError:
    return MaskTypeError(
        f"attention: scale must be a number, got {found!r} of type {type(found).__name__}. Write "
        "a float such as 0.125, or leave scale out for 1 / sqrt(head_dim)."
    )


def scale_tensor(shape: tuple[int, ...], device: object, learned: bool) -> MaskTypeError:
    lost = " that requires a gradient, which it would not get" if learned else ""
    return MaskTypeError(
        f"attention: scale must be a number, got a tensor of shape {list(shape)} on {device}{lost}."
        f" {_LEARNED}"
    )


def scale_not_finite(found: float) -> MaskValueError:
    return MaskValueError(
        f"attention: scale must be finite, got {found}. Leave it out for 1 / sqrt(head_dim)."
    )


def unknown_backend(name: object, known: list[str]) -> MaskValueError:
    return MaskValueError(f"backend={name!r} is not known; choose one of {', '.join(known)}.")


def no_values() -> BackendError:
    return BackendError(
        "attention: tensors on device 'meta' have shapes and no values to compute with. Make "
        "query, key and value on 'cpu' or 'cuda', or use FakeTensorMode for shapes."
    )


def no_head_dim(query: object) -> MaskValueError:
    return MaskValueError(
        f"attention: the head dimension of query and key is 0, got query {list(query)}. "  # type: ignore[call-overload]
        "Write at least one entry along the last dimension."
    )


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


def bench_needs_gpu() -> BackendError:
    return BackendError(
        "no CUDA device was found (torch.cuda.is_available() is False). On a CPU, "
        "`maskalg demo` compares with scaled_dot_product_attention."
    )


def no_such_case(wanted: list[str], known: list[str]) -> MaskValueError:
    return MaskValueError(
        f"--cases {','.join(wanted)} names no case. The cases: {', '.join(known)}."
    )


def not_positive(call: str, argument: str, value: float) -> MaskValueError:
    return MaskValueError(f"{call}: {argument} must be a positive finite number, got {value}.")


def not_a_tensor(name: str, what: object) -> MaskTypeError:
    return MaskTypeError(f"attention: {name} must be a torch.Tensor, got {type(what).__name__}.")


def reserved_name(name: object) -> MaskValueError:
    return MaskValueError(
        f"{name!r} cannot name a parameter: take a Python identifier other than q, k, q0, q1, "
        "batch and head."
    )


def kernel_dtype(dtype: object) -> BackendError:
    return BackendError(
        f"the fused kernel serves float16, bfloat16, float32 and float8_e4m3fn, got {dtype}. "
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
        f"{type(found).__name__}. {instead(found)}".rstrip()
    )


def no_double_backward() -> BackendError:
    return BackendError(
        "the gradient of a gradient is not built (backward was called with create_graph=True). "
        "backend='reference' differentiates twice."
    )


def no_forward_mode() -> BackendError:
    return BackendError(
        "forward-mode differentiation (torch.func.jvp, jacfwd, hessian; torch.autograd.forward_ad) "
        "is not built. backend='reference' differentiates so; torch.func.vjp and jacrev run here."
    )


def recompiled(times: int, formula: str) -> RecompilationWarning:
    shown = formula if len(formula) <= 300 else f"{formula[:300]}…"
    return RecompilationWarning(
        f"kernels were compiled for {times} values of the constants in `{shown}`. Write a number "
        "that changes as ma.scalar(value), or capture it as a variable of a traced function, and "
        "no kernel is made for another value."
    )


def nested_tensor(name: str) -> MaskTypeError:
    return MaskTypeError(
        f"attention: {name} is a nested tensor, which is not built. Pack the sequences into one of "
        "shape [1, heads, total, head_dim] and add document.from_lengths(lengths) to the mask."
    )


def distributed_tensor(name: str) -> MaskTypeError:
    return MaskTypeError(
        f"attention: {name} is a DTensor; a call takes the tensors of its own process. Wrap the "
        "call in torch.distributed.tensor.experimental.local_map, with the heads or the batch as "
        f"what is divided, or pass {name}.to_local()."
    )


def no_dropout(found: object) -> BackendError:
    return BackendError(
        f"attention: dropout_p={found!r}, and dropout of attention weights is not built. "
        "Leave it out; torch.nn.functional.dropout serves the output."
    )


def not_a_key(key: object) -> MaskValueError:
    return MaskValueError(
        f"{key!r} is not the key of a structure. The operators of maskalg are called by "
        "ma.attention, which writes the key."
    )


def operands_differ(key: str, wanted: tuple[int, ...], found: tuple[int, ...]) -> MaskValueError:
    return MaskValueError(
        f"the structure {key!r} takes {wanted[0]} tensors, {wanted[1]} integers and {wanted[2]} "
        f"real numbers, got {found[0]}, {found[1]} and {found[2]}. The operators of maskalg are "
        "called by ma.attention, which passes them."
    )


def unknown_triton(version: str, serves: bool, why: str) -> str:
    """Told once, where a release of Triton is met that the Gluon kernels were not tested with."""
    chosen = "They are used" if serves else "The plain kernels are used, which are slower"
    return (
        f"maskalg's Gluon kernels were not tested with Triton {version}, so they were tried on "
        f"this GPU: {why}. {chosen}; MASKALG_GLUON=0 or 1 decides otherwise."
    )


def tile_not_compiled(tile: str, why: str) -> str:
    """Told once for a plan, as the tile that serves instead may be slower."""
    return (
        f"Triton could not compile a kernel with {tile} ({why}); what it printed is of no concern. "
        "The next tile serves, which may be slower: see maskalg.explain."
    )


def no_tile_serves(why: str) -> BackendError:
    return BackendError(
        f"no kernel for this call compiles and fits this GPU: {why}. Write "
        'backend="reference" for a dense computation, and please report `maskalg.render(score)`, '
        "the shapes and `maskalg doctor`."
    )
