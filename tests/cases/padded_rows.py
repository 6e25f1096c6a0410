"""Rows with padding anywhere, and where their real tokens lie, found place by place."""

import random

import torch


def padded_rows(length: int, draw: random.Random) -> torch.Tensor:
    """Boolean `[rows, length]`: on the left, on the right, on both sides, between, all, nothing."""
    rows = [[True] * length, [False] * length]
    for _ in range(4):
        first, past = sorted(draw.choices(range(length + 1), k=2))
        rows.append([first <= k < past for k in range(length)])
    rows.append([draw.random() < 0.5 for _ in range(length)])
    return torch.tensor(rows, dtype=torch.bool).view(len(rows), length)


def bounds_by_hand(rows: torch.Tensor) -> torch.Tensor:
    """The first real place of each row and the one past the last, or the first one again."""
    found = []
    for row in rows.tolist():
        real = [k for k, each in enumerate(row) if each] or [0]
        whole = all(row[real[0] : real[-1] + 1])
        found.append((real[0], real[-1] + 1 if row and whole and row[real[0]] else real[0]))
    return torch.tensor(found, dtype=torch.int32).T.contiguous()
