"""Commands that the documentation shows: run where that is quick, and always known to exist."""

from __future__ import annotations

import re
import shlex

from maskalg.cli import _parser

from .pages import ROOT


def check(command: str) -> None:
    """Raise AssertionError unless the command names what there is; nothing is run.

    An option of `maskalg`, a target of the Makefile, an extra of the package, a script.
    """
    program, *arguments = shlex.split(command, comments=True)
    if program == "maskalg":
        try:
            _parser().parse_args(arguments)
        except SystemExit as stop:
            raise AssertionError(f"{command}: not a call of maskalg") from stop
    elif program == "make":
        targets = re.findall(r"^(\w+):", (ROOT / "Makefile").read_text(), re.MULTILINE)
        assert set(arguments) <= set(targets), f"{command}: no such target in the Makefile"
    elif program == "python":
        assert (ROOT / arguments[0]).is_file(), f"{command}: no such script"
    elif program == "pip":
        named = re.findall(r"\[([\w,-]+)\]", command)
        extras = set(",".join(named).split(",")) - {""}
        known = (ROOT / "pyproject.toml").read_text().partition("[project.optional-dependencies]")
        assert all(f"\n{extra} = [" in known[2] for extra in extras), f"{command}: no such extra"
    else:
        raise AssertionError(f"{command}: list it in tests/docs/commands.py")
