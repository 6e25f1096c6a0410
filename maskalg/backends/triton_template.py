"""A launch but for the tensors that are new at each call: which arguments they are."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, NamedTuple

import torch

from .triton_descriptors import Descriptor
from .triton_launch import Launch, Variant, start, variant_of

_MOST: Final = 64  # addresses of a tensor that is described


class Described(NamedTuple):
    """A descriptor among the arguments: its place, its tensor, and encoded ones by address."""

    at: int
    which: int
    known: dict[int, list[Any]]
    layout: Any


class Template(NamedTuple):
    """A launch of a variant on tensors that are found at each call.

    Attributes:
        variant: of the kernel.
        programs: along both axes.
        arguments: with anything where a tensor belongs.
        places: of tensors among the arguments, and which tensor it is.
        described: likewise of encoded descriptors.
    """

    variant: Variant
    programs: tuple[int, int]
    arguments: list[Any]
    places: list[tuple[int, int]]
    described: list[Described]

    def launch(self, found: Sequence[Any]) -> None:
        """Launch on these tensors."""
        arguments, encoder = self.arguments.copy(), self.variant.encoder
        for at, which in self.places:
            arguments[at] = found[which]
        for at, which, known, layout in self.described:
            tensor = found[which]
            if encoder is None:
                arguments[at] = Descriptor(tensor)
                continue
            address = tensor.data_ptr()
            parts = known.get(address)
            if parts is None:
                if len(known) >= _MOST:
                    known.clear()
                parts = known[address] = encoder.encode(Descriptor(tensor), layout)
            arguments[at : at + len(parts)] = parts
        start(self.variant, self.programs, arguments)


def template_of(
    launch: Launch, found: Sequence[Any], kept: Sequence[torch.Tensor]
) -> Template | None:
    """What launches again what was launched; None in the interpreter, and with other tensors.

    Args:
        found: what is found at each call, tensors and tuples of them, or None.
        kept: tensors that are the same at each call.
    """
    variant = variant_of(launch)
    if variant is None:
        return None
    which = {id(one): i for i, one in enumerate(found) if one is not None}
    same = {id(tensor) for tensor in kept}
    blocks = iter(variant.encoder.blocks if variant.encoder is not None else ())
    arguments: list[Any] = []
    places: list[tuple[int, int]] = []
    described: list[Described] = []
    for argument in launch.again():
        is_described = type(argument) is Descriptor
        tensor = argument.base if is_described else argument
        place = which.get(id(tensor))
        if is_described and place is not None:
            layout = next(blocks)[0] if variant.encoder is not None else None
            described.append(Described(len(arguments), place, {}, layout))
            # As many arguments as an encoded descriptor has.
            parts = variant.encoder.encode(argument, layout) if variant.encoder is not None else [0]
            arguments += parts
        elif place is not None:
            places.append((len(arguments), place))
            arguments.append(None)
        elif all(id(one) in same for one in _tensors(argument)) and not is_described:
            arguments.append(argument)
        else:
            return None
    return Template(variant, launch.programs, arguments, places, described)


def _tensors(argument: Any) -> list[torch.Tensor]:
    several = argument if isinstance(argument, tuple) else (argument,)
    return [one for one in several if isinstance(one, torch.Tensor)]
