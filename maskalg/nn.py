"""`Attention`: a score expression as a module, whose tensors are parameters and buffers."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final, Generic, NoReturn, TypeVar

import torch

from . import errors
from .attention import attention
from .formula.derived import Derived
from .formula.expression import Expression
from .formula.parameters import Constant, Table
from .formula.watched import transformed
from .values.algebra import Bias, Mask, Score, everything
from .values.weights import Weight, softmax

# Of a module: torch's, which torch.compile cannot list (torch 2.10), and those of `Attention`.
_ATTRIBUTES: Final = (
    *vars(torch.nn.Module()),
    *("_scale", "_nan_safe", "_backend", "_score", "_weight", "_constants"),
)


_ARGUMENTS: Final = ("query", "key", "value", "mask", "return_lse")


class Attention(torch.nn.Module):
    """Attention under a fixed score expression.

    Tensors of the expression become part of the module under their names in `score.parameters`: an
    `nn.Parameter` (learned slopes, a learned table) as a parameter, any other tensor as a buffer,
    which is saved unless it is an `nn.Buffer` with `persistent=False`. A name that modules use
    themselves, such as "forward", gets an underscore: `forward_`. Tables computed from other
    tensors of the expression are left out, and follow those. The tensors move with `.to()` and are
    saved by `state_dict()`; each call computes with the tensors that the module then holds. Numbers
    (windows, caps) belong to the expression, and so do tables computed from numbers, such as T5's
    buckets: buffers that are not saved.

    Args:
        score: a mask, a bias, or `mask + bias`; None keeps everything.
        scale: factor of q . k, by default `1 / sqrt(head_dim)`.
        weight: as in `maskalg.attention`, by default the softmax; its tensors become part of the
            module likewise.
        nan_safe: as in `maskalg.attention`.
        backend: as in `maskalg.attention`.

    Raises:
        TypeError: a score that is no expression, a weight that is none, or more arguments, such as
            those of `torch.nn.MultiheadAttention`.
        ValueError: a tensor computed from a parameter, which the module could not learn.

    Examples:
        >>> layer = ma.nn.Attention(causal & sliding(256) + alibi(torch.nn.Parameter(slopes)))
        >>> out = layer(q, k, v, document(ids))
        >>> list(layer.state_dict())
        ['slopes']
    """

    def __init__(
        self,
        score: Expression | None = None,
        *more: NoReturn,
        scale: float | None = None,
        weight: Weight | None = None,
        nan_safe: bool = False,
        backend: str | None = None,
        **named: NoReturn,
    ) -> None:
        super().__init__()
        if more or named or isinstance(score, int):
            given = () if score is None else (score,)
            raise errors.module_arguments((*given, *more), named)
        expression = everything if score is None else score
        if not isinstance(expression, Expression):
            raise errors.not_a_score(expression)
        weight = softmax if weight is None else weight  # a default that torch.compile can follow
        if not isinstance(weight, Weight):
            raise errors.unsupported_weight(weight)
        self._scale = scale
        self._nan_safe = nan_safe
        self._backend = backend
        tables = _tables(expression)
        tensors = {name: table.tensor for name, table in tables.items()}
        held = [(table.tensor, isinstance(table, Constant)) for table in tables.values()]
        held += [(tensor, False) for tensor in weight.tensors.values()]
        of_subclasses = () if torch.compiler.is_compiling() else vars(self)
        taken = {*dir(type(self)), *_ATTRIBUTES, *of_subclasses}
        places = _places((*tensors, *weight.tensors), taken)
        self._constants: dict[str, torch.Tensor] = {}
        for name, (tensor, constant) in zip(places, held, strict=True):
            if isinstance(tensor, torch.nn.Parameter):
                self.register_parameter(name, tensor)
                continue
            if not torch.compiler.is_compiling() and not tensor.is_leaf:
                raise errors.computed_from_parameter(name)
            self.register_buffer(name, tensor, getattr(tensor, "persistent", not constant))
            if constant:
                self._constants[name] = tensor.clone()
        self._score = _Held(expression, tensors, places[: len(tensors)])
        self._weight = _Held(weight, weight.tensors, places[len(tensors) :])

    def _apply(self, fn: Callable[[torch.Tensor], torch.Tensor], recurse: bool = True) -> Attention:
        """`to()`, `to_empty()` and others, overridden as `torch.nn.RNNBase` does: after some,
        buffers have lost their entries."""
        before = {name: getattr(self, name, None) for name in self._constants}
        change: Any = super()._apply
        change(fn, recurse)
        for name, table in self._constants.items():
            held = getattr(self, name, None)
            if held is None or held is before[name] or held.is_meta or table.is_meta:
                continue
            held.copy_(table)
        return self

    @property
    def score(self) -> Expression:
        """The expression with the tensors the module holds now."""
        return self._score.of(self)

    def forward(
        self,
        query: torch.Tensor,
        key: torch.Tensor,
        value: torch.Tensor,
        mask: Expression | None = None,
        *more: NoReturn,
        return_lse: bool = False,
        **named: NoReturn,
    ) -> torch.Tensor | tuple[torch.Tensor, torch.Tensor]:
        """`[batch, heads, q_len, value_dim]`, as `maskalg.attention` returns it.

        Args:
            query: `[batch, heads, q_len, head_dim]`.
            key: `[batch, kv_heads, kv_len, head_dim]`.
            value: `[batch, kv_heads, kv_len, value_dim]`.
            mask: a mask, a bias, or `mask + bias` for this call alone, such as `document(ids)`.
            return_lse: return `(out, lse)`, as `maskalg.attention` does.

        Raises:
            TypeError: more arguments, such as `attn_mask`; the message says what to write.
        """
        if more or named:
            raise errors.module_call_arguments(more, named, _ARGUMENTS)
        score: Expression = self.score
        if mask is not None:
            score = _joined(score, mask)
        return attention(
            query, key, value, score, return_lse=return_lse,
            scale=self._scale, weight=self._weight.of(self),
            nan_safe=self._nan_safe, backend=self._backend,
        )  # fmt: skip

    def extra_repr(self) -> str:
        """The expression as it was written, and the options that are not the default."""
        weight = None if self._weight.value is softmax else self._weight.value
        options = {
            "scale": self._scale,
            "weight": weight,
            "nan_safe": self._nan_safe or None,
            "backend": self._backend,
        }
        given = [f"{name}={value!r}" for name, value in options.items() if value is not None]
        return ", ".join([repr(self._score.value), *given])


def _tables(expression: Expression) -> dict[str, Table]:
    """The tables of an expression by name, without those derived from others of them: they follow
    whatever takes the place of these."""
    named = {name: found[0] for name, found in expression._named.items()}
    own = set(named.values())
    return {
        name: table
        for name, table in named.items()
        if isinstance(table, Table)
        and not (isinstance(table, Derived) and own.issuperset(table.sources))
    }


def _places(names: tuple[str, ...], taken: set[str]) -> tuple[str, ...]:
    """Attribute names for a module's tensors that hide none of its own attributes."""
    places: list[str] = []
    for name in names:
        place = name
        while place in taken or place in places or (place != name and place in names):
            place += "_"
        places.append(place)
    return tuple(places)


def _joined(score: Expression, mask: Expression) -> Expression:
    """The pairs both keep, with the biases of both."""
    assert isinstance(score, (Mask, Bias, Score))
    if isinstance(mask, Bias):
        return score + mask
    if not isinstance(mask, (Mask, Score)):
        raise errors.MaskTypeError(
            "ma.nn.Attention: mask must be a mask such as document(ids), a bias, or `mask + bias`, "
            f"got {type(mask).__name__}. {errors.entering(mask)}"
        )
    return mask + score if isinstance(score, Bias) else score & mask


Bound = TypeVar("Bound", Expression, Weight)


class _Held(Generic[Bound]):
    """An expression or a weight, whose tensors a module holds at attributes in `places`."""

    def __init__(
        self, value: Bound, tensors: Mapping[str, torch.Tensor], places: tuple[str, ...]
    ) -> None:
        self.value: Bound = value
        self.names, self.places = tuple(tensors), places
        self.sharing = value._sharing
        self.seen = _seen(tuple(tensors.values()))

    def of(self, module: torch.nn.Module) -> Bound:
        """The value with the tensors the module holds now."""
        if not self.names:
            return self.value
        tensors = _held_by(module, self.places)
        if torch.compiler.is_compiling():
            _compiled_for(self.sharing)
            return self.value._bound_to(dict(zip(self.names, tensors, strict=True)))
        seen = _seen(tensors)
        if not all(a is b and c == d for (a, c), (b, d) in zip(seen, self.seen, strict=True)):
            bound = self.value._bound_to(dict(zip(self.names, tensors, strict=True)))
            if transformed() or not all(tensor.is_leaf for tensor in tensors):
                return bound  # tensors of this call alone, which cannot be copied with the module
            # Kept, so that the old tensors are let go.
            self.value, self.seen = bound, seen
        return self.value


def _held_by(module: torch.nn.Module, places: tuple[str, ...]) -> tuple[torch.Tensor, ...]:
    """The tensors of a module at these attributes."""
    found: list[torch.Tensor] = []
    for place in places:
        tensor = getattr(module, place, None)
        if tensor is None:
            raise errors.module_without(place)
        found.append(tensor)
    return tuple(found)


def _compiled_for(text: str) -> None:
    """Have torch.compile compile anew for another text: it compares a text that is looked at."""
    len(text)


def _seen(tensors: tuple[torch.Tensor, ...]) -> tuple[tuple[torch.Tensor, torch.device], ...]:
    """Tensors and where they are: `.to()` moves a parameter without making a new one."""
    return tuple([(tensor, tensor.device) for tensor in tensors])
