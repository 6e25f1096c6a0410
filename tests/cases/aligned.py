"""Calls whose tiles begin with documents: a document alone, packed, moved, and in a batch."""

from itertools import pairwise

import torch

import maskalg as ma
from maskalg import causal, document, per_document, sliding


def _packed(lengths, device):
    return document.from_lengths(torch.tensor(lengths, device=device), total=sum(lengths))


def _restarted(lengths, device):
    ends = torch.tensor([0, *lengths], device=device).cumsum(0)
    return per_document.from_cu_seqlens(causal | ma.prefix(3), ends, total=sum(lengths))


def _slopes(device):
    return torch.tensor([0.5, 0.03], device=device)


MASKS = {
    "document": _packed,
    "causal": lambda *at: causal & _packed(*at),
    "window and first": lambda *at: causal & (sliding(9) | ma.dilated(3)) & _packed(*at),
    "restarted": _restarted,
    "ids": lambda n, device: (
        causal
        & document(
            torch.arange(len(n), 0, -1).repeat_interleave(torch.tensor(n)).to(device),
            order="contiguous",
        )
    ),
    "alibi": lambda n, device: causal & _packed(n, device) + ma.alibi(_slopes(device)),
    "softcap": lambda *at: causal & sliding(20) & _packed(*at) + ma.softcap(2.0),
}
WEIGHTS = {"softmax": ma.softmax, "sink": ma.softmax_with_sink(0.3), "relu": ma.relu}


def inputs(length, dim=16, batch=1, seed=0, dtype=torch.float32, device="cpu", heads=(2, 1)):
    """Query, key, value and the gradient of the output."""
    generator = torch.Generator().manual_seed(seed)
    return [
        torch.randn(batch, of, length, dim, generator=generator).to(device, dtype)
        for of in (heads[0], heads[1], heads[1], heads[0])
    ]


def attend(name, lengths, given, weight="softmax", backend="aligned"):
    """Output, and gradients of query, key and value."""
    *tensors, change = given
    leaves = [x.detach().requires_grad_() for x in tensors]
    score = MASKS[name](lengths, given[0].device)
    out = ma.attention(*leaves, score, weight=WEIGHTS[weight], backend=backend)
    return out, *torch.autograd.grad(out, leaves, change)


def parts(lengths):
    """Where each document that is not empty begins and ends."""
    ends = [0, *torch.tensor(lengths).cumsum(0).tolist()]
    return [(begin, end) for begin, end in pairwise(ends) if end > begin]


def check_alone(name, lengths, given, weight="softmax"):
    """Every document gives alone what it gives packed."""
    packed = attend(name, lengths, given, weight)
    for begin, end in parts(lengths):
        alone = attend(name, [end - begin], [x[:, :, begin:end] for x in given], weight)
        same(packed, begin, alone)
    return packed


def check_moved(name, lengths, given, others):
    """Every document gives the same behind `others`, which hold NaN, and in a batch."""
    packed, before = attend(name, lengths, given), sum(others)
    for begin, end in parts(lengths):
        own = [x[:, :, begin:end] for x in given]
        poison = [x.new_full((2, *x.shape[1:2], before, x.shape[3]), float("nan")) for x in own]
        rows = [
            torch.cat([p, x.repeat(2, 1, 1, 1), p], 2) for p, x in zip(poison, own, strict=True)
        ]
        # The other entry of the batch has values of its own.
        for row in rows:
            row[0, :, before : before + end - begin] *= 3
        moved = attend(name, [*others, end - begin, *others], rows)
        here = slice(before, before + end - begin)
        for x, y in zip(moved, packed, strict=True):
            assert torch.equal(x[1:, :, here], y[:, :, begin:end])


def same(packed, begin, alone):
    for x, y in zip(packed, alone, strict=True):
        assert torch.equal(x[:, :, begin : begin + y.shape[2]], y)
