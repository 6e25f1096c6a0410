"""One batch entry and head of a mask, as a mask of its own."""

from __future__ import annotations

from .. import nodes
from ..algebra import Mask
from ..node import Node
from .choice import Choice


def one_entry(mask: Mask, choice: Choice) -> Mask:
    """The mask with its batch and head index put in; `choice` was checked."""
    at = {"batch": nodes.const(choice.batch), "head": nodes.const(choice.head)}
    if not mask.mask_node.indices() & set(at):
        return mask

    def replaced(node: Node) -> Node | None:
        return at.get(str(node.data)) if node.op == "index" else None

    return Mask(nodes.substitute(mask.mask_node, replaced), mask.bias_node, mask.label)
