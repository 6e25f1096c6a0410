"""Random expressions over hundreds of positions: every kind of mask and bias, composed by seed."""

import random

import torch

import maskalg as ma

BATCH, HEADS = 2, 4


class _Draw:
    """Draws the parts of one expression for given lengths; everything follows from the seed."""

    def __init__(self, seed, q_len, kv_len):
        self.random = random.Random(seed)
        self.tensors = torch.Generator().manual_seed(seed)
        self.q_len, self.kv_len = q_len, kv_len
        self.longest = max(q_len, kv_len)

    def upto(self, most):
        """Small numbers as often as large ones."""
        return max(1, int(most ** self.random.random()))

    def integers(self, low, high, *shape):
        return torch.randint(low, high + 1, shape, generator=self.tensors)

    def reals(self, *shape):
        return torch.randn(*shape, generator=self.tensors)

    def lead(self):
        """None, or the sizes in front of a table that is read by batch entry or by head."""
        return self.random.choice([None, None, "batch", "head"])

    def ids(self):
        lead = self.lead()
        rows = {None: (), "batch": (BATCH,), "head": (HEADS,)}[lead]
        longest = self.longest
        found = self.integers(0, self.random.choice([2, 5, 40]), *rows, longest)
        if self.random.random() < 0.7:
            found = found.sort(dim=-1).values
        return ma.document(found) if lead != "head" else self.by_head(found)

    def by_head(self, ids):
        table = ma.table(ids, "ids")
        return table[ma.head, ma.q_idx] == table[ma.head, ma.kv_idx]

    def lengths(self):
        return ma.padding(self.integers(0, self.longest, BATCH), queries=self.random.random() < 0.5)

    def prefix(self):
        return ma.prefix(self.integers(0, self.longest // 2, BATCH))

    def stripes(self):
        period = self.random.randint(2, 50)
        index = self.random.choice([ma.q_idx, ma.kv_idx, ma.q_idx - ma.kv_idx])
        rest = index % period
        return rest != 1 if self.random.random() < 0.5 else rest < self.random.randint(1, period)

    def pieces(self):
        size = self.random.randint(3, 200)
        q, k = ma.q_idx // size, ma.kv_idx // self.random.choice([size, 2 * size])
        return self.random.choice([q >= k, q == k, (q - k) % 3 != 1])

    def window(self):
        left, right = self.upto(self.longest), self.upto(self.longest)
        windows = [ma.sliding(left), ma.window(left, right), ma.window(left, None)]
        return self.random.choice(windows)

    def per_head(self):
        return ma.kv_idx <= ma.q_idx + (ma.head - 1) * self.random.randint(1, 100)

    def image(self):
        height = self.random.randint(4, 24)
        width = -(-self.longest // height)
        window = [self.random.randrange(1, side + 1, 2) for side in (height, width)]
        window[0] = min(window[0], (height - 1) | 1 if height % 2 else height - 1)
        window[1] = min(window[1], (width - 1) | 1 if width % 2 else width - 1)
        return ma.neighborhood((height, width), tuple(window))

    def blocks(self):
        side = self.random.choice([16, 50, 64, 128])
        shape = (-(-self.q_len // side), -(-self.kv_len // side))
        lead = self.random.choice([(), (BATCH, 1), (BATCH, HEADS), (1, HEADS)])
        kept = torch.rand(*lead, *shape, generator=self.tensors) < 0.4
        return ma.block_table(kept, side)

    def pairs(self):
        return ma.dense(torch.rand(self.q_len, self.kv_len, generator=self.tensors) < 0.7)

    def scattered(self):
        return ma.table(torch.rand(self.longest, generator=self.tensors) < 0.5, "kept")[ma.kv_idx]

    def real_condition(self):
        heights = ma.table(self.reals(self.longest), "heights")
        return heights[ma.q_idx] + 0.5 > heights[ma.kv_idx]

    def atom(self):
        kinds = [
            lambda: ma.causal,
            lambda: ma.causal,
            lambda: ma.everything,
            self.window,
            self.window,
            lambda: ma.chunked(self.upto(300)),
            lambda: ma.dilated(self.random.randint(2, 9)),
            lambda: ma.block_causal(self.upto(300)),
            lambda: ma.global_tokens(self.integers(0, self.upto(40), self.longest) == 0),
            self.ids,
            self.ids,
            self.lengths,
            self.prefix,
            self.stripes,
            self.pieces,
            self.per_head,
            self.image,
            self.blocks,
            self.pairs,
            self.scattered,
            self.real_condition,
        ]
        return self.random.choice(kinds)()

    def mask(self, depth):
        if not depth:
            return self.atom()
        left, right = self.mask(depth - 1), self.mask(self.random.randrange(depth))
        how = self.random.choice(["and", "and", "or", "not", "where", "shift"])
        if how == "and":
            return left & right
        if how == "or":
            return left | right
        if how == "not":
            return left & ~right
        if how == "where":
            return ma.where(ma.head < 2, left, right)
        return left & ma.causal.shift(q=self.random.randint(0, 60))

    def bias(self):
        """Small enough for softmax rows to stay wide, which half precision needs."""
        kinds = [
            lambda: ma.alibi(0.05 * self.reals(HEADS).abs()),
            lambda: ma.t5(self.reals(32, HEADS)),
            lambda: ma.relative(self.reals(HEADS, 2 * self.random.randint(1, 90) + 1)),
            lambda: ma.dense_bias(self.reals(HEADS, self.q_len, self.kv_len)),
            lambda: ma.key_bias(self.reals(BATCH, 1, self.kv_len)),
            lambda: ma.bias(0.003 * (ma.kv_idx - ma.q_idx)),
            lambda: ma.kerple_log(torch.rand(HEADS, generator=self.tensors), torch.rand(HEADS)),
            lambda: ma.softcap(3.0),
            lambda: ma.softcap(3.0) @ ma.alibi(0.05 * self.reals(HEADS).abs()),
        ]
        return self.random.choice(kinds)()


def composition(seed, q_len, kv_len, device="cpu"):
    """A mask, and with two seeds of three a bias, for BATCH entries and HEADS heads."""
    draw = _Draw(seed, q_len, kv_len)
    expression = draw.mask(draw.random.randint(0, 2))
    for _ in range(seed % 3):
        expression = expression + draw.bias()
    return expression.to(device)


def lengths(seed):
    """Lengths of queries and keys: equal, or not."""
    draw = random.Random(seed + 7)
    q_len = draw.randint(1, 900)
    return q_len, q_len if draw.random() < 0.6 else draw.randint(1, 1500)
