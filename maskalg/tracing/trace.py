"""A FlexAttention function as a formula."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from traceback import walk_tb
from typing import Any

import torch

from .. import errors
from ..formula import nodes
from ..formula.expression import Expression
from ..formula.nodes import Node
from . import messages
from .arrays import Array
from .bounds import Bounds
from .captures import Captures, name_of
from .meanings.operations import Formulas, refuse_changes_in_place
from .meanings.rules import lifted
from .memory import recalled, remember, signature_of
from .recorder import Key, NeedsValue, NoRandomness, Reads, Recorder

ARGUMENTS = (("b", nodes.BATCH), ("h", nodes.HEAD), ("q_idx", nodes.Q), ("kv_idx", nodes.K))


def trace(function: Callable[..., Any], *, scored: bool) -> Node:
    """The formula of `mask_mod(b, h, q_idx, kv_idx)`, or of a `score_mod` when `scored`.

    Captured numbers and tensors are its parameters. Numbers that Python itself needs (in a loop, an
    `if`, `math.sqrt`) are constants; if that is not enough, all numbers are.

    Raises:
        TypeError: `function` is not callable, or does something that no formula expresses.
        ValueError: it divides by a value that may be 0 or negative, reads a tensor outside of its
            entries, or compares float64 entries that float32 rounds.
    """
    if isinstance(function, Expression) or not callable(function):
        raise messages.not_a_function("score" if scored else "mask", function)
    signature = signature_of(function)
    known = recalled(signature, scored)
    if known is not None:
        return known.node()
    constants: frozenset[Key] | None = frozenset()
    while True:
        try:
            node, recorder, bounds = _attempt(function, constants, scored)
        except NeedsValue as needed:
            assert constants is not None and not needed.keys <= constants
            constants |= needed.keys
        except errors.MaskalgError:
            raise
        except Exception as reason:
            # The operation may refuse a symbol and take a number: try once more with numbers.
            if constants is None:
                raise _failed(function, reason, scored) from reason
            constants = None
        else:
            if signature is not None and constants == frozenset():
                remember(signature, scored, node, recorder, bounds)
            return node


def _failed(function: Callable[..., Any], reason: Exception, scored: bool) -> errors.MaskTypeError:
    """Our error for an error of another library. torch's do not name an `autograd.Function`."""
    misfit = other_arguments(function, scored=scored)
    if misfit is not None:
        return misfit
    if "__array_" in str(reason):
        return errors.MaskTypeError(
            f"the function gives an index to NumPy ({reason}): it reads a NumPy array there, or "
            "calls a NumPy function. Write torch.from_numpy(a)[q_idx] for `a[q_idx]`, "
            "torch.sin(q_idx) for `np.sin(q_idx)`."
        )
    frames = [frame for frame, _ in walk_tb(reason.__traceback__)]
    owners = [f.f_locals.get("cls") for f in frames if f.f_code.co_name == "apply"]
    # Since torch 2.15 `apply` is no frame of Python: its class is named where it is called.
    last = frames[-1]
    named = {**last.f_globals, **last.f_locals}
    owners += [named.get(name) for name in (*last.f_code.co_names, *last.f_code.co_freevars)]
    for owner in owners:
        if isinstance(owner, type) and issubclass(owner, torch.autograd.Function):
            return messages.untraceable(f"{owner.__name__}.apply(…)")
    return errors.MaskTypeError(
        f"{name_of(function)} could not be traced: {type(reason).__name__}: {reason}. Write it "
        f"with operators and torch functions of its arguments, {messages.OPAQUE}."
    )


def other_arguments(function: Callable[..., Any], *, scored: bool) -> errors.MaskTypeError | None:
    """The error for a function without the arguments of a `mask_mod`, or of a `score_mod`."""
    if _takes(function, 4 + scored):
        return None
    name, signature = name_of(function), _signature(function)
    if _takes(function, 5 - scored):
        return messages.other_function(name, scored)
    if signature is None:
        return None
    call = "score" if scored else "mask"
    return errors.MaskTypeError(
        f"ma.{call}: a {call}_mod takes ({messages.TAKES[call]}); {name} takes {signature}. Give "
        "it these arguments, also where it does not use them all."
    )


def _takes(function: Callable[..., Any], count: int) -> bool:
    """Whether the signature of a function allows a call with `count` arguments."""
    signature = _signature(function)
    try:
        return signature is not None and signature.bind(*range(count)) is not None
    except TypeError:
        return False


def _signature(function: Callable[..., Any]) -> inspect.Signature | None:
    try:
        return inspect.signature(function)
    except (TypeError, ValueError):
        return None


def _attempt(
    function: Callable[..., Any], constants: frozenset[Key] | None, scored: bool
) -> tuple[Node, Recorder, Bounds]:
    recorder = Recorder()
    captures = Captures(recorder, constants)
    given = (("score", nodes.SCORE), *ARGUMENTS) if scored else ARGUMENTS
    symbols = [recorder.index(name, node) for name, node in given]
    rebuilt = captures.rebuilt(function, name_of(function), ("function",))
    with Reads(recorder), NoRandomness():  # type: ignore[no-untyped-call]
        result = rebuilt(*symbols)
    if result is None:
        raise errors.MaskTypeError(f"{name_of(function)} returns None: a `return` is missing.")
    refuse_changes_in_place(recorder.graph)
    formulas = Formulas(recorder)
    value = _value(formulas, recorder, result)
    if value.shape:
        raise errors.MaskTypeError(
            f"{name_of(function)} returns a row of shape {list(value.shape)} for single indices, "
            "expected one number. Index every dimension of the tensors it reads."
        )
    return formulas.bounds.declared(value.node), recorder, formulas.bounds


def _value(formulas: Formulas, recorder: Recorder, result: Any) -> Array:
    if isinstance(result, torch.Tensor):
        if result.ndim == 0 and not result.requires_grad:
            return lifted(result.item())
        result = recorder.tensor("tensor", result)
    found = formulas.of(recorder.create_arg(result))
    return lifted(found)
