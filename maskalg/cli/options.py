"""Arguments that several commands have, checked as they are read, and the console they print on."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final, cast

import torch

from ..engine.normal_form import bound
from ..errors import MaskTypeError, MaskValueError
from ..formula import nodes
from ..formula.expression import Expression
from ..values.algebra import Mask, Score

if TYPE_CHECKING:
    from rich.console import Console

LENGTH_SHOWN: Final = 4096
_PIPED_WIDTH: Final = 64
_MOST_WIDTH: Final = 96

EXPRESSION_HELP: Final = (
    "such as 'causal & sliding(256)'; module:name or path/to/file.py:name runs that file"
)
EXPRESSIONS: Final = """\
Write an expression as in Python. Only known names are accepted, and no code is run:
  causal & (sliding(256) | prefix(4))       masks and biases by name, with & | ^ ~ + @
  causal & ((q_idx - kv_idx) % 8 == 0)      comparisons of q_idx, kv_idx, head, batch
  document(lengths(100, 200, 300))          documents of these lengths
  document([0, 0, 1, 1]), alibi([0.5] * 8)  a list is a tensor
  document(arange(4096) // 512)             tensors entry by entry; load("ids.npy") reads one
One form runs a file of yours:
  models/masks.py:packed                    an expression in it, a function that returns one,
                                            or a FlexAttention function
"""


def add_expression(parser: argparse.ArgumentParser, name: str = "expression") -> None:
    parser.add_argument(name, metavar=name.upper()[:4], help=EXPRESSION_HELP)


def add_lengths(parser: argparse.ArgumentParser, default: str) -> None:
    """`--len` and `--kv-len`; `default` describes the lengths used without them."""
    add = parser.add_argument
    add("--len", dest="q_len", type=natural, help=f"number of queries (default: {default})")
    add("--kv-len", type=natural, metavar="LEN", help="number of keys (default: as queries)")


def length_shown(expression: Expression, options: argparse.Namespace) -> int:
    """`--len`, or the default length; refuses the default if a tensor has fewer positions."""
    if options.q_len is not None:
        return int(options.q_len)
    form = bound(expression)
    unasked = (nodes.Q, nodes.K) if options.kv_len is None else (nodes.Q,)
    for slot, axis, index in form.structure.table_indices:
        entries = cast(torch.Tensor, form.values[slot.index]).shape[axis]
        if index in unasked and entries < LENGTH_SHOWN:
            raise MaskValueError(
                f"{slot.name} has {entries} entries, one a position, and {LENGTH_SHOWN} positions "
                f"are the default. Write --len {entries}."
            )
    return LENGTH_SHOWN


def mask_of(expression: Expression) -> Mask:
    """The mask of an expression."""
    if isinstance(expression, Mask):
        return expression
    if isinstance(expression, Score):
        return expression.mask
    raise MaskTypeError(
        f"{expression} is a bias, which keeps every pair: there is no mask to look at. Write a "
        "mask, or mask + bias."
    )


def positive(text: str) -> int:
    return _integer(text, 1, "a positive integer")


def natural(text: str) -> int:
    return _integer(text, 0, "an integer >= 0")


def _integer(text: str, low: int, wanted: str) -> int:
    try:
        value = int(text)
    except ValueError:
        value = low - 1
    if not low <= value < 2**31:
        raise argparse.ArgumentTypeError(f"expected {wanted} below 2**31, got {text!r}")
    return value


def plain_console() -> Console:
    """A console that prints text as it is written."""
    from rich.console import Console

    return Console(highlight=False, markup=False, emoji=False, soft_wrap=True)


def picture_width(asked: int | None, console: Console, beside: int) -> int:
    """Columns of a picture: as requested, or as many as fit with `beside` columns next to them."""
    fitting = min(_MOST_WIDTH, console.width - beside) if console.is_terminal else _PIPED_WIDTH
    return asked or max(fitting, 8)


def named_by(parts: Sequence[str], known: list[str]) -> list[str]:
    """The cases that the parts name whole, else those whose names contain one; all if no parts."""
    whole, others = set(parts) & set(known), set(parts) - set(known)
    found = [
        name for name in known if not parts or name in whole or any(part in name for part in others)
    ]
    if not found:
        raise MaskValueError(
            f"--cases {','.join(parts)} names no case. The cases: {', '.join(known)}."
        )
    return found
