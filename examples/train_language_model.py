"""Train a small language model on real text, with maskalg and with dense attention.

The text is Python's standard library, byte by byte; its functions and classes are the documents,
packed into rows of 2048 bytes in an order of their own each epoch. Both runs start from one seed
and see the same rows, so their losses are equal; one of them computes only what the documents
leave. Run it: `python examples/train_language_model.py --steps 40`.
"""

import argparse
import random
import sysconfig
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor, nn

import maskalg as ma
from maskalg import alibi, causal, document

LENGTH, LAYERS, HEADS, DIM = 2048, 2, 4, 128
MODULES = ("abc", "bisect", "cmd", "functools", "heapq", "operator", "queue", "sched", "shelve")
SLOPES = 2.0 ** -torch.arange(2.0, 2 * HEADS + 1, 2)
Attend = Callable[[Tensor, Tensor, Tensor, Tensor], Tensor]


def masked(q: Tensor, k: Tensor, v: Tensor, ids: Tensor) -> Tensor:
    return ma.attention(q, k, v, causal & document(ids) + alibi(SLOPES))


def dense(q: Tensor, k: Tensor, v: Tensor, ids: Tensor) -> Tensor:
    place = torch.arange(LENGTH)
    behind = place[:, None] - place
    kept = (behind >= 0) & (ids[:, None] == ids)
    bias = (-SLOPES[:, None, None] * behind).where(kept, float("-inf"))
    return F.scaled_dot_product_attention(q, k, v, attn_mask=bias)


class Block(nn.Module):
    def __init__(self, attend: Attend) -> None:
        super().__init__()
        self.attend = attend
        self.norms = nn.ModuleList([nn.LayerNorm(DIM), nn.LayerNorm(DIM)])
        self.project, self.out = nn.Linear(DIM, 3 * DIM), nn.Linear(DIM, DIM)
        self.mlp = nn.Sequential(nn.Linear(DIM, 4 * DIM), nn.GELU(), nn.Linear(4 * DIM, DIM))

    def forward(self, x: Tensor, ids: Tensor) -> Tensor:
        parts = self.project(self.norms[0](x)).unflatten(-1, (3, HEADS, -1))
        q, k, v = parts.transpose(1, 3).unbind(2)
        x = x + self.out(self.attend(q, k, v, ids).transpose(1, 2).flatten(2))
        return x + self.mlp(self.norms[1](x))


class LanguageModel(nn.Module):
    def __init__(self, attend: Attend) -> None:
        super().__init__()
        self.embed = nn.Embedding(256, DIM)
        self.blocks = nn.ModuleList([Block(attend) for _ in range(LAYERS)])
        self.norm, self.logits = nn.LayerNorm(DIM), nn.Linear(DIM, 256)

    def forward(self, tokens: Tensor, ids: Tensor) -> Tensor:
        x = self.embed(tokens)
        for block in self.blocks:
            x = block(x, ids)
        return self.logits(self.norm(x))


def read_documents() -> list[bytes]:
    """What stands between two empty lines at the top level of the modules."""
    folder = Path(sysconfig.get_path("stdlib"))
    texts = [(folder / f"{name}.py").read_bytes() for name in MODULES]
    return [part + b"\n" for text in texts for part in text.split(b"\n\n\n") if part]


def rows(documents: list[bytes]) -> Iterator[tuple[Tensor, Tensor]]:
    """Tokens and the document of each, both `[LENGTH + 1]`, without end."""
    shuffle, tokens, ids, count = random.Random(0), [], [], 0
    while True:
        for each in shuffle.sample(documents, len(documents)):
            tokens += each
            ids += [count] * len(each)
            count += 1
            while len(tokens) > LENGTH:
                yield torch.tensor(tokens[: LENGTH + 1]), torch.tensor(ids[: LENGTH + 1])
                del tokens[:LENGTH], ids[:LENGTH]


def train(attend: Attend, documents: list[bytes], steps: int) -> tuple[list[float], float]:
    """The loss of each step, and the seconds of all but the first."""
    torch.manual_seed(0)
    model, batches, losses = LanguageModel(attend), rows(documents), []
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    start = time.perf_counter()
    for step in range(steps):
        tokens, ids = next(batches)
        logits = model(tokens[None, :-1], ids[:-1])[0]
        target = tokens[1:].where(ids[1:] == ids[:-1], -100)  # a new document is not predicted
        loss = F.cross_entropy(logits, target, ignore_index=-100)
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        losses.append(float(loss.detach()))
        if step == 0:
            start = time.perf_counter()
    return losses, time.perf_counter() - start


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description="Train a small language model, twice.")
    parser.add_argument("--steps", type=int, default=40)
    steps = parser.parse_args(arguments).steps
    documents = read_documents()
    print(f"measured: {sum(map(len, documents))} bytes in {len(documents)} documents")
    ours, our_time = train(masked, documents, steps)
    theirs, their_time = train(dense, documents, steps)
    print(f"measured: {their_time:.1f} {our_time:.1f}")
    for step in range(steps): print(step, ours[step], theirs[step], ours[step]-theirs[step])


if __name__ == "__main__":
    main()
