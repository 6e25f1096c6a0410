"""The page: one HTML file with everything it needs, which may load nothing else."""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import Mapping
from html import escape
from importlib.resources import files
from pathlib import Path
from typing import Final

from ...engine.extents import Lengths
from ...errors import MaskTypeError, MaskValueError
from ...formula.expression import Expression
from ..inspect.heat import is_curve
from .javascript import text
from .payload import payload

MOST_BYTES: Final = 5_000_000

SCRIPTS: Final = (
    "arithmetic.js",
    "tables.js",
    "integers.js",
    "closed_forms.js",
    "labels.js",
    "schedule.js",
    "visits.js",
    "theme.js",
    "view.js",
    "picture.js",
    "bias.js",
    "strips.js",
    "reasons.js",
    "panel.js",
    "controls.js",
    "input.js",
    "explorer.js",
)
"""The files of the page's script, in order; the script of the mask stands after the first two."""


def explore(
    expression: Expression,
    q_len: int,
    kv_len: int | None = None,
    *,
    path: str | Path,
    batch: int | None = None,
    heads: int | None = None,
) -> Path:
    """Write a page to look into an expression; see `Expression.explore`."""
    page = html(expression, q_len, kv_len, batch=batch, heads=heads)
    target = Path(path)
    try:
        target.write_text(page, encoding="utf-8")
    except OSError as problem:
        raise MaskValueError(
            f"{str(target)!r} cannot be written: {problem.strerror or str(problem)}."
        ) from problem
    return target


def html(
    expression: Expression,
    q_len: int,
    kv_len: int | None = None,
    *,
    batch: int | None = None,
    heads: int | None = None,
) -> str:
    """The page as text: HTML that needs no network, under 5 MB.

    Raises:
        MaskValueError: lengths or tensors that do not fit, a formula a page cannot compute, or
            tensors that do not shrink far enough.
    """
    if not isinstance(expression, Expression):
        raise MaskTypeError(
            f"explore shows masks, biases and scores, got {expression!r} of type "
            f"{type(expression).__name__}."
        )
    if is_curve(expression):
        raise MaskTypeError(
            f"{expression} is the same for every query and key, so there is nothing to look into. "
            "Its curve is drawn by bias.plot(q_len); explore shows it beside a mask: mask + bias."
        )
    made = payload(expression, Lengths(q_len, kv_len, batch, heads))
    sources = [_static(name) for name in SCRIPTS]
    script = "\n".join(
        ['"use strict";', "(() => {", *sources[:2], made.script, *sources[2:], "})();", ""]
    )
    style = _static("explorer.css")
    page = _static("explorer.html")
    parts = {
        "TITLE": escape(made.title),
        "POLICY": _policy(script, style),
        "STYLE": style,
        "DATA": text(made.data),
        "SCRIPT": script,
    }
    # One pass, so that text in one part is never taken for the place of another.
    page = re.sub(r"\{\{(\w+)\}\}", lambda place: parts[place[1]], page)
    size = len(page.encode())
    if size > MOST_BYTES:
        raise page_too_large(size, MOST_BYTES, made.sizes)
    return page


def _static(name: str) -> str:
    return (files(__package__) / "static" / name).read_text(encoding="utf-8")


def _policy(script: str, style: str) -> str:
    """A content security policy under which this script and this style run, and nothing else."""
    hashes = [
        "sha256-" + base64.b64encode(hashlib.sha256(part.encode()).digest()).decode()
        for part in (script, style)
    ]
    own = f"script-src '{hashes[0]}'; style-src '{hashes[1]}'; img-src data:"
    return f"default-src 'none'; {own}; base-uri 'none'; form-action 'none'"


def page_too_large(size: int, most: int, tables: Mapping[str, int]) -> MaskValueError:
    if not tables:
        cause = "The formula of the mask is too long."
    else:
        name = max(tables, key=lambda table: tables[table])
        cause = (
            f"{name} takes {tables[name] / 1e6:.1f} MB after run-length coding and compression: "
            "its entries have too little order. Take fewer positions, or a part of the mask that "
            "does not read it."
        )
    return MaskValueError(
        f"The page would have {size / 1e6:.1f} MB, more than {most / 1e6:.0f} MB. {cause}"
    )
