"""The `maskalg` command."""

from __future__ import annotations

import argparse
import gc
import os
import re
import sys
from collections.abc import Sequence
from typing import Final, NoReturn

import torch

from ..errors import MaskalgError
from ..errors.strangers import near
from . import (
    bench,
    compare,
    demo,
    doctor,
    explain,
    explore,
    plan,
    prove,
    render,
    show,
    tune,
    verify,
)
from .options import EXPRESSIONS

# Commands of expressions, which print and are done.
_ANSWERS: Final = (show, explore, prove, compare, plan, render, explain, verify)


class _Parser(argparse.ArgumentParser):
    """A parser whose errors are one line, with exit status 2 and the nearest known name."""

    def error(self, message: str) -> NoReturn:
        if message.startswith("unrecognized arguments: ") and ": -" not in message:
            message += '. An expression is one argument: write "causal & sliding(256)" in quotes'
        self.exit(2, f"{self.prog}: {message}\n")

    def _check_value(self, action: argparse.Action, value: object) -> None:
        try:
            super()._check_value(action, value)
        except argparse.ArgumentError as problem:
            known = map(str, action.choices or ())
            raise argparse.ArgumentError(
                action, f"{problem.message}.{near(str(value), known)}"
            ) from None


class _Help(argparse.HelpFormatter):
    """Help whose paragraphs are wrapped, and whose tables stand as they are written."""

    def _fill_text(self, text: str, width: int, indent: str) -> str:
        return text if "\n" in text else super()._fill_text(text, width, indent)


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command with `argv` (by default that of the process); returns the exit status.

    0 is success, 1 a wrong result, 2 a command that cannot be run as given.
    """
    if not (sys.argv[1:] if argv is None else argv):
        _parser().print_help()
        return 0
    try:
        options = _parser().parse_args(argv)
    except SystemExit as stop:
        return stop.code if isinstance(stop.code, int) else 2
    own = argv is None  # the process is this command's
    if not own or options.run not in [command.run for command in _ANSWERS]:
        return _run(options)
    _hasten()
    status = _run(options)
    # The modules of torch and SymPy are not freed one by one: that takes a tenth of
    # a second, and nothing that these commands opened waits for it.
    sys.stderr.flush()
    os._exit(status)


def _hasten() -> None:
    """Shorten a process that answers once, with tensors of a million entries at most."""
    # Collecting goes through all that torch and SymPy made, and frees next to nothing.
    gc.disable()
    # A second thread gains less on such tensors than it loses, many times over, where another
    # process has the second core: each operation waits for the thread that is not run.
    torch.set_num_threads(1)


def _run(options: argparse.Namespace) -> int:
    try:
        status = int(options.run(options))
        sys.stdout.flush()
        return status
    except MaskalgError as problem:
        line = " ".join(str(problem).split())
        line = re.sub(r"pass (batch|heads)=…", r"pass --\1 N", line)
        print(f"maskalg {options.command}: {line}", file=sys.stderr)
        return 2
    except (BrokenPipeError, SystemExit):
        # The reader, such as `head`, has seen enough (rich then asks to exit).
        _close_output()
        return int(options.status)
    except OSError as problem:
        print(f"maskalg {options.command}: {problem}", file=sys.stderr)
        _close_output()
        return 2


def _close_output() -> None:
    """Redirect output to nothing, or Python reports a closed pipe or a full disk again at its
    end."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(prog="maskalg", description="Show, prove and time attention masks.")
    parser.add_argument("--version", action="version", version=f"maskalg {_version()}")
    # The exit status where the output could not be written to its end.
    parser.set_defaults(status=0)
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    for command in (demo, bench, *_ANSWERS, tune, doctor):
        own = commands.add_parser(
            command.__name__.rpartition(".")[2],
            help=command.HELP,
            description=command.DESCRIPTION,
            epilog=EXPRESSIONS if command in _ANSWERS else None,
            formatter_class=_Help,
        )
        command.declare(own)
        own.set_defaults(run=command.run)
    return parser


def _version() -> str:
    from importlib import metadata

    try:
        return metadata.version("maskalg")
    except metadata.PackageNotFoundError:
        return "(not installed)"
