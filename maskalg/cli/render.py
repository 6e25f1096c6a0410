"""`maskalg render`: the source of the hooks that would run, and the compiler's report on them."""

from __future__ import annotations

import argparse
import time
from typing import TYPE_CHECKING, Any, Final

from .. import errors
from .options import add_expression, plain_console, positive

if TYPE_CHECKING:
    from rich.console import Console

    from ..backends.triton.offline import Report
    from ..formula.expression import Expression

HELP: Final = "the kernel source that would run; with --target, what compiling it gives"
DESCRIPTION: Final = (
    "Print the Triton source of the hooks that an expression puts into the kernel. "
    "With --target, compile the kernels for that GPU, which need not be here, and print "
    "registers, shared memory, spills and instructions."
)
_DTYPES: Final = {"bf16": "bfloat16", "fp16": "float16", "fp32": "float32"}
_SKELETONS: Final = {False: "maskalg_kernels/forward.py", True: "maskalg_kernels/backward.py"}


def declare(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the command."""
    add_expression(parser)
    add = parser.add_argument
    add("--backward", action="store_true", help="show the kernels of the gradients")
    add("--target", metavar="GPU", help="GPU to compile for, such as sm_90 or gfx942")
    add("--head-dim", type=positive, default=128, help="dimensions of q, k and v (%(default)s)")
    add("--dtype", choices=list(_DTYPES), default="bf16", help="dtype (%(default)s)")


def run(options: argparse.Namespace) -> int:
    """Print the source, then compile it if requested; returns the exit status."""
    from ..codegen.hooks import source_of
    from ..parsing import read

    expression = read(options.expression)
    if not 8 <= options.head_dim <= 256:
        raise errors.head_dim_unsupported(options.head_dim)
    console = plain_console()
    # Report a wrong target before printing pages of source.
    compiling = None if options.target is None else _compiling(expression, options)
    nvidia = options.target is None or options.target.startswith("sm_")
    _print_source(console, source_of(expression, ptx=nvidia, backward=options.backward))
    console.print(f"\ncalled by {_SKELETONS[options.backward]}", style="dim")
    if compiling is not None:
        started = time.perf_counter()
        for report in compiling:
            console.print()
            for line in report_lines(report, options.target):
                console.print(line)
        console.print(f"\ncompiled in {time.perf_counter() - started:.1f} s", style="dim")
    return 0


def _compiling(expression: Expression, options: argparse.Namespace) -> Any:
    import torch

    try:
        from ..backends.triton.offline import compile_offline
    except ModuleNotFoundError as missing:
        raise errors.BackendError(
            "compiling needs Triton, which is not installed: pip install triton (Linux). Without "
            "--target the source is rendered all the same."
        ) from missing
    dtype = getattr(torch, _DTYPES[options.dtype])
    return compile_offline(
        expression, options.target, options.head_dim, dtype, backward=options.backward
    )


def _print_source(console: Console, text: str) -> None:
    if console.is_terminal and console.color_system is not None and not console.no_color:
        from rich.syntax import Syntax

        console.print(
            Syntax(text.rstrip(), "python", theme="ansi_dark", background_color="default")
        )
    else:
        console.print(text.rstrip())


def report_lines(report: Report, target: str) -> list[str]:
    """The compiler's report on a kernel, as text."""
    share = 100 * report.shared / report.shared_limit
    lines = [f"{report.kernel} on {target}: {report.tier}"]
    if report.registers is not None:
        lines.append(f"  registers     {report.registers} a thread")
        lines.append(f"  spills        {report.spills} bytes a thread")
    limit = f"{report.shared_limit:,}"
    lines.append(f"  shared        {report.shared:,} bytes of {limit} ({share:.0f} %)")
    lines.append(f"  instructions  {report.instructions['all']:,}")
    for kind, count in report.instructions.items():
        if kind != "all":
            lines.append(f"{count:>15,}  {kind}")
    lines += [f"  remark        {line}" for line in report.remarks.splitlines()]
    return lines
