"""Layers that see a window and layers that see everything, in turn, as in Gemma and gpt-oss.

Layers differ by one expression. The documents of a packed batch are built once a step and passed to
all layers. `python examples/local_and_global_layers.py` prints:

    layer 0: causal & sliding(128) + softcap(50.0) skips 83% of the blocks
    layer 1: causal & sliding(128) + softcap(50.0) skips 83% of the blocks
    layer 2: causal + softcap(50.0)               skips 70% of the blocks
    layer 3: causal & sliding(128) + softcap(50.0) skips 83% of the blocks
    layer 4: causal & sliding(128) + softcap(50.0) skips 83% of the blocks
    layer 5: causal + softcap(50.0)               skips 70% of the blocks
    output of the last layer equals dense float64 attention's
"""

import torch
import torch.nn.functional as F
from torch import nn

import maskalg as ma
from maskalg import causal, document, sliding, softcap

LENGTH, HEADS, DIM, WINDOW, LAYERS, EVERY = 1024, 4, 64, 128, 6, 3


class Layer(nn.Module):
    def __init__(self, score: ma.Score) -> None:
        super().__init__()
        self.norm = nn.RMSNorm(DIM)
        self.project = nn.Linear(DIM, 3 * DIM, bias=False)
        self.attention = ma.nn.Attention(score)
        self.out = nn.Linear(DIM, DIM, bias=False)

    def forward(self, x: torch.Tensor, documents: ma.Mask) -> torch.Tensor:
        q, k, v = self.project(self.norm(x)).unflatten(-1, (3, HEADS, -1)).transpose(1, 3).unbind(2)
        return x + self.out(self.attention(q, k, v, documents).transpose(1, 2).flatten(2))


class Model(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        everywhere, near = causal + softcap(50.0), causal & sliding(WINDOW) + softcap(50.0)
        self.layers = nn.ModuleList(
            [Layer(everywhere if i % EVERY == EVERY - 1 else near) for i in range(LAYERS)]
        )

    def forward(self, x: torch.Tensor, ids: torch.Tensor) -> torch.Tensor:
        documents = document(ids)
        for layer in self.layers:
            x = layer(x, documents)
        return x


def dense(model: Model, x: torch.Tensor, ids: torch.Tensor) -> torch.Tensor:
    """The same in float64 with matrices of scores."""
    behind = torch.arange(LENGTH)[:, None] - torch.arange(LENGTH)
    own = (behind >= 0) & (ids[:, None] == ids)
    for i, layer in enumerate(model.layers):
        kept = own if i % EVERY == EVERY - 1 else own & (behind < WINDOW)
        q, k, v = (
            layer.project(layer.norm(x)).unflatten(-1, (3, HEADS, -1)).transpose(1, 3).unbind(2)
        )
        scores = 50.0 * torch.tanh(q @ k.mT / (DIM // HEADS) ** 0.5 / 50.0)
        weights = F.softmax(scores.where(kept, float("-inf")), dim=-1)
        x = x + layer.out((weights @ v).transpose(1, 2).flatten(2))
    return x


def main() -> None:
    torch.manual_seed(0)
    model, x = Model(), torch.randn(1, LENGTH, DIM)
    ids = torch.arange(3).repeat_interleave(torch.tensor([600, 100, 324]))
    for i, layer in enumerate(model.layers):
        mask = layer.attention.score.mask & document(ids)
        dropped = mask.blocks(LENGTH, block=64).sparsity
        print(f"layer {i}: {layer.attention.score!r:36} skips {dropped:.0%} of the blocks")
    with torch.no_grad():
        out = model(x, ids)
        torch.testing.assert_close(out, dense(model.double(), x.double(), ids).float())
    print("output of the last layer equals dense float64 attention's")


if __name__ == "__main__":
    main()
