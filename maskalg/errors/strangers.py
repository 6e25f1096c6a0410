"""Messages about values in the place of a mask, a bias or a score, and about names of others.

Other attention functions and modules name their arguments differently: the message gives our name.
A method called with arguments it does not have lists those it takes.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from difflib import get_close_matches
from functools import wraps
from typing import Any, Final, TypeVar, cast

from .kinds import MaskAttributeError, MaskTypeError, MaskValueError

FROM_BLOCK_MASK = (
    "ma.mask(block_mask), or where create_block_mask made it as ma.mask(block_mask.mask_mod), "
    "which is a formula"
)


def instead(what: object) -> str:
    """A correction for a value that is no expression, as sentences; empty where none is known.

    Known are None, text, arguments of a traced function, a BlockMask of FlexAttention, tables that
    were not read, functions of this package that were not called, and other functions.
    """
    if what is None:
        return "For a mask that keeps every pair write `ma.everything`."
    if isinstance(what, str):
        return "Write the expression itself, without quotation marks."
    if type(what).__name__ == "Symbol":
        return (
            "A function for ma.mask or ma.score computes with functions of torch, such as "
            "torch.where and torch.log, and reads tensors as they are, `tensor[q_idx]`; compose "
            "expressions outside of it: `causal & ma.mask(function)`."
        )
    if type(what).__name__ == "BlockMask":
        return f"A BlockMask enters as {FROM_BLOCK_MASK}."
    if type(what).__name__ == "TableExpression":
        return "A table is read at indices first: write ma.table(tensor)[kv_idx]."
    if not callable(what) or type(what).__name__ in ("Mask", "Bias", "Score"):
        return ""
    name = own_name(what)
    if name:
        return f"{name} was not called: write {name}({_required(what)})."
    return "A function of indices enters as ma.mask(function), one of scores as ma.score(function)."


_TENSORS = (
    "A Boolean tensor enters as ma.dense(tensor), numbers that are added as ma.dense_bias(tensor), "
    "0 and -inf as ma.dense(tensor == 0)."
)


def entering(what: object) -> str:
    """A correction for a value given for a mask, a bias or a score, as sentences."""
    if isinstance(what, bool):
        return (
            "Write ma.everything for a mask that keeps every pair, ma.nothing for none. A "
            "comparison `mask == x` is True or False: a Boolean table is a mask as it is."
        )
    if type(what).__name__ == "Index":
        return "A comparison of it is a mask, `x >= 0`; ma.bias(x) adds it to the scores."
    if isinstance(what, (list, tuple)):
        return f"Masks are joined by `&` or `|`, biases are added by `+`. {_TENSORS}"
    return instead(what) or _TENSORS


def own_name(what: object) -> str:
    """The name of a public function of this package, or of a value such as `document`."""
    function = inspect.isfunction(what)
    home = str(getattr(what if function else type(what), "__module__", ""))
    if not home.startswith("maskalg."):
        return ""
    return getattr(what, "__name__", "") if function else type(what).__name__.lower()


def _required(what: object) -> str:
    parameters = inspect.signature(what).parameters.values()  # type: ignore[arg-type]
    return ", ".join(p.name for p in parameters if p.default is p.empty) or "…"


def assigned(value: object, name: str, parameter: bool) -> MaskAttributeError:
    write = f"write `other = this.bind({name}=…)`" if parameter else "compose another"
    return MaskAttributeError(f"`{value!r}` never changes: `.{name} = …` is refused; {write}.")


def deleted(value: object, name: str) -> MaskAttributeError:
    return MaskAttributeError(f"`{value!r}` never changes: `del ….{name}` is refused.")


def used_as_bool(what: object) -> MaskTypeError:
    return MaskTypeError(
        f"{what!r} has no truth value: it was used with `and`, `or`, `not`, `if` or a chained "
        "comparison. Write `a & b`, `a | b`, `~a`, and `(x <= q_idx) & (q_idx < y)`; `mask is not "
        "None` asks whether there is one."
    )


_CAUSAL: Final = "write attention(query, key, value, causal)"
_LAST: Final = (
    "; FlashAttention aligns the last query with the last key: add .shift(q=kv_len - q_len) where "
    "the lengths differ"
)
_TENSOR: Final = (
    "the fourth argument is ma.dense(tensor) for Booleans, ma.dense_bias(tensor) for numbers that "
    "are added"
)
_DOCUMENTS: Final = (
    "write ma.document.from_cu_seqlens(cu_seqlens) in the mask, with the sequences packed into one "
    "of shape [1, heads, total, head_dim]; where cu_seqlens_k differ, "
    "ma.per_document.from_cu_seqlens(causal, cu_seqlens_q, cu_seqlens_k)"
)
_SHAPES: Final = "leave it out, the shapes say it"
_LSE: Final = "write return_lse=True"
_SCALE: Final = "write scale=…"

# Arguments of PyTorch, FlexAttention, FlashAttention, xformers and Hugging Face transformers.
_WRITE: Final = {
    "is_causal": _CAUSAL,
    "causal": _CAUSAL + _LAST,
    "attn_mask": _TENSOR,
    "attn_bias": _TENSOR,
    "attention_mask": "write `causal & ma.padding.from_mask(attention_mask)` for [batch, kv_len]",
    "mask": "the mask is the fourth argument: attention(query, key, value, mask)",
    "bias": "the bias is the fourth argument: attention(query, key, value, mask + bias)",
    "enable_gqa": "leave it out, grouped heads are seen from the shapes",
    "score_mod": "write attention(query, key, value, ma.score(score_mod))",
    "mask_mod": "write attention(query, key, value, ma.mask(mask_mod))",
    "block_mask": f"the mask is the fourth argument, {FROM_BLOCK_MASK}",
    "kernel_options": "leave it out, tiles are chosen by the device",
    "key_padding_mask": "write ma.padding.from_mask(~key_padding_mask)",
    "seqused_k": "write ma.padding(lengths), the number of keys of each batch entry",
    "cu_seqlens_q": _DOCUMENTS,
    "cu_seqlens_k": _DOCUMENTS,
    "max_seqlen_q": _SHAPES,
    "max_seqlen_k": _SHAPES,
    "window_size": "write ma.window(left, right) in the mask, None where -1 stood" + _LAST,
    "sliding_window": "write `causal & ma.sliding(window)`",
    "alibi_slopes": "write `mask + ma.alibi(slopes)`",
    "softcap": "write `mask + ma.softcap(cap)`",
    "softmax_scale": _SCALE,
    "scaling": _SCALE,
    "return_attn_probs": _LSE,
    "return_softmax_lse": _LSE,
    "return_aux": _LSE,
    "s_aux": "write weight=ma.softmax_with_sink(sinks)",
    "sinks": "write weight=ma.softmax_with_sink(sinks)",
    "q": "the first argument is called query",
    "k": "the second argument is called key",
    "v": "the third argument is called value",
    "deterministic": "leave it out",
}


# Functions of FlexAttention and other modules, and what stands for them here.
_CALLED_HERE: Final = {
    "flex_attention": "ma.attention(query, key, value, mask + bias)",
    "scaled_dot_product_attention": "ma.attention(query, key, value, mask + bias)",
    "create_block_mask": "nothing: ma.attention takes ma.mask(mask_mod) as it is",
    "create_mask": "ma.mask(mask_mod).to_dense(q_len, kv_len)",
    "and_masks": "`f & g`",
    "or_masks": "`f | g`",
    "noop_mask": "ma.everything",
    "causal_mask": "ma.causal",
    "sliding_window": "`ma.causal & ma.sliding(window)`",
    "prefix_lm": "`ma.causal | ma.prefix(length)`",
    "document_mask": "ma.document(ids)",
    "from_block_mask": "ma.mask(block_mask)",
    "abs": "abs(x), Python's own",
    **dict.fromkeys(("clamp", "clip"), "ma.minimum(ma.maximum(x, low), high)"),
    "where": "ma.where(condition, x, y)",
}


def near(name: str, known: Iterable[str]) -> str:
    """The end of a message about an unknown name: what it may have meant."""
    by_lower = {known_name.lower(): known_name for known_name in known}
    found = [by_lower[match] for match in get_close_matches(name.lower(), list(by_lower), 2, 0.7)]
    return f" Did you mean {' or '.join(found)}?" if found else ""


def not_in_package(name: str, public: Iterable[str]) -> AttributeError:
    """The package has nothing of this name; its `public` names may be near."""
    says = f" Write {_CALLED_HERE[name]}." if name in _CALLED_HERE else near(name, public)
    return AttributeError(f"module 'maskalg' has no attribute {name!r}.{says}", name=name)


def no_tensor(function: str, kind: str, options: Mapping[str, object] | None) -> MaskTypeError:
    """A function of torch was called with an expression, "Mask", "Bias", "Score" or "Index"."""
    given = "".join(f", {name}=…" for name in options or {})
    called = "tensor[…]" if function == "__getitem__" else f"torch's {function}(…{given})"
    says = _written_here(function, kind)
    return MaskTypeError(f"{called} got {_kind(kind)}, which is a formula and no tensor. {says}")


def no_array(
    function: str, given: Sequence[object], options: Mapping[str, object], kind: str
) -> MaskTypeError:
    """A function of NumPy was called with an expression."""
    texts = [_text(one) for one in given]
    texts += [f"{name}={_text(value)}" for name, value in options.items()]
    return MaskTypeError(
        f"np.{function}({', '.join(texts)}) got {_kind(kind)}, which is a formula and no array. "
        f"{_written_here(function, kind)}"
    )


def _text(value: object) -> str:
    """An argument as it was written, an array by its type."""
    if isinstance(value, (list, tuple)):
        return f"[{', '.join([_text(one) for one in value])}]"
    return type(value).__name__ if hasattr(value, "shape") else repr(value)


def _written_here(function: str, kind: str) -> str:
    """What to write for a function of an expression, as a sentence."""
    if function in _CALLED_HERE:
        return f"Write {_CALLED_HERE[function]}."
    if kind == "Index" and function in ("__getitem__", "asarray"):
        return "Write ma.table(tensor)[index], with an index for each dimension."
    return _WRITTEN_HERE[kind == "Index"]


_WRITTEN_HERE: Final = {
    True: (
        "Write it with operators and the functions of maskalg, such as ma.log and ma.where; a "
        "function of indices, ma.mask(f) or ma.score(f), may call more functions of torch."
    ),
    False: "Compose it with operators, and write .to_dense(q_len, kv_len) for a tensor of it.",
}
"""What to write for a function of an index expression, and of others."""


def _kind(kind: str) -> str:
    return "an index expression" if kind == "Index" else f"a {kind}"


def other_arguments(
    more: tuple[object, ...],
    named: Mapping[str, object],
    known: tuple[str, ...],
    function: str = "attention",
) -> MaskTypeError:
    """The error for `more` than four arguments, or `named` ones that the function does not have."""
    if any(type(value).__name__ == "BlockMask" for value in more):
        return MaskTypeError(
            f"{function} takes one argument for FlexAttention's score_mod and block_mask: write "
            "attention(query, key, value, ma.mask(mask_mod) + ma.score(score_mod)), without the "
            f"one that is None. A BlockMask enters as {FROM_BLOCK_MASK}."
        )
    if more:
        return MaskTypeError(
            f"{function} takes query, key, value and the score by position, and "
            f"{len(more)} more were given. After attn_mask, scaled_dot_product_attention takes "
            f"dropout_p and is_causal: instead of is_causal=True, {_CAUSAL}. Name what is left, as "
            "in scale=0.125."
        )
    says = [_other_argument(name, value, known) for name, value in named.items()]
    return MaskTypeError(f"{function} has no argument {'; '.join(says)}.")


def _other_argument(name: str, value: object, known: tuple[str, ...]) -> str:
    if name not in _WRITE:
        return f"{name}: it takes {', '.join(known)}"
    if value is None or value is False:
        return f"{name}={value}: leave it out"
    return f"{name}={value}: {_WRITE[name]}" if value is True else f"{name}: {_WRITE[name]}"


def module_arguments(given: tuple[object, ...], named: Mapping[str, object]) -> MaskTypeError:
    """`ma.nn.Attention` made like `torch.nn.MultiheadAttention`."""
    found = [*map(repr, given), *(f"{name}={value!r}" for name, value in named.items())]
    return MaskTypeError(
        f"ma.nn.Attention({', '.join(found)}): it takes a score, such as causal & sliding(256), "
        "then scale, weight and backend by name. It has no projections, and learns the sizes from "
        "the query, key and value it is called with, [batch, heads, length, head_dim]: project in "
        "torch.nn.Linear of your own, with .unflatten(-1, (heads, head_dim)).transpose(1, 2)."
    )


_OF_MODULE: Final = ("scale", "weight", "nan_safe", "backend")


def module_call_arguments(
    more: tuple[object, ...], named: Mapping[str, object], known: tuple[str, ...]
) -> MaskTypeError:
    """A call of `ma.nn.Attention` with arguments that the module takes, or other functions."""
    if more:
        return MaskTypeError(
            f"ma.nn.Attention(…) is called with query, key, value and a mask by position, and "
            f"{len(more)} more were given. Write layer(query, key, value, causal) for "
            "is_causal=True; scale, weight, nan_safe and backend belong to the module: "
            "ma.nn.Attention(score, scale=…)."
        )
    says = [
        f"{name}: write ma.nn.Attention(score, {name}=…)"
        if name in _OF_MODULE
        else _other_argument(name, value, known).replace("attention(query", "layer(query")
        for name, value in named.items()
    ]
    return MaskTypeError(f"A call of ma.nn.Attention(…) has no argument {'; '.join(says)}.")


def module_without(name: str) -> MaskTypeError:
    """`ma.nn.Attention` whose tensor was deleted or set to None."""
    return MaskTypeError(
        f"ma.nn.Attention: the score reads {name}, but the module's attribute {name} is None or "
        f"was deleted. Assign a tensor to it, or make the module anew from a score without it."
    )


def computed_from_parameter(name: str) -> MaskValueError:
    """`ma.nn.Attention` of a tensor that is computed from a parameter, once."""
    return MaskValueError(
        f"ma.nn.Attention: {name} is computed from a tensor that requires a gradient, so no "
        f"optimizer would reach it. Pass the nn.Parameter itself; or compute {name} in each call, "
        "in a bias passed to the module, `layer(q, k, v, bias)`, or to ma.attention."
    )


_Method = TypeVar("_Method", bound=Callable[..., Any])

_COUNTS: Final = frozenset(("batch", "heads"))
_CHOICES: Final = frozenset(("entry", "head"))


def told(method: _Method) -> _Method:
    """`method`, which raises `MaskTypeError` where a call does not fit its signature."""

    @wraps(method)
    def call(*args: Any, **named: Any) -> Any:
        try:
            return method(*args, **named)
        except TypeError as problem:
            inner = problem.__traceback__ and problem.__traceback__.tb_next
            if inner is not None:  # raised within the method
                raise
            raise _misfit(method, problem, named) from None
        except RecursionError:
            raise nested_too_deeply(method.__name__) from None

    return cast(_Method, call)


def nested_too_deeply(call: str) -> MaskValueError:
    return MaskValueError(
        f"{call}: operations of the formula lie in each other too deeply for Python's recursion "
        f"limit, {sys.getrecursionlimit()}. Hold what differs from case to case in a table, as in "
        "`table(kept)[kv_idx]`, or raise the limit by sys.setrecursionlimit."
    )


def _misfit(
    method: Callable[..., Any], problem: TypeError, named: dict[str, object]
) -> MaskTypeError:
    parameters = [p for p in inspect.signature(method).parameters.values() if p.name != "self"]
    known = [p.name for p in parameters]
    unknown = [name for name in named if name not in known]
    hint = "".join(near(name, known) for name in unknown)
    if _COUNTS & set(unknown) and set(known) >= _CHOICES:
        hint = (
            " `batch` and `heads` are counts in every call; entry=… and head=… choose the batch "
            "entry and the head that are shown."
        )
    elif _CHOICES & set(unknown) and set(known) >= _COUNTS:
        hint = (
            " batch=… and heads=… say how many there are, and the result has all of them: choose "
            "from it, as in blocks(…).labels[entry, head]."
        )
    listed = ", ".join(p.name if p.default is p.empty else f"{p.name}=…" for p in parameters)
    said = str(problem).split(".", 1)[-1]
    return MaskTypeError(f"{said}. It takes {listed}.{hint}")
