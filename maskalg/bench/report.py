"""The table `maskalg bench` prints, for a terminal or as Markdown."""

from __future__ import annotations

import statistics
from collections.abc import Iterable

from .measure import Row

PEERS = ("FlexAttention", "cuDNN", "FlashAttention-2", "FlashAttention-4")


def line(row: Row) -> str:
    """A row for a terminal: medians, spread, TFLOP/s, and how many times faster ours is."""
    cells = []
    for name, times in row.times.items():
        ratio = "" if name == "maskalg" else f" x{row.ratio(name):.2f}"
        spread = f"[{min(times):.3f}-{max(times):.3f}]"
        cells.append(f"{name} {row.median(name):.3f} {spread} {row.rate(name):.0f}T{ratio}")
    cells += [f"{name} failed ({why[:60]})" for name, why in row.missing.items()]
    return f"{row.name:26} {'  '.join(cells)}  distance to FlexAttention {row.difference:.1e}"


def markdown(rows: Iterable[Row]) -> str:
    """The rows as a Markdown table."""
    rows = list(rows)
    peers = [peer for peer in PEERS if any(peer in row.times for row in rows)]
    lines = [
        "| case | " + " | ".join(["maskalg", *peers]) + " |",
        "|---" * (len(peers) + 2) + "|",
    ]
    for row in rows:
        times = row.times["maskalg"]
        ours = f"{row.median('maskalg'):.3f} [{min(times):.3f}-{max(times):.3f}]"
        cells = [row.name, f"{ours} {row.rate('maskalg'):.0f}T"]
        cells += [
            f"{row.median(peer):.3f} x{row.ratio(peer):.2f}" if peer in row.times else "–"
            for peer in peers
        ]
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines)


def summary(rows: Iterable[Row]) -> str:
    """The geometric mean of how many times faster ours is than each peer."""
    rows = list(rows)
    parts = []
    for peer in PEERS:
        ratios = [row.ratio(peer) for row in rows if peer in row.times]
        if ratios:
            mean = statistics.geometric_mean(ratios)
            parts.append(f"{peer} {mean:.2f} ({min(ratios):.2f}-{max(ratios):.2f})")
    return "times faster than  " + "   ".join(parts)
