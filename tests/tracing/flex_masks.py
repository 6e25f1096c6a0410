"""FlexAttention masks as people write them: closures over numbers and tensors, nested functions.

What the functions of attn-gym and of PyTorch's own tests do, written anew from their formulas.
"""

import math

import torch
from torch.nn.attention.flex_attention import and_masks, noop_mask, or_masks

N = 40
OFFSETS = torch.tensor([0, 7, 19, 33, N])
IDS = torch.repeat_interleave(torch.arange(4), OFFSETS.diff())
FLAGS = torch.arange(N) % 9 == 4
CHUNK = 6
EXPONENT = 2
TICKS = 1_700_000_000 + 3 * torch.arange(64)


def causal(b, h, q_idx, kv_idx):
    return q_idx >= kv_idx


def back(window):
    def within(b, h, q_idx, kv_idx):
        return q_idx - kv_idx <= window

    return and_masks(within, causal)


def restarting(inner):
    """A mask on positions that start anew in each document."""

    def mask(b, h, q, k):
        of_query, of_key = q - OFFSETS[IDS[q]], k - OFFSETS[IDS[k]]
        return (IDS[q] == IDS[k]) & inner(b, h, of_query, of_key)

    return mask


def shared_prefix(parent):
    def mask(b, h, q, k):
        own = IDS[q]
        other = parent[own]
        inside = (k >= OFFSETS[other]) & (k < OFFSETS[other + 1])
        return ((k >= OFFSETS[own]) & causal(b, h, q, k)) | ((own != other) & inside)

    return mask


def dilated(window, step):
    def mask(b, h, q, k):
        far = torch.abs(q - k)
        return (far <= window) & ((far % step) == 0)

    return mask


def long_and_global(radius, flags):
    return or_masks(
        lambda b, h, q, k: (q - k).abs() <= radius, lambda b, h, q, k: flags[q] | flags[k]
    )


def batches(inner, size):
    def mask(b, h, q, k):
        return (q // size == k // size) & inner(b, h, q % size, k % size)

    return mask


def block_diffusion(length, block):
    def mask(b, h, q, k):
        noisy_q, noisy_k = q < length, k < length
        of_q, of_k = (q % length) // block, (k % length) // block
        own = (of_q == of_k) & (noisy_q == noisy_k)
        earlier = (of_q > of_k) & noisy_q & ~noisy_k
        return own | earlier | ((of_q >= of_k) & ~noisy_q & ~noisy_k)

    return mask


def media(intervals, tokens):
    owner = torch.repeat_interleave(torch.arange(len(intervals)), tokens)

    def mask(b, h, q, k):
        interval = intervals[owner[k]]
        return (q >= interval[0]) & (q < interval[1])

    return mask


def tree(prompt, ancestors):
    nodes = ancestors.shape[0]

    def mask(b, h, q, k):
        at = (k - prompt).clamp(min=0, max=nodes - 1)
        inside = (k >= prompt) & (k < prompt + nodes)
        return (k < prompt) | (inside & ancestors[q, at])

    return mask


def draft_blocks(prompt, block):
    def mask(b, h, q, k):
        rest = k - prompt
        own = (q // block == rest // block) & (rest % block <= q % block)
        return (k < prompt) | ((k >= prompt) & own)

    return mask


def neighborhood(width, height, span_x, span_y, coordinates=None):
    def mask(b, h, q, k):
        split = coordinates or (lambda i: (i // width, i % width))
        q_x, q_y = split(q)
        k_x, k_y = split(k)
        x = q_x.clamp(span_x // 2, (width - 1) - span_x // 2)
        y = q_y.clamp(span_y // 2, (height - 1) - span_y // 2)
        near_x = (x - span_x // 2 <= k_x) & (k_x <= x + span_x // 2)
        return near_x & (y - span_y // 2 <= k_y) & (k_y <= y + span_y // 2)

    return mask


def tiles(width, tile_x, tile_y):
    def split(i):
        tile, rest = i // (tile_x * tile_y), i % (tile_x * tile_y)
        y, x = tile // (width // tile_x), tile % (width // tile_x)
        return x * tile_x + rest % tile_x, y * tile_y + rest // tile_x

    return split


def every_second_bit(code):
    code = code & 0x55555555
    for step, kept in ((1, 0x33333333), (2, 0x0F0F0F0F), (4, 0x00FF00FF)):
        code = (code | (code >> step)) & kept
    return code


def morton(i):
    return every_second_bit(i), every_second_bit(i >> 1)


def morton_code(x, y):
    def spread(v):
        for step, kept in ((4, 0x0F0F0F0F), (2, 0x33333333), (1, 0x55555555)):
            v = (v | (v << step)) & kept
        return v

    return spread(x) | (spread(y) << 1)


def sliding_tile(canvas, kernel, tile, text):
    (height, width), (kernel_h, kernel_w), (tile_h, tile_w) = canvas, kernel, tile
    columns, picture = width // tile_w, height * width

    def border(size):
        return size // 2, size // 2 + (size % 2 - 1)

    def mask(b, h, q, k):
        inside = None
        for split, size, count in (
            (lambda i: i // (tile_h * tile_w) // columns, kernel_h // tile_h, height // tile_h),
            (lambda i: i // (tile_h * tile_w) % columns, kernel_w // tile_w, columns),
        ):
            left, right = border(size)
            centre = split(q).clamp(left, (count - 1) - right)
            near = (split(k) >= centre - left) & (split(k) <= centre + right)
            inside = near if inside is None else inside & near
        seen, shown = q < picture, k < picture
        words = (k >= picture) & (k < picture + text)
        return (seen & shown & inside) | (seen & words) | (~seen & (k < picture + text))

    return mask


def spatial(prompt, frame, width, rounding, sink):
    def down(size):
        return math.floor(size / rounding) * rounding

    def mask(b, h, q, k):
        first = k < prompt + frame if sink else k < prompt
        return first | (q < prompt) | (torch.abs(q - k) < down(width * frame))

    return mask


def temporal(prompt, frames, frame, width):
    def place(i, start):
        return (i - start) % frame

    def mask(b, h, q, k):
        near = torch.abs(place(q, prompt) - place(k, prompt)) < (width * frame) // frames
        return (k < prompt) | (q < prompt) | near

    return mask


def chosen_tiles(chosen, tile, sizes=None):
    def mask(b, h, q, k):
        found = (chosen[b, h, q // tile] == (k // tile).unsqueeze(-1)).any(dim=-1)
        return found if sizes is None else found & (k % tile < sizes[k // tile])

    return mask


def chunks(b, h, q_idx, kv_idx):
    """A number from the globals."""
    return q_idx // CHUNK >= kv_idx // CHUNK


def loops(steps):
    """Python needs the number: it becomes a constant."""

    def mask(b, h, q, k):
        kept = q == k
        for step in range(1, steps + 1):
            kept = kept | (k == q - step * step)
        return kept

    return mask


def functions(b, h, q, k):
    """Functions and methods instead of operators."""
    kept = torch.logical_and(torch.ge(q, k), torch.logical_not(torch.eq(k % 5, 3)))
    other = q.lt(k).logical_and(torch.sub(k, q).le(2)).logical_or((k * 3).eq(q))
    odd = torch.bitwise_xor(kept, other) | torch.logical_xor(h > 1, q.remainder(4).ne(0))
    return torch.where(b == 0, odd, torch.minimum(q, k).gt(torch.maximum(h, b) + 4))


def divisions(b, h, q, k):
    """Signs: torch's floor division and remainder, and those that truncate."""
    d = q - k
    floors = (d // 4 >= -2) & (torch.remainder(d, 3) != 1) & (d // -5 <= 1) & (d % -3 > -2)
    cut = torch.div(d, 4, rounding_mode="trunc") + torch.fmod(d, 3)
    return floors | (cut == -3) | (torch.sign(d) * (d >> 1) == 2)


def before(b, h, q, k):
    """A negative index counts from the end, as torch's does."""
    return (IDS[q - 1] == IDS[k]) | FLAGS[k - q] | FLAGS[-3] & (q < 2)


def towards_zero(b, h, q, k):
    """A divisor below 0."""
    quotient = torch.div(q, -3, rounding_mode="trunc")
    return (quotient >= -k) | (torch.fmod(q - k, -3) == 1)


def slices(b, h, q, k):
    """A negative index into a slice counts from the end of the slice."""
    return (OFFSETS[1:][-1] > q + k) & (OFFSETS[:3][-2] < k) | (OFFSETS[1:4][q % 4 - 2] == k)


def powers(b, h, q, k):
    """Of integers, exactly: beyond 24 bits, and 0 where the exponent is negative."""
    return (((q + 4096) ** EXPONENT) % 2 == 0) & (2 ** (EXPONENT - q) * 8 >= k)


def single_values(b, h, q, k):
    """Reductions of one value, and sums and products of truth values."""
    some = (q & 4).any() == (k > 3)
    counted = ~((q > k).sum()) == -2
    return some & counted | ((q > k) + (q > 3) == 2) | (q < k) * (k > 30)


def rounded_sums(b, h, q, k):
    """Constants are not folded, and no factor is distributed: each operation rounds."""
    return ((q + 1e9) - 1e9 >= k) | ((q - k) * 0.1 >= 0.3) & (q * 3 * 0.1 < k)


def sums_in_order(b, h, q, k):
    """A sum in parentheses is rounded before it is added to another one, a product likewise."""
    apart = (TICKS[q] - TICKS[k]) + 0.5 < 10
    late = (0.5 + TICKS[q]) - TICKS[k] < 10
    share = (q * 0.3) * (q / (k + 1)) / 3 > 0.5
    return (apart & share) | (late & ~share) | (q * 0.3 - (k / 7 + 0.3) == k * 0.1 - (q / 3 - 0.7))


class Windowed:
    """Attributes of a callable object."""

    def __init__(self, window, sinks):
        self.window, self.sinks = window, sinks

    def near(self, q, k):
        return q - k < self.window

    def __call__(self, b, h, q, k):
        return (self.near(q, k) | self.sinks[k]) & causal(b, h, q, k)


def with_default(b, h, q, k, *, left=4, right=2):
    return (q - k <= left) & (k - q <= right)


def masks():
    torch.manual_seed(0)
    ancestors = torch.eye(6, dtype=torch.bool) | (torch.rand(6, 6) > 0.6).tril()
    chosen = torch.randint(0, 5, (2, 4, 5, 2))
    per_head = torch.tensor([2, 5, 9, 40])
    return {
        "noop": noop_mask,
        "causal": causal,
        "back": back(9),
        "prefix": or_masks(lambda b, h, q, k: k < CHUNK, causal),
        "documents": restarting(causal),
        "documents-prefix": restarting(or_masks(lambda b, h, q, k: k < 3, causal)),
        "packed": lambda b, h, q, k: (k >= OFFSETS[IDS[q]]) & causal(b, h, q, k),
        "shared-prefix": shared_prefix(torch.tensor([0, 0, 2, 2])),
        "dilated": dilated(11, 3),
        "global": long_and_global(4, FLAGS),
        "batches": batches(causal, 12),
        "block-diffusion": block_diffusion(20, 4),
        "media": media(torch.tensor([[0, 9], [5, 22], [22, 40]]), 14),
        "tree": (tree(20, ancestors), 6, 26),
        "draft-blocks": (draft_blocks(10, 5), 30, 40),
        "neighborhood": (neighborhood(6, 6, 3, 3), 36, 36),
        "neighborhood-tiled": (neighborhood(8, 4, 3, 3, tiles(8, 4, 2)), 32, 32),
        "neighborhood-morton": (neighborhood(4, 4, 3, 3, morton), 16, 16),
        "sliding-tile": (sliding_tile((6, 4), (4, 2), (2, 2), 5), 29, 29),
        "spatial": spatial(6, 9, 2, 4, False),
        "spatial-sink": spatial(6, 9, 1, 4, True),
        "temporal": temporal(6, 3, 9, 2),
        "chosen-tiles": chosen_tiles(chosen, 8),
        "chosen-tiles-padded": chosen_tiles(chosen, 8, torch.tensor([8, 5, 8, 1, 8])),
        "chunks": chunks,
        "loops": loops(4),
        "functions": functions,
        "divisions": divisions,
        "before": before,
        "exact-remainders": lambda b, h, q, k: (q * 0.3) % 2 >= (k * 0.1) % 0.5 + k // 4.0,
        "constants-like": lambda b, h, q, k: torch.full_like(FLAGS[q].half(), 0.5) * k < q,
        "method": lambda b, h, q, k: (q >= k).where(q % 2 == 0, q < k),
        "towards-zero": towards_zero,
        "slices": slices,
        "powers": powers,
        "single-values": single_values,
        "rounded-sums": rounded_sums,
        "sums-in-order": sums_in_order,
        "object": Windowed(5, FLAGS),
        "bound-method": Windowed(5, FLAGS).__call__,
        "default": with_default,
        "per-head": lambda b, h, q, k: (q - k).abs() < per_head[h],
        "per-batch": lambda b, h, q, k: (k < torch.tensor([7, 30])[b]) & (k + b <= q + h),
        "dense": lambda b, h, q, k: (torch.arange(N * N).view(N, N) % 7 > 2)[q, k],
        "code": lambda b, h, q, k: morton_code(q % 4, k % 4) > 6,
        "everything": lambda b, h, q, k: True,
    }
