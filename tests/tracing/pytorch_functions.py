"""What the functions in PyTorch's own FlexAttention tests compute, each written from its formula.

Those that `flex_masks.py` and `flex_scores.py` hold already are not repeated.
"""

import functools

import torch
from torch.nn.attention.experimental._paged_attention import PagedAttention
from torch.nn.attention.flex_attention import and_masks, noop_mask, or_masks

B, H, N = 2, 4, 32
INFINITY = float("inf")


def causal(b, h, q, k):
    return q >= k


def causal_score(s, b, h, q, k):
    return torch.where(q >= k, s, -INFINITY)


def pages(batch=B, page=4):
    """A page table whose pages were reserved in turns, so that they are scattered."""
    table = PagedAttention(n_pages=24, page_size=page, max_batch_size=batch, device="cpu")
    for lengths in ((5, 9), (12, 20), (N, N)):
        for b, length in enumerate(lengths):
            table.reserve(torch.tensor(b), torch.tensor(length))
    return table


class ApplyMask(torch.autograd.Function):
    generate_vmap_rule = True

    @staticmethod
    def forward(score, kept):
        return torch.where(kept, score, -INFINITY)

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.mark_non_differentiable(inputs[1])

    @staticmethod
    def backward(ctx, gradient):
        return gradient, None


class Gated:
    """A learned bias by distance, between tokens after the registers, with a gate."""

    def __init__(self, registers=2):
        self.registers = torch.tensor(registers)
        self.places = torch.randint(0, 9, (N, N))
        self.biases = torch.randn(9, H)
        self.gamma = torch.sigmoid(torch.randn(H))
        self.of_query, self.of_key = torch.randn(B, H, 2, N).unbind(2)

    def score_mod(self, s, b, h, q, k):
        inside = (q >= self.registers) & (k >= self.registers)
        gate = self.gamma[h] * (self.of_query[b, h, q] + self.of_key[b, h, k])
        return s + inside.to(s.dtype) * gate * self.biases[self.places[q, k], h]


def masks():
    torch.manual_seed(0)
    ids = torch.arange(N) // 7
    per_batch = torch.stack([ids, torch.arange(N) // 16])
    lengths = torch.tensor([9, 20])
    shown = torch.rand(B, N) < 0.5
    offsets = torch.tensor([0, 1])
    dense = torch.ones(B, 1, N, N, dtype=torch.bool).tril()
    half, window, frame = N // 2, 9, 4
    now = torch.tensor(21)

    def without_heads(b, h, q, k):
        return dense[b, h.new_zeros(h.shape), q, k]

    def clamped_documents(b, h, q, k):
        return ids[q.clamp(0, ids.shape[0] - 1)] == ids[k.clamp(0, ids.shape[0] - 1)]

    def padded(b, h, q, k, input_lengths):
        return (q < input_lengths[b]) & (k < input_lengths[b])

    def frames(b, h, q, k):
        return q < (N // frame + half // frame) * frame

    def inside(b, h, q, k, size):
        return (q - k).abs() < size

    def shifted(inner, by):
        return lambda b, h, q, k: inner(b, h, q + by, k)

    return {
        "noop": noop_mask,
        "inverse causal": lambda b, h, q, k: q <= k,
        "causal within": and_masks(causal, lambda b, h, q, k: (q - k) <= window),
        "causal and its contrary": and_masks(causal, lambda b, h, q, k: q < k),
        "causal or its contrary": or_masks(causal, lambda b, h, q, k: q < k),
        "window of a sum": lambda b, h, q, k: (q >= k) & (q <= k + window),
        "beyond the window": lambda b, h, q, k: (q >= k) & (q - k > window),
        "ends": lambda b, h, q, k: (k < 8) | (k >= 24),
        "queries up to": lambda b, h, q, k: q < half,
        "even batches": lambda b, h, q, k: (q >= k) & (b % 2 == 0),
        "queries shown": lambda b, h, q, k: ~shown[b, q],
        "documents": lambda b, h, q, k: ids[q] == ids[k],
        "documents per batch": lambda b, h, q, k: per_batch[b, q] == per_batch[b, k],
        "causal documents": lambda b, h, q, k: (q >= k) & (ids[q] == ids[k]),
        "clamped documents": clamped_documents,
        "padded": functools.partial(padded, input_lengths=lengths),
        "offset": lambda b, h, q, k: (q + offsets[b] * 8) >= k,
        "real offset": lambda b, h, q, k: (q + offsets.float()[b] * 8) >= k,
        "without heads": without_heads,
        "frames": frames,
        "real size": functools.partial(inside, size=torch.tensor(3.5)),
        "decoding": shifted(causal, now),
        "paged": pages().get_mask_mod(causal),
        "paged, limited": pages().get_mask_mod(causal, kv_len=torch.tensor([20, 31])),
    }


def scores():
    torch.manual_seed(0)
    ids = torch.arange(N) // 7
    halves = torch.arange(N) >= N // 2
    offsets = torch.tensor([0, 7, 14, 21, 28])
    bidirectional = torch.tensor([4, 11], dtype=torch.int32)
    lengths = torch.arange(B, dtype=torch.int32) + 1
    of_head, of_batch, of_token = torch.randn(H), torch.randn(B), torch.randn(N)
    other_token, few = torch.randn(N), torch.randn(B, 8)
    pairs, whole = torch.randn(N, N), torch.randn(B, H, N, N)
    per_batch, per_head = torch.randn(B, N), torch.randn(H, N, N)
    four, between = torch.randn(4, B, H, N), torch.randn(B, H, 4, N)
    first, which = torch.tensor(0), torch.tensor(2)
    rows, width = torch.randn(B, H, N, 4), 8
    distances, sums, near = torch.randn(2 * N), torch.randn(2 * N), torch.randn(2 * 8 + 1)
    permuted = torch.randint(0, N, (N,))
    gate, mass = torch.randn(H), torch.ones(1, dtype=torch.float16) * 3
    one, batch = torch.ones((), dtype=torch.int32), 5
    places, scales = torch.randn(N, 3), torch.logspace(0.001, 0.1, H)
    tril = torch.ones(B, 1, N, N, dtype=torch.bool).tril()
    added = True

    def local(s, b, h, q, k):
        kept = (q >= k) & (ids[q] == ids[k])
        return torch.where(kept, s, -INFINITY)

    def all_dimensions(s, b, h, q, k):
        s = s + of_token[q]
        s = s + of_batch[b]
        return s + of_head[h]

    def neighborhood(s, b, h, q, k):
        (q_x, q_y), (k_x, k_y) = (q / width, q % width), (k / width, k % width)
        return torch.where(((q_x - k_x).abs() <= 3) | ((q_y - k_y).abs() <= 3), s, -INFINITY)

    def bounded(s, b, h, q, k):
        return torch.where(s <= lengths[b], causal_score(s, b, h, q, k), -INFINITY)

    def nested(s, b, h, q, k):
        return causal_score(s, b, h, q - offsets[ids[q]], k - offsets[ids[k]])

    def video(s, b, h, q, k):
        count = bidirectional[b]
        return torch.where((q <= count) & (k <= count) | (q >= k), s, -INFINITY)

    def branching(s, b, h, q, k):
        return s + one if added else s * one

    def euclidean(s, b, h, q, k):
        distance = (places[q] - places[k]).pow(2).sum(-1).sqrt()
        return torch.exp(-distance / scales[h]) * s

    def window_of_biases(s, b, h, q, k):
        return s + near[torch.clamp(q - k + 8, 0, 16)]

    def seen(s, b, h, q, k):
        return s + tril[b, h.new_zeros(h.shape), q, k]

    return {
        "causal documents": local,
        "two steps": lambda s, b, h, q, k: s + per_batch[b][q],
        "one of four": lambda s, b, h, q, k: s + four[0][b, h][q],
        "which of four": lambda s, b, h, q, k: s + between[b][h][first, q],
        "which, at once": lambda s, b, h, q, k: s + between[b, h, which, q],
        "odd keys": lambda s, b, h, q, k: torch.where(k % 2 == 0, s, -INFINITY),
        "composed": lambda s, b, h, q, k: torch.where(q <= k, s + (q - k), -INFINITY),
        "all dimensions": all_dimensions,
        "halves": lambda s, b, h, q, k: torch.where(halves[q] == halves[k], s, -INFINITY),
        "per batch": lambda s, b, h, q, k: s + whole[:, 0][b, q, k],
        "rows of a picture": lambda s, b, h, q, k: s + rows[b, h, q, k // width],
        "moved distance": lambda s, b, h, q, k: s + distances[(q - k) + N],
        "distance": lambda s, b, h, q, k: s + distances[torch.abs(q - k)],
        "sum": lambda s, b, h, q, k: s + sums[q + k],
        "video": video,
        "neighborhood": neighborhood,
        "a divisor of the key": lambda s, b, h, q, k: s - q // (1 + k),
        "bounded": bounded,
        "captured scale": lambda s, b, h, q, k: s + one,
        "branching": branching,
        "reduction": lambda s, b, h, q, k: s + few[b].sum(dim=-1),
        "nested": nested,
        "seen": seen,
        "multiplied": lambda s, b, h, q, k: s * of_token[q],
        "per head": lambda s, b, h, q, k: s + of_head[h],
        "transposed": lambda s, b, h, q, k: s + pairs[k, q],
        "transposed per head": lambda s, b, h, q, k: s + per_head[h, k, q],
        "row by row": lambda s, b, h, q, k: s + pairs[q][k],
        "near": window_of_biases,
        "indirect": lambda s, b, h, q, k: s + of_token[permuted[q]],
        "symmetric": lambda s, b, h, q, k: s + of_token[q] + of_token[k],
        "two biases": lambda s, b, h, q, k: s + of_token[q] + other_token[k],
        "gate": lambda s, b, h, q, k: s * torch.sigmoid(gate[h].to(torch.float32)),
        "captured size": lambda s, b, h, q, k: s + batch,
        "half precision": lambda s, b, h, q, k: s + torch.log(mass[0].float()),
        "reciprocal": lambda s, b, h, q, k: 1 / s,
        "logarithm where positive": lambda s, b, h, q, k: torch.where(s > 0, torch.log(s), s),
        "distance of places": euclidean,
        "gated by distance": Gated().score_mod,
        "paged": pages().get_score_mod(lambda s, b, h, q, k: s + (q - k)),
        "paged, causal": pages().get_score_mod(causal_score, kv_len=torch.tensor([20, 31])),
    }


def refused():
    """Functions without a formula, and the operation to be named."""
    places = torch.randn(N, 256)

    def long_rows(s, b, h, q, k):
        return s * torch.exp(-(places[q] - places[k]).pow(2).sum(-1).sqrt())

    return {
        "long rows": (long_rows, "128"),
        "autograd function": (
            lambda s, b, h, q, k: ApplyMask.apply(s, q <= k),
            "ApplyMask",
        ),
    }
