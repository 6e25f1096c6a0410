"""`maskalg tune`: tiles measured on this machine's GPU, and kept for it."""

from __future__ import annotations

import argparse
import os
import tempfile
from typing import Any, Final

import torch

from .. import errors
from ..tiles.shapes import SIZES
from ..tiles.tuned import store
from ..tiles.tuned.choices import KERNELS, Kernel, text
from .options import named_by, positive

HELP: Final = "measure tile shapes on this machine's GPU, and keep the faster ones"
DESCRIPTION: Final = (
    "Time tile shapes of the kernels on this machine's GPU against those of the "
    "package's table, and keep in the cache folder those that are faster by more than noise. Later "
    "calls on this model of GPU use them; MASKALG_TUNED=0 ignores them. Results may "
    "differ in their last bits, as sums are made in another order."
)
_INTERRUPTED: Final = 130  # as a shell would say
_DTYPES: Final = {"bfloat16": torch.bfloat16, "float16": torch.float16, "float32": torch.float32}


def declare(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the command."""
    add = parser.add_argument
    add("--cases", default="", help='comma-separated parts of names, such as "causal,window"')
    add("--dim", type=int, nargs="+", choices=SIZES, default=[64, 128], metavar="DIM",
        help="head dimensions; 96 stands for 65 to 96 too, and keys of 192 have values of 128 "
        "(64 128)")  # fmt: skip
    add("--dtype", choices=list(_DTYPES), default="bfloat16", help="input dtype (%(default)s)")
    add("--forward", action="store_true", help="tune the forward kernel alone")
    add("--backward", action="store_true", help="tune the kernels of the gradients alone")
    add("--rounds", type=positive, default=9, help="turns of each tile in the final (%(default)s)")
    add("--dry-run", action="store_true", help="measure and print, and keep nothing")
    add(
        "--forget", action="store_true", help="delete everything that was kept, and measure nothing"
    )


def run(options: argparse.Namespace) -> int:
    """Measure, print and keep; or forget. Returns the exit status."""
    if options.forget:
        return _forget()
    if not torch.cuda.is_available():
        raise errors.BackendError(
            "no GPU was found (torch.cuda.is_available() is False), and tiles are measured where "
            "they are used. `maskalg tune --forget` works without one; `maskalg doctor` says what "
            "is here."
        )
    if os.environ.get("TRITON_INTERPRET") == "1":
        raise errors.interpreter_compiles_nothing()
    try:
        from ..backends.triton import tuned
        from ..bench import tuning_session
    except ImportError as problem:
        raise errors.BackendError(
            f"Triton does not import ({problem}), and it compiles what is measured: pip install "
            "triton (Linux)."
        ) from problem
    machine = tuned.this_machine(torch.device("cuda", torch.cuda.current_device()))
    if not options.dry_run:
        _check_writable()
    wanted = tuning_session.Wanted(
        _cases(options.cases),
        tuple(dict.fromkeys(options.dim)),
        _DTYPES[options.dtype],
        _kernels(options),
        options.rounds,
    )
    searches = wanted.searches
    print(
        f"{machine.device}, {machine.architecture}, Triton {machine.triton}, {options.dtype}: "
        f"{searches} searches, each about a minute\n"
        "xR: how many times as fast as the table's tile, median [least-most] of "
        f"{wanted.rounds} interleaved rounds; noise: of the table's tile against itself"
    )
    total, status = 0, 0
    try:
        for finding in tuning_session.findings(wanted):
            print(_lines(finding), flush=True)
            total += finding.kept
            if not options.dry_run:
                tuning_session.store(finding, machine)
                tuned.look_again()
    except KeyboardInterrupt:
        print("interrupted")
        status = _INTERRUPTED
    if options.dry_run:
        print(f"{total} of {searches} would be kept; nothing was (--dry-run)")
    else:
        print(f"{total} of {searches} kept in {store.path_of(machine)}")
        print("maskalg doctor shows what is kept, maskalg tune --forget deletes it")
        if not store.in_use():
            print(f"{store.SWITCH}=0 is set: nothing of it is used")
    return status


def _forget() -> int:
    deleted = store.forget()
    for path in deleted:
        print(f"deleted {path}")
    if not deleted:
        print(f"nothing was kept in {store.folder()}")
    return 0


def _cases(given: str) -> tuple[str, ...]:
    """The names of cases that contain one of the given parts; all names if none is given."""
    from ..bench.tuning_session import tuning_cases

    parts = [part for part in given.split(",") if part]
    return tuple(named_by(parts, list(tuning_cases(128, "cpu"))))


def _kernels(options: argparse.Namespace) -> tuple[Kernel, ...]:
    if options.forward == options.backward:
        return KERNELS
    return ("forward",) if options.forward else ("queries", "keys")


def _check_writable() -> None:
    """Raise if results cannot be stored, before a minute is spent on them."""
    folder = store.folder()
    try:
        folder.mkdir(parents=True, exist_ok=True)
        tempfile.TemporaryFile(dir=folder).close()
    except OSError as problem:
        raise errors.BackendError(
            f"{folder} cannot be written ({problem.strerror or problem}), so nothing would be "
            "kept. Set XDG_CACHE_HOME to a folder that can, or look without keeping: --dry-run."
        ) from problem


def _lines(finding: Any) -> str:
    """A finding for a terminal."""
    low, high = finding.spread
    verdict = "faster: kept" if finding.kept else "the table's stays"
    lines = [
        f"{finding.key!s:44} x{finding.ratio:.3f} [{low:.3f}-{high:.3f}]  noise "
        f"{100 * finding.noise:.1f} %  {finding.tried} tiles  {verdict}",
        f"    table  {text(finding.default)}",
    ]
    if finding.best != finding.default:
        lines.append(f"    best   {text(finding.best)}")
    lines += [
        f"    left out: {text(tile)}: {why}"
        for tile, why in finding.left_out.items()
        if why.startswith("its result")
    ]
    return "\n".join(lines)
