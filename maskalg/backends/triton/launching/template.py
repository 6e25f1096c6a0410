"""A launch but for the tensors that are new at each call, and for the sizes of a call."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from typing import Any, Final, NamedTuple

import torch

from ...call import Call
from .descriptors import Descriptor
from .launch import Launch, Sizes, Variant, start, variant_of

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
        tables: the place of the expression's tables, None without them.
        numbers: the place of the first number.
        scalars: whether the expression's numbers follow the launch's own.
        sized: as of `Launch`.
        strided: likewise, which tensors they are.
        kind: of the sizes that the variant serves.
    """

    variant: Variant
    programs: tuple[int, int]
    arguments: list[Any]
    places: list[tuple[int, int]]
    described: list[Described]
    tables: int | None
    numbers: int
    scalars: bool
    sized: Callable[[Call, list[int]], Sizes]
    strided: list[int]
    kind: Hashable

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

    def sizes_for(self, call: Call, found: Sequence[Any]) -> Sizes | None:
        """The sizes of another call; None where the variant does not serve them."""
        sizes = self.sized(call, [stride for at in self.strided for stride in found[at].stride()])
        return sizes if sizes.kind() == self.kind else None

    def with_sizes(
        self, sizes: Sizes, tables: tuple[torch.Tensor, ...] | None, scalars: Sequence[int]
    ) -> Template:
        """The launch of these sizes, on these tables and numbers of an expression."""
        arguments = [*self.arguments[: self.numbers], *sizes.numbers]
        if self.scalars:
            arguments += scalars
        if self.tables is not None:
            arguments[self.tables] = tables
        described = [Described(at, which, {}, layout) for at, which, _, layout in self.described]
        return Template(
            self.variant, (sizes.programs, 1), arguments, self.places, described,
            *self[5:],
        )  # fmt: skip

    def bare(self) -> Template:
        """The same without a tensor, to be given other sizes."""
        return self.with_sizes(Sizes(0, (), ()), None, ())


def template_of(launch: Launch, found: Sequence[Any]) -> Template | None:
    """What launches again what was launched; None in the interpreter, and with other tensors.

    Args:
        found: what is found at each call: all tensors but the expression's tables, and tuples of
            others, or None.
    """
    variant = variant_of(launch)
    if variant is None:
        return None
    which = {id(one): i for i, one in enumerate(found) if one is not None}
    blocks = iter(variant.encoder.blocks if variant.encoder is not None else ())
    arguments: list[Any] = []
    places: list[tuple[int, int]] = []
    described: list[Described] = []
    at_tables = None
    for argument in launch.tensors:
        is_described = type(argument) is Descriptor
        place = which.get(id(argument.base if is_described else argument))
        if is_described and place is not None:
            layout = next(blocks)[0] if variant.encoder is not None else None
            # As many arguments as an encoded descriptor has.
            parts = variant.encoder.encode(argument, layout) if variant.encoder is not None else [0]
            described.append(Described(len(arguments), place, {}, layout))
            arguments += parts
        elif place is not None:
            places.append((len(arguments), place))
            arguments.append(None)
        elif type(argument) is tuple:
            at_tables = len(arguments)
            arguments.append(argument)
        elif argument is None:
            arguments.append(None)
        else:
            return None
    strided = [which.get(id(tensor)) for tensor in launch.strided]
    numbers = len(arguments)
    arguments += [*launch.sizes.numbers, *launch.scalars]
    return Template(
        variant, launch.programs, arguments, places, described, at_tables, numbers,
        bool(launch.scalars), launch.sized, [at for at in strided if at is not None],
        launch.sizes.kind(),
    )  # fmt: skip
