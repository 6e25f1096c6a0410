"""A mask on its way through a model: built once for a forward pass, shared by its layers."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from typing import Any, Final, NamedTuple, TypeGuard

import torch
from torch.utils._pytree import tree_map

from ...errors import MaskAttributeError, MaskTypeError, MaskValueError
from ...formula.entries import readable
from ...values.algebra import Mask, Score
from ...values.biases import dense_bias
from ...values.elementary import maximum, minimum
from ...values.index import kv_idx, scalar
from ...values.masks import document
from ...values.masks.documents.document import packed_ids
from .. import messages

_ADDITIONS: Final = (torch.add, torch.Tensor.add, torch.Tensor.__add__, torch.Tensor.__radd__)
_CONCATENATIONS: Final = (torch.cat, torch.concat, torch.concatenate)


class Written(NamedTuple):
    """The dtype and the device of a mask that is written out; None is the device of its tensors."""

    dtype: torch.dtype = torch.float32
    device: torch.device | str | None = None


_PLAIN: Final = Written()


class _Lengths(NamedTuple):
    """Cumulative lengths as they were read: the tensor, and how often torch had written to it."""

    tensor: torch.Tensor
    writes: int

    @classmethod
    def of(cls, tensor: torch.Tensor) -> _Lengths:
        # torch counts no writes to inference tensors, and a compiled function cannot ask for them.
        counted = not torch.compiler.is_compiling() and not tensor.is_inference()
        return cls(tensor, tensor._version if counted else 0)

    def are(self, tensor: torch.Tensor) -> bool:
        """Whether this is still what the tensor holds."""
        return self.tensor is tensor and self.writes == _Lengths.of(tensor).writes


class ModelMask:
    """The `attention_mask` that layers receive: a formula with the lengths it was built for.

    It has the `ndim` and `shape` of a written-out mask, which models ask for. A bias of positions
    can be added, and the keys of several masks concatenated. A mask of one query is broadcast to
    more queries. Where a model computes with it otherwise, indexes it or calls its methods, it is
    written out as a tensor, which is only one row of keys; a mask of more queries says what to do.

    Attributes:
        score: the mask, in the coordinates of the call (queries and keys start at 0), or a mask
            with a bias.
        shape: `[batch, 1, q_len, kv_len]`.
        written: the dtype and the device of the tensor, where it is written out.
    """

    ndim = 4

    def __init__(
        self,
        score: Mask | Score,
        shape: tuple[int, int, int, int],
        written: Written = _PLAIN,
    ) -> None:
        self.score = score
        self.shape = shape
        self.written = written
        self._packed: tuple[_Lengths, _Lengths, Mask | Score] | None = None
        self._broadcast: ModelMask | None = None

    def __repr__(self) -> str:
        return f"ModelMask({self.score!r}, shape={list(self.shape)})"

    def to(self, *arguments: Any, **options: Any) -> Any:
        """The same mask with its tensors on another device, for models spread over several.

        A mask of one query in another dtype is a tensor.
        """
        for each in (*arguments, *options.values()):
            if isinstance(each, (torch.dtype, torch.Tensor)):
                used = each if isinstance(each, torch.dtype) else "tensor"
                return self._tensor(f"attention_mask.to({used})").to(*arguments, **options)
        device = options.get("device", *arguments[:1])
        return ModelMask(self.score.to(device), self.shape, self.written._replace(device=device))

    def contiguous(self) -> ModelMask:
        """The mask itself: `generate` with a static cache asks for it, up to transformers 5.23."""
        return self

    def for_queries(self, q_len: int) -> ModelMask:
        """The mask of one query for each of `q_len`; made once for all layers."""
        if self.shape[2] == q_len or self.shape[2] != 1:
            return self
        known = self._broadcast
        if known is None or known.shape[2] != q_len:
            batch, _, _, kv_len = self.shape
            shape = batch, 1, q_len, kv_len
            known = self._broadcast = ModelMask(self.score.at(q=0), shape, self.written)
        return known

    def within(self, queries: torch.Tensor, keys: torch.Tensor) -> Mask | Score:
        """The mask within documents of cumulative lengths; made once for all layers.

        Made anew where torch counted a write to them, which it does not in compiled functions and
        for inference tensors: pass a new tensor, or a new mask, there.
        """
        known = self._packed
        if known is None or not (known[0].are(queries) and known[1].are(keys)):
            batch, _, q_len, kv_len = self.shape
            documents = within_documents(batch, (queries, q_len), (keys, kv_len))
            known = _Lengths.of(queries), _Lengths.of(keys), documents & self.score
            self._packed = known
        return known[2]

    def _tensor(self, used: str) -> torch.Tensor:
        """The mask of one query as eager attention adds it; an error for more of them.

        A Boolean one is that of SDPA, True where kept.

        Args:
            used: what the model computes with it.
        """
        batch, _, q_len, kv_len = self.shape
        if q_len > 1:
            raise messages.mask_is_no_tensor(used)
        dtype, device = self.written
        dense = self.score.to_dense(q_len, kv_len, batch=batch).expand(batch, -1, -1, -1)
        if dtype == torch.bool:
            if dense.dtype != dtype:
                raise messages.biased_mask_of_flags(self)
            return dense.to(device)
        lowest = torch.finfo(dtype).min
        if dense.dtype == torch.bool:
            added = torch.zeros_like(dense, dtype=dtype).masked_fill(~dense, lowest)
        else:
            added = dense.to(dtype).clamp(min=lowest)
        return added.to(device)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):  # of protocols, such as copying
            raise AttributeError(name)
        try:
            return getattr(self._tensor(f"attention_mask.{name}"), name)
        except MaskTypeError as error:
            raise MaskAttributeError(str(error)) from None

    def __getitem__(self, places: Any) -> torch.Tensor:
        return self._tensor("attention_mask[…]")[places]

    def __add__(self, other: Any) -> Any:
        if not _is_bias(other, self.shape):
            return self._tensor("attention_mask + …") + other
        added = self.score + dense_bias(other.contiguous())
        return ModelMask(added, self.shape, self.written)

    __radd__ = __add__
    __hash__ = object.__hash__

    @classmethod
    def __torch_function__(
        cls, function: Any, types: object, given: tuple[Any, ...] = (), options: Any = None
    ) -> Any:
        if function in _ADDITIONS and len(given) == 2 and not options:
            mask, other = given if isinstance(given[0], ModelMask) else reversed(given)
            return cls.__add__(mask, other)
        if function in _CONCATENATIONS:
            joined = _side_by_side(*given, **(options or {}))
            if joined is not None:
                return joined
        used = f"torch.{getattr(function, '__name__', function)}(…, attention_mask, …)"

        def written_out(value: object) -> object:
            return value._tensor(used) if isinstance(value, ModelMask) else value

        given, options = tree_map(written_out, (given, options or {}))
        return function(*given, **options)


def _operator(name: str, shown: str) -> Callable[..., Any]:
    """The operator of a tensor, for a mask of one query; foreign types are left to Python."""

    def operation(self: ModelMask, *others: object) -> Any:
        if not all(isinstance(other, (int, float, torch.Tensor)) for other in others):
            return NotImplemented
        return getattr(self._tensor(shown), name)(*others)

    return operation


_BOTH_SIDES: Final = {"sub": "-", "mul": "*", "truediv": "/", "floordiv": "//", "mod": "%"} | {
    "pow": "**", "and": "&", "or": "|", "xor": "^", "matmul": "@",
}  # fmt: skip
_COMPARED: Final = {"eq": "==", "ne": "!=", "lt": "<", "le": "<=", "gt": ">", "ge": ">="}
_SHOWN: Final = {
    **{name: f"attention_mask {sign} …" for name, sign in (_BOTH_SIDES | _COMPARED).items()},
    **{f"r{name}": f"… {sign} attention_mask" for name, sign in _BOTH_SIDES.items()},
    **{"neg": "-attention_mask", "invert": "~attention_mask", "abs": "abs(attention_mask)"},
}
for _name, _shown in _SHOWN.items():
    setattr(ModelMask, f"__{_name}__", _operator(f"__{_name}__", _shown))


def _is_bias(tensor: object, shape: tuple[int, int, int, int]) -> TypeGuard[torch.Tensor]:
    """Whether a tensor `[(batch or 1, heads,) q_len, kv_len]` can be added to a mask's scores."""
    if not isinstance(tensor, torch.Tensor) or not tensor.is_floating_point():
        return False
    if tensor.ndim not in (2, 3, 4):
        return False
    batch = zip(tensor.shape[:-3], shape[:1], strict=False)
    lengths = zip(tensor.shape[-2:], shape[-2:], strict=True)
    return all(size in (1, whole) for size, whole in (*batch, *lengths))


def _side_by_side(tensors: Sequence[object], dim: int = 0, **others: object) -> ModelMask | None:
    """The keys of each mask behind those of the one before; None where a tensor is needed."""
    every = [each for each in tensors if isinstance(each, ModelMask)]
    parts = [(each.score, each.shape[3]) for each in every if isinstance(each.score, Mask)]
    if others or dim not in (-1, 3) or len(parts) < len(tensors):
        return None
    first = every[0]
    if any(each.shape[:3] != first.shape[:3] for each in every):
        return None
    (joined, keys), *rest = [part for part in parts if part[1]] or parts[:1]
    for mask, count in rest:
        # No mask is read outside of its keys, where its tensors end.
        before = scalar(keys, "keys_before", low=1)
        kept = joined.at(kv=minimum(kv_idx, before - 1)) & (kv_idx < before)
        joined = kept | (mask.at(kv=maximum(kv_idx - before, 0)) & (kv_idx >= before))
        keys += count
    return ModelMask(joined, (*first.shape[:3], keys), first.written)


def model_mask(score: Mask | Score, batch: int, q_len: int, kv_len: int | None = None) -> ModelMask:
    """A mask of one's own as `attention_mask` of a model: `model(ids, attention_mask=...)`.

    It takes the place of all that the model would compose. A model whose layers differ takes a
    dictionary from `config.layer_types` to masks.

    Args:
        score: a mask, or `mask + bias`.
        batch: rows of the batch.
        q_len: tokens of a row.
        kv_len: keys, those of a cache included; by default `q_len`.
    """
    return ModelMask(score, (batch, 1, q_len, q_len if kv_len is None else kv_len))


def note_leaking_documents(mask: ModelMask, positions: object) -> None:
    """Warn where positions start again within a row and the mask keeps no documents apart.

    Transformers looks for packed documents only without a cache and without padding. Positions on
    a GPU are not looked at.
    """
    q_len = mask.shape[2]
    if not isinstance(positions, torch.Tensor) or not readable(positions) or q_len < 2:
        return
    # A tensor over positions says where the documents or the padding of a row are.
    told = (mask.score if isinstance(mask.score, Mask) else mask.score.mask).parameters.values()
    if any(isinstance(value, torch.Tensor) and value.ndim for value in told):
        return
    if positions.ndim != 2 or positions.shape[1] != q_len:
        return
    if bool((positions.diff(dim=1) < 1).any()):
        warnings.warn(
            "position_ids start again within a row, as in packed documents, and the mask lets "
            "documents attend to each other: transformers looks for documents only without a "
            "cache, and in models that pass positions to their mask. Pass use_cache=False, or "
            "cu_seq_lens_q and cu_seq_lens_k.",
            stacklevel=2,
        )


def within_documents(
    batch: int, queries: tuple[torch.Tensor, int], keys: tuple[torch.Tensor, int]
) -> Mask:
    """Queries see keys of their own document; nothing is read from the device.

    Args:
        batch: rows of the batch; one, because the documents are packed into it.
        queries: cumulative lengths `[documents + 1]`, and how many queries there are.
        keys: the same for keys.
    """
    if batch != 1:
        raise MaskValueError(
            f"cu_seq_lens_q describes documents packed into one row, got a batch of {batch}. Pass "
            "the documents as one row, or position_ids that start again at 0 without cu_seq_lens."
        )
    ids = packed_ids(*queries)
    if keys[0] is queries[0] and keys[1] == queries[1]:
        return document(ids, order="ascending")
    return document(ids, packed_ids(*keys), order="ascending")
