"""One batch entry and head of a mask, as a mask of its own."""

from __future__ import annotations

from .. import errors, nodes
from ..algebra import Mask
from ..extents import dependence, resolve
from ..node import Node
from ..normalform import bound
from .picture import names_bare_head


def one_entry(
    mask: Mask, q_len: int, kv_len: int | None, batch: int, head: int
) -> tuple[Mask, tuple[str, ...]]:
    """The mask with its batch and head index put in, and which ones those are, in words.

    Raises:
        ValueError: lengths that bound tensors do not fit, or an entry that they do not hold.
    """
    form = bound(mask)
    heads = head + 1 if names_bare_head(mask) else None
    sizes = dependence(form.structure.mask, form, resolve(form, q_len, kv_len, None, heads))
    notes = []
    for name, index, count in (("batch", batch, sizes.batch), ("head", head, sizes.heads)):
        if name not in form.structure.mask.indices():
            continue
        if index >= count:
            raise errors.no_such_entry(name, index, count)
        of = f" of {count}" if name == "batch" or heads is None else ""
        notes.append(f"{'batch entry' if name == 'batch' else name} {index}{of}")
    if not notes:
        return mask, ()
    at = {"batch": nodes.const(batch), "head": nodes.const(head)}

    def replaced(node: Node) -> Node | None:
        return at.get(str(node.data)) if node.op == "index" else None

    node = nodes.substitute(mask.mask_node, replaced)
    return Mask(node, mask.bias_node, mask.label), tuple(notes)
