"""NaN and infinities in inputs: what they may reach, and what the same call gives without them."""

import torch

import maskalg as ma

WILD = (torch.nan, torch.inf, -torch.inf)


def with_wild_rows(tensor, rows, kinds=WILD):
    """A copy with one number of each of these rows of a kind, in every batch entry; which rows
    differs from head to head."""
    tensor = tensor.clone()
    heads, length, dim = tensor.shape[1:]
    for head in range(heads):
        for i, row in enumerate(rows):
            row = (row + 3 * head) % length
            tensor[:, head, row, (7 * i + head) % dim] = kinds[(i + head) % len(kinds)]
    return tensor


def finite(tensor, also=None):
    """Rows that are finite, 0 in place of others; and which are not."""
    wild = ~tensor.isfinite().all(-1)
    wild = wild if also is None else wild | also
    return torch.where(wild[..., None], 0, tensor), wild


def attended(inputs, expression, change, of_lse, learned=(), **options):
    """Output and lse, and gradients of the inputs and of what is learned."""
    inputs = [tensor.detach().requires_grad_() for tensor in inputs]
    with_lse = of_lse is not None
    found = ma.attention(*inputs, expression, return_lse=with_lse, **options)
    results, changes = ([*found], [change, of_lse]) if with_lse else ([found], [change])
    gradients = torch.autograd.grad(results, [*inputs, *learned], changes)
    return [*[result.detach() for result in results], *gradients]


def check(
    mask, inputs, rows, *, bias=None, lse=True, learned=(), queries=WILD, whole=True, **options
):
    """Rows of the output, of the lse and of gradients are NaN where they keep what is not finite.

    All others are those of finite inputs, to the bit.

    Args:
        rows: that are made wild, of queries, keys, values and the output's gradient.
        lse: whether the lse is returned, with a gradient.
        learned: tensors of the expression and of the weight.
        queries: kinds of numbers in queries; a bias may be finite at infinite scores.
        whole: whether all of a row is NaN.
    """
    expression = mask if bias is None else mask + bias
    query, key, value = inputs
    batch, heads, q_len, _ = query.shape
    change = torch.randn(batch, heads, q_len, value.shape[-1]).to(query)
    of_lse = torch.randn(batch, heads, q_len).to(query.device) if lse else None
    wild = [with_wild_rows(t, r) for t, r in zip((*inputs, change), rows, strict=True)]
    wild[0] = with_wild_rows(query, rows[0], queries)
    safe = {"nan_safe": True, **options}
    found = attended(wild[:3], expression, wild[3], of_lse, learned, **safe)

    keep = mask.to_dense(q_len, key.shape[2], batch=batch, heads=heads).to(query.device)
    keep = keep.expand(batch, heads, q_len, key.shape[2])
    key, of_keys = finite(wild[1], also=finite(wild[2])[1])
    value = finite(wild[2], also=of_keys)[0]
    query, of_queries = finite(wild[0])
    change, of_change = finite(wild[3])
    group = heads // key.shape[1]
    kept_wild = keep & of_keys.repeat_interleave(group, 1)[:, :, None]
    some = keep.any(-1)
    no_number = kept_wild.any(-1) | (of_queries & some)
    spoiled = no_number | (of_change & some)
    reached = (keep & spoiled[..., None]).any(2).unflatten(1, (-1, group)).any(2)
    change = torch.where(spoiled[..., None], 0, change)
    of_lse = None if of_lse is None else torch.where(spoiled, 0, of_lse)
    wanted = attended([query, key, value], expression, change, of_lse, learned, **options)

    marks = [*([no_number] * (1 + lse)), spoiled, reached, reached]
    for got, want, mark in zip(found, wanted, marks, strict=False):
        assert want.isfinite().all() or want.dim() == 3
        assert got[mark].isnan().all() or not whole
        assert torch.equal(got[~mark], want[~mark])
    for got, want in zip(found[len(marks) :], wanted[len(marks) :], strict=True):
        assert got.isnan().any() if spoiled.any() else torch.equal(got, want)
    return spoiled, reached
