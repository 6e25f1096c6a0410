"""The table `maskalg bench` prints, for a terminal or as Markdown."""

from __future__ import annotations

import statistics
from collections.abc import Iterable

from . import cudnn
from .contenders import INTERVALS
from .flash_attention_4 import BUILT_IN, DETERMINISTIC, WITH_MASK_MOD
from .measure import Row

PEERS = (
    "FlexAttention",
    INTERVALS,
    "cuDNN",
    cudnn.NAME,
    "FlashAttention-2",
    BUILT_IN,
    DETERMINISTIC,
    WITH_MASK_MOD,
)


def line(row: Row) -> str:
    """A row for a terminal: medians, spread, TFLOP/s, and how many times faster ours is."""
    cells = []
    for name, times in row.times.items():
        ratio = "" if name == "maskalg" else f" x{row.ratio(name):.2f}"
        spread = f"[{min(times):.3f}-{max(times):.3f}]"
        cells.append(f"{name} {row.median(name):.3f} {spread} {row.rate(name):.0f}T{ratio}")
    cells += [f"{name} failed ({why[:60]})" for name, why in row.missing.items()]
    distances = [row.distances[name] for name in row.times if name != "maskalg"]
    if distances:
        cells.append(f"farthest result {max(distances):.1e} from ours")
    return f"{row.name:26} {'  '.join(cells)}"


def markdown(rows: Iterable[Row]) -> str:
    """The rows as a Markdown table, and below it why a contender has no time in a row."""
    rows = list(rows)
    peers = [p for p in PEERS if any(p in row.times or p in row.missing for row in rows)]
    lines = [
        "| case | " + " | ".join(["maskalg", *peers]) + " |",
        "|---" * (len(peers) + 2) + "|",
    ]
    notes: list[str] = []
    for row in rows:
        times = row.times["maskalg"]
        ours = f"{row.median('maskalg'):.3f} [{min(times):.3f}-{max(times):.3f}]"
        cells = [row.name, f"{ours} {row.rate('maskalg'):.0f}T"]
        cells += [_cell(row, peer, notes) for peer in peers]
        lines.append("| " + " | ".join(cells) + " |")
    lines += [f"\n[{number}] {note}" for number, note in enumerate(notes, 1)]
    return "\n".join(lines)


def _cell(row: Row, peer: str, notes: list[str]) -> str:
    """Time and ratio, or a dash with the number of a note; a new reason is added to `notes`."""
    if peer in row.times:
        return f"{row.median(peer):.3f} x{row.ratio(peer):.2f}"
    if peer not in row.missing:
        return "–"
    note = f"{peer}: {row.missing[peer][:160]}"
    if note not in notes:
        notes.append(note)
    return f"– [{notes.index(note) + 1}]"


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
