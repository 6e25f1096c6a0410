"""Formulas of functions that were traced, to be filled with the values of others like them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import torch

from ..formula import nodes
from ..formula.nodes import Node
from ..formula.parameters import Parameter, Scalar, Table
from .bounds import Bounds
from .recorder import Recorder
from .signature import Captured, Signature

_MOST: Final = 512
_TEMPLATES: Final[dict[object, Template]] = {}


@dataclass(frozen=True)
class Template:
    """A traced formula without its tensors.

    Attributes:
        node: the formula; its tables are empty.
        sources: for the `id` of each of its parameters, which captured value it stands for.
    """

    node: Node
    sources: dict[int, int]

    def filled(self, values: tuple[Captured, ...]) -> Node:
        """The formula of a function that captures `values`."""
        made: dict[int, Parameter] = {}

        def other(parameter: Parameter) -> Parameter:
            source = self.sources[id(parameter)]
            if source not in made:
                value = values[source]
                if isinstance(value, torch.Tensor):
                    made[source] = Table(parameter.name, value, parameter.low)
                else:
                    made[source] = Scalar(parameter.name, value, parameter.low)
            return made[source]

        return nodes.with_parameters(self.node, other)


def recalled(signature: Signature | None, scored: bool) -> Template | None:
    """The template remembered for functions with this signature."""
    return None if signature is None else _TEMPLATES.get((signature.key, scored))


def remember(
    signature: Signature, scored: bool, node: Node, recorder: Recorder, bounds: Bounds
) -> None:
    """Keep a formula for functions with this signature, unless it depends on more than that."""
    sources: dict[int, int] = {}
    places = {place: i for i, place in enumerate(signature.places)}
    for place, parameter in recorder.captured().items():
        if place not in places:
            return
        sources[id(bounds.declared_parameter(parameter))] = places[place]
    if bounds.looked or not all(map(recorder.read_whole, recorder.parameters)):
        return
    if len(_TEMPLATES) >= _MOST:
        _TEMPLATES.clear()
    _TEMPLATES[signature.key, scored] = _emptied(node, sources)


def _emptied(node: Node, sources: dict[int, int]) -> Template:
    """Without the tensors, which would be kept alive."""
    empty: dict[int, Parameter] = {}

    def other(parameter: Parameter) -> Parameter:
        if not isinstance(parameter, Table):
            return parameter
        if id(parameter) not in empty:
            tensor = parameter.tensor
            none = torch.empty([0] * tensor.ndim, dtype=tensor.dtype)
            empty[id(parameter)] = parameter.with_tensor(none)
        return empty[id(parameter)]

    plain = nodes.with_parameters(node, other)
    kept = {id(p): sources[id(old)] for old, p in zip(node.params, plain.params, strict=True)}
    return Template(plain, kept)
