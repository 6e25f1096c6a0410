"""Sigmoid attention: each key is weighed by itself, and no row is normalised.

w(s) = 1 / (1 + exp(-s - b)), with b = -log(length) to start like a softmax. Here b and the ALiBi
slopes are learned. Masks and biases work as with a softmax.
`python examples/sigmoid_attention.py` prints:

    causal & sliding(200) + alibi(slopes[4]) with sigmoid
    output and gradients equal those of dense float64 attention
    softmax: weights of 1 key sum to 1.000, of 100 keys to 1.000
    sigmoid: weights of 1 key sum to 0.002, of 100 keys to 0.249
"""

import math

import torch
from torch import nn

import maskalg as ma
from maskalg import alibi, causal, sliding

LENGTH, HEADS, DIM, WINDOW = 400, 4, 64, 200


class SigmoidAttention(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.project = nn.Linear(DIM, 3 * DIM, bias=False)
        self.slopes = nn.Parameter(2.0 ** -torch.arange(1, HEADS + 1))
        self.bias = nn.Parameter(torch.full((HEADS,), -math.log(LENGTH)))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        q, k, v = self.project(x).unflatten(-1, (3, HEADS, -1)).transpose(1, 3).unbind(2)
        score = causal & sliding(WINDOW) + alibi(self.slopes)
        out = ma.attention(q, k, v, score, weight=ma.sigmoid(self.bias))
        return out.transpose(1, 2).flatten(2)

    def dense(self, x: torch.Tensor) -> torch.Tensor:
        q, k, v = self.project(x).unflatten(-1, (3, HEADS, -1)).transpose(1, 3).unbind(2)
        behind = torch.arange(LENGTH)[:, None] - torch.arange(LENGTH)
        scores = q @ k.mT / (DIM // HEADS) ** 0.5 - self.slopes[:, None, None] * behind
        weights = torch.sigmoid(scores + self.bias[:, None, None])
        kept = (behind >= 0) & (behind < WINDOW)
        return (weights.where(kept, 0.0) @ v).transpose(1, 2).flatten(2)


def main() -> None:
    torch.manual_seed(0)
    layer, x = SigmoidAttention(), torch.randn(2, LENGTH, DIM)
    out = layer(x)
    print(causal & sliding(WINDOW) + alibi(layer.slopes), "with", ma.sigmoid(layer.bias))
    gradients = torch.autograd.grad(out.square().mean(), list(layer.parameters()))

    double = SigmoidAttention().double()
    double.load_state_dict(layer.state_dict())
    wanted = double.dense(x.double())
    torch.testing.assert_close(out, wanted.float())
    by_hand = torch.autograd.grad(wanted.square().mean(), list(double.parameters()))
    for found, expected in zip(gradients, by_hand, strict=True):
        torch.testing.assert_close(found, expected.float(), atol=1e-7, rtol=1e-4)
    print("output and gradients equal those of dense float64 attention")

    # Unlike a softmax, a key's weight does not depend on which other keys are kept.
    v = torch.ones(1, 1, LENGTH, 1)
    q = k = torch.zeros(1, 1, LENGTH, 16)
    sums = {
        name: ma.attention(q, k, v, causal, weight=weight)[0, 0, [0, 99], 0].tolist()
        for name, weight in (("softmax", ma.softmax), ("sigmoid", ma.sigmoid(-math.log(LENGTH))))
    }
    for name, (first, hundredth) in sums.items():
        print(f"{name}: weights of 1 key sum to {first:.3f}, of 100 keys to {hundredth:.3f}")


if __name__ == "__main__":
    main()
