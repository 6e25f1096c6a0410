"""Gradients of one call by a kernel and by the float64 reference."""

import torch

import maskalg as ma


def gradients(tensors, expression, change, backend=None, **options):
    """Of the distinct ones of query, key and value, and of a sink; `change` is of the output."""
    found = ma.attention(*tensors, expression, backend=backend, **options)
    out, *lse = found if isinstance(found, tuple) else (found,)
    sink = options.get("weight", ma.softmax).sink
    wanted = list({id(t): t for t in (*tensors, sink) if isinstance(t, torch.Tensor)}.values())
    changes = [change.to(out.dtype), *[torch.ones_like(one) for one in lse]]
    return torch.autograd.grad([out, *lse], wanted, changes)


def check_gradients(tensors, expression, change=None, *, most=2e-2, least=0.0, **options):
    """At most so far from float64, relative to the largest, or to `least` where that is smaller,
    whatever memory held before."""
    change = torch.randn_like(tensors[0]) if change is None else change
    wide = {id(t): t.detach().double().requires_grad_() for t in tensors}
    for tensor in tensors:
        tensor.requires_grad_()
    poison = [torch.full_like(t, float("nan")) for t in (*tensors, *tensors)]
    del poison
    found = gradients(tensors, expression, change, "triton", **options)
    widened = [wide[id(t)] for t in tensors]
    wanted = gradients(widened, expression, change, "reference", **options)
    for one, other in zip(found, wanted, strict=True):
        error = (one.double() - other.double()).abs().max() / other.abs().max().clamp(min=least)
        assert error.item() <= most
