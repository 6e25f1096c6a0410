"""The chart of speed, drawn from the tables of docs/performance.md."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

from matplotlib import pyplot
from matplotlib.axes import Axes
from matplotlib.figure import Figure

PAGE: Final = Path(__file__).parent / "performance.md"
COLOURS: Final = {"maskalg": "#2f6fd6", "FlashAttention-4": "#e8963a", "cuDNN": "#aab4c0"}

Milliseconds = dict[str, dict[str, float]]
"""By case, then by contender."""


def table(heading: str) -> Milliseconds:
    """The first table of a section; contenders that cannot do a case are left out of it."""
    section = PAGE.read_text(encoding="utf-8").split(f"\n## {heading}")[1]
    lines = iter(section.splitlines())
    header = cells(next(line for line in lines if line.startswith("| case |")))
    next(lines)
    rows: Milliseconds = {}
    for line in lines:
        if not line.startswith("|"):
            return rows
        case, *times = cells(line)
        found = [re.match(r"[\d.]+", time) for time in times]
        rows[case] = {
            name: float(time[0]) for name, time in zip(header[1:], found, strict=True) if time
        }
    return rows


def cells(line: str) -> list[str]:
    return [cell.strip() for cell in line.strip("|").split("|")]


def speeds(heading: str) -> Milliseconds:
    """Rows of 128 dimensions: how many times faster than FlexAttention each contender is."""
    found: Milliseconds = {}
    for case, times in table(heading).items():
        if case.startswith("D128 "):
            flash = times.get("FlashAttention-4", times.get("FlashAttention-4 mask_mod"))
            chosen = times if flash is None else times | {"FlashAttention-4": flash}
            flex = times["FlexAttention"]
            found[case.removeprefix("D128 ")] = {
                name: flex / chosen[name] for name in COLOURS if name in chosen
            }
    return found


def bars(ax: Axes, title: str, rows: Milliseconds) -> None:
    for index, (name, colour) in enumerate(COLOURS.items()):
        places = [place for place, row in enumerate(rows.values()) if name in row]
        widths = [row[name] for row in rows.values() if name in row]
        offsets = [place + 0.27 * (index - 1) for place in places]
        ax.barh(offsets, widths, height=0.25, color=colour, label=name)
    ax.axvline(1, color="#404a57", linewidth=1)
    ax.set_yticks(range(len(rows)), list(rows))
    ax.set_title(title)
    ax.spines[["top", "right"]].set_visible(False)


def chart() -> Figure:
    canvas, axes = pyplot.subplots(1, 2, figsize=(9, 5), sharey=True, layout="constrained")
    bars(axes[0], "forward", speeds("Forward"))
    bars(axes[1], "backward", speeds("Backward"))
    axes[0].invert_yaxis()
    canvas.supxlabel("speed, FlexAttention = 1 (longer is faster)", fontsize="medium")
    canvas.legend(*axes[0].get_legend_handles_labels(), loc="outside upper center", ncols=3)
    return canvas
