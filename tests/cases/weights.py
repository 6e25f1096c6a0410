"""Weight functions and expressions that tests of every backend run over."""

import torch

import maskalg as ma
from maskalg import causal, sliding
from maskalg.testing.catalogue import WEIGHTS

HEADS = 4


def weights(device="cpu"):
    """Name: a weight function of the catalogue or composed, whose tensors want a gradient."""
    torch.manual_seed(2)
    logits = torch.randn(HEADS, device=device)
    return {
        **{
            name: case.build(*[logits.clone().requires_grad_() for _ in case.tables])
            for name, case in WEIGHTS.items()
        },
        "capped": ma.Weight("capped", ma.softcap(2.0), normalised=False),
        "sigmoids, normalised": ma.Weight("sigmoids", ma.sigmoid().formula, normalised=True),
    }


def expressions(device="cpu", length=50):
    """Name: an expression; queries that keep nothing among them."""
    ids = (torch.arange(length + 8, device=device) // 9).int()
    slopes = torch.linspace(0.1, 1, HEADS, device=device)
    return {
        "everything": ma.everything,
        "document": causal & sliding(20) & ma.document(ids),
        "padding": ma.padding(torch.tensor([20, length], device=device), queries=True),
        "alibi": causal + ma.alibi(slopes),
        "decay": causal + ma.decay(-slopes),
    }


def compared(inputs, expression, weight, backend):
    """Output, and the gradients of inputs and of the sink, of one weighted sum."""
    out = ma.attention(*inputs, expression, weight=weight, backend=backend)
    generator = torch.Generator().manual_seed(3)
    change = torch.randn(out.shape, generator=generator).to(out.device)
    sink = weight.sink
    learned = [sink] if isinstance(sink, torch.Tensor) and sink.requires_grad else []
    return [out, *torch.autograd.grad((out.double() * change).sum(), [*inputs, *learned])]


def worst_error(found, wanted):
    """Largest error of each tensor relative to its largest entry; NaN counts as infinite."""
    errors = []
    for got, want in zip(found, wanted, strict=True):
        scale = want.abs().max().clamp(min=1e-3)
        error = ((got.double() - want.double()).abs().max() / scale).item()
        errors.append(float("inf") if error != error else error)
    return max(errors)
