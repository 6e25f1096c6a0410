"""Scores with tables that want a gradient, which tests of every backend run over."""

import torch

import maskalg as ma
from maskalg import causal, head, kv_idx, q_idx, sliding
from maskalg.formula import nodes
from maskalg.formula.printing import named

HEADS = 4


def scores(device="cpu", length=50):
    """Name: a score, and the tables in it."""
    generator = torch.Generator().manual_seed(4)

    def learned(*shape):
        return torch.randn(shape, generator=generator).to(device).requires_grad_()

    slopes = torch.rand(HEADS, generator=generator).to(device).requires_grad_()
    rates = (-torch.rand(HEADS, generator=generator)).to(device).requires_grad_()
    clipped, all_heads = learned(HEADS, 15), learned(31)
    cap = torch.tensor(1.5, device=device, requires_grad=True)
    caps = torch.linspace(1, 3, HEADS, device=device, requires_grad=True)
    of_keys, of_queries = learned(2, length), learned(HEADS, length)
    dense = learned(1, length, length)
    kinds = torch.randint(0, 3, (length,), generator=generator).to(device)
    pairs = learned(HEADS, 3, 3)
    distance = [torch.tensor([x], device=device, requires_grad=True) for x in (0.37, 3.0)]
    first = learned(5)
    kinks = torch.tensor([0.21, 0.36, 0.53, 0.67, 0.83], device=device)  # at no pair of positions
    layers = [first, (-first.detach() * kinks).requires_grad_(), learned(HEADS, 5)]
    fire = ma.FireParameters(*layers, torch.zeros(HEADS, device=device), *distance)
    of_query, of_key = ma.table(kinds)[q_idx], ma.table(kinds)[kv_idx]
    added = {
        "slopes": (ma.alibi(slopes), [slopes]),
        "distances": (ma.relative(clipped), [clipped]),
        "distances of all heads": (ma.relative(all_heads), [all_heads]),
        "keys": (bias(ma.table(of_keys)[ma.batch, kv_idx]), [of_keys]),
        "queries": (bias(ma.table(of_queries)[head, q_idx]), [of_queries]),
        "dense": (bias(ma.table(dense)[head * 0, q_idx, kv_idx]), [dense]),
        "kinds": (bias(ma.table(pairs)[head, of_query, of_key]), [pairs]),
        "decay": (ma.decay(rates), [rates]),
        "a cap": (ma.softcap(cap) @ ma.alibi(slopes), [cap, slopes]),
        "a cap of each head": (ma.softcap(caps) + ma.relative(clipped), [caps, clipped]),
        "capped": (ma.softcap(2.0) @ ma.relative(clipped), [clipped]),
        "two": (ma.alibi(slopes) + ma.relative(clipped), [slopes, clipped]),
        "chosen by the head": (ma.where(head < 2, ma.alibi(slopes), 0.5), [slopes]),
        "chosen by the key": (
            ma.where(of_key == 1, ma.softcap(2.0) @ ma.relative(clipped), ma.alibi(slopes)),
            [slopes, clipped],
        ),
        "a network of the distance": (ma.fire(fire), [*layers, *distance]),
        "one in two places": (
            ma.relative(clipped) + bias(ma.table(clipped)[head, kv_idx % 15]),
            [clipped],
        ),
    }
    mask = causal & (sliding(length // 2) | ma.prefix(3))
    return {name: (mask + term, tables) for name, (term, tables) in added.items()}


def bias(entry):
    """An entry of a table, added to the score."""
    return ma.Bias(nodes.TRUE, nodes.add(nodes.SCORE, entry.node), entry_label(entry))


def entry_label(entry):
    return named(str(entry))


def compared(inputs, score, tables, backend, weight=ma.softmax):
    """Output, and the gradients of inputs and tables, of one weighted sum."""
    out = ma.attention(*inputs, score, backend=backend, weight=weight)
    generator = torch.Generator().manual_seed(3)
    change = torch.randn(out.shape, generator=generator).to(out.device)
    return [out, *torch.autograd.grad((out.double() * change).sum(), [*inputs, *tables])]


SOFTPLUS = ma.Weight("softplus", ma.score(lambda s, b, h, q, k: torch.log1p(torch.exp(s))))


def cancelling(backend, dtype, mean, length, device="cpu", weight=ma.softmax):
    """Gradients of slopes and of a table of distances, whose terms cancel: relative errors."""
    generator = torch.Generator().manual_seed(3)
    q, k, v, change = (
        torch.randn(1, 2, length, 32, generator=generator).to(device, dtype) for _ in range(4)
    )
    v = v + mean
    entries = [torch.tensor([0.01, 0.002]), torch.linspace(-1, 1, 64).view(32, 2)]

    def gradients(wide, backend):
        leaves = [x.to(device, wide).clone().requires_grad_() for x in entries]
        score = causal & sliding(500) + ma.alibi(leaves[0]) + ma.t5(leaves[1])
        inputs = [x.double() if wide == torch.float64 else x for x in (q, k, v)]
        if weight is ma.softmax:
            out, lse = ma.attention(*inputs, score, return_lse=True, backend=backend)
            loss = lse.double().sin().sum()
        else:
            out, loss = ma.attention(*inputs, score, weight=weight, backend=backend), 0
        loss = loss + (out.double() * change.double()).sum()
        return torch.autograd.grad(loss, leaves)

    exact = gradients(torch.float64, "reference")
    found = gradients(torch.float32, backend)
    return [
        float((got - wanted).norm() / wanted.norm())
        for got, wanted in zip(found, exact, strict=True)
    ]
