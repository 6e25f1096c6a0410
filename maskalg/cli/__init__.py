"""The `maskalg` command."""

from __future__ import annotations

import argparse
import gc
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final, NoReturn

import torch

from ..errors import MaskalgError
from . import compare, doctor, explain, explore, plan, prove, render, show, tune, verify
from .arguments import natural, positive

# Commands that print and are done.
_ANSWERS: Final = (show, explore, prove, compare, plan, render, explain, verify)


class _Parser(argparse.ArgumentParser):
    """A parser whose errors are one line and exit status 2."""

    def error(self, message: str) -> NoReturn:
        self.exit(2, f"{self.prog}: {message}\n")


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command with `argv` (by default that of the process); returns the exit status.

    0 is success, 1 a result that is wrong, 2 a command that cannot be run as it was given.
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
    # The modules of torch and SymPy are not taken apart one by one: that takes a tenth of
    # a second, and nothing that these commands opened waits for it.
    sys.stderr.flush()
    os._exit(status)


def _hasten() -> None:
    """Make a process short that answers once, on tensors of a million entries at most."""
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
    """Python would complain once more when it closes a pipe or a disk that takes no more."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _demo(options: argparse.Namespace) -> int:
    from .demo.command import Settings, run

    return run(
        Settings(
            paths=tuple(options.paths),
            tokens=options.tokens,
            window=options.window,
            heads=options.heads,
            head_dim=options.head_dim,
            seed=options.seed,
            device=options.device,
        )
    )


def _bench(options: argparse.Namespace) -> int:
    from .bench import Settings, run

    names = tuple(part for part in options.cases.split(",") if part)
    return run(
        Settings(names, options.catalogue, options.rounds, options.backward, options.markdown)
    )


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(prog="maskalg", description="Attention masks that compose and prove.")
    parser.add_argument("--version", action="version", version=f"maskalg {_version()}")
    # The exit status where the output could not be written to its end.
    parser.set_defaults(status=0)
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    demo = commands.add_parser(
        "demo",
        help="attention over real text packed into one sequence, next to the dense way",
        description="Pack text files into one sequence; prove, show and compute its attention; "
        "compare the result, the time and the memory with the dense way.",
    )
    add = demo.add_argument
    add(
        "paths",
        nargs="*",
        type=Path,
        metavar="PATH",
        help="text files or folders of them (default: sources of Python's standard library)",
    )
    add("--tokens", type=positive, default=16384, help="length of the sequence (%(default)s)")
    add("--window", type=positive, default=512, help="of the sliding window (%(default)s)")
    add("--heads", type=positive, default=8, help="attention heads (%(default)s)")
    add("--head-dim", type=positive, default=64, help="size of a head (%(default)s)")
    add("--seed", type=natural, default=0, help="of the random weights (%(default)s)")
    add("--device", help="cpu or cuda (default: cuda where there is one)")
    demo.set_defaults(run=_demo)
    bench = commands.add_parser(
        "bench",
        help="attention on this machine's GPU, beside FlexAttention and fixed kernels",
        description="Time masks and biases people train with on this machine's GPU, interleaved "
        "with FlexAttention, cuDNN and FlashAttention-2 (and -4 where it is installed).",
    )
    add = bench.add_argument
    add("--cases", default="", help='comma-separated parts of names, such as "D64,causal"')
    add("--catalogue", action="store_true", help="a row for each family of masks")
    add("--rounds", type=positive, default=7, help="turns of each contender (%(default)s)")
    add("--backward", action="store_true", help="time the backward pass")
    add("--markdown", action="store_true", help="print a Markdown table at the end")
    bench.set_defaults(run=_bench)
    for command in (*_ANSWERS, tune, doctor):
        command.declare(commands)
    return parser


def _version() -> str:
    from importlib import metadata

    try:
        return metadata.version("maskalg")
    except metadata.PackageNotFoundError:
        return "(not installed)"
