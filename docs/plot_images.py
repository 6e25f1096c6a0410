"""The figures of the documentation, by the name of their file."""

from __future__ import annotations

import io
from collections.abc import Callable
from typing import Final

import matplotlib as mpl
import speed_chart
import torch
from matplotlib import pyplot
from matplotlib.figure import Figure

import maskalg as ma
from maskalg import causal, document, sliding

# The same bytes every time: no date, no random identifiers, letters as paths.
STYLE: Final = {"svg.hashsalt": "maskalg", "svg.fonttype": "path", "figure.facecolor": "white"}
LENGTHS: Final = (700, 260, 1010, 130, 480, 820, 696)


def parts() -> Figure:
    ids = torch.arange(len(LENGTHS)).repeat_interleave(torch.tensor(LENGTHS))
    titles = ("causal", "sliding(512)", "document(ids)", "causal & sliding(512) & document(ids)")
    mask = causal & sliding(512) & document(ids)
    return figure(ma.plot(mask, sum(LENGTHS), parts=True, block=32, titles=titles)[0])


def levels() -> Figure:
    mask = causal & (sliding(24) | ma.prefix(5))
    canvas, axes = pyplot.subplots(1, 2, figsize=(9, 5.5), layout="constrained")
    mask.plot(96, block=8, ax=axes[0])
    mask.plot(96, block=1, ax=axes[1])
    return canvas


def heads() -> Figure:
    windows = torch.tensor([32, 128, 512])
    return figure(ma.plot(causal & sliding(windows), 1024, head=[0, 1, 2], block=16)[0])


def biases() -> Figure:
    random = torch.Generator().manual_seed(3)
    drawn = {
        "causal + alibi(slopes)": causal + ma.alibi(torch.tensor([0.125])),
        "relative(table)": ma.relative(torch.randn(1, 65, generator=random)),
        "t5(table)": ma.t5(torch.randn(32, 1, generator=random)),
        "relative_2d(table, (12, 8))": ma.relative_2d(
            torch.randn(23 * 15, 1, generator=random), (12, 8)
        ),
        "kerple_log(r1, r2)": ma.kerple_log(torch.tensor([1.0]), torch.tensor([0.2])),
        "sandwich(factors, 96)": ma.sandwich(torch.tensor([0.1]), 96),
        "sliding(40) + decay(log_rates)": sliding(40) + ma.decay(torch.tensor([-0.05])),
        "softcap(30)": ma.softcap(30),
    }
    return figure(ma.plot(list(drawn.values()), 96, titles=list(drawn))[0])


FIGURES: Final[dict[str, Callable[[], Figure]]] = {
    "parts.svg": parts,
    "levels.svg": levels,
    "heads.svg": heads,
    "biases.svg": biases,
    "speed.svg": speed_chart.chart,
}


def figure(axes: object) -> Figure:
    return axes.figure  # type: ignore[attr-defined]


def draw(name: str) -> bytes:
    """The bytes of a figure's file."""
    return saved(FIGURES[name], {})


def saved(make: Callable[[], Figure], style: dict[str, str]) -> bytes:
    """The bytes of a figure's file, drawn in a style beside that of all figures."""
    with mpl.rc_context({**mpl.rcParamsDefault, **STYLE, **style, "backend": "agg"}):
        drawn = make()
        file = io.BytesIO()
        drawn.savefig(file, format="svg", metadata={"Date": None, "Creator": None})
        pyplot.close(drawn)
    return file.getvalue()
