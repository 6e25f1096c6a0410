"""T5: learned biases on buckets of distances, one table for all layers of a stack.

The encoder sees both sides and drops padding, the decoder is causal. Both tables are learned. No
matrix of length x length is made, forward or backward.
`python examples/t5_relative_bias.py` prints:

    encoder: padding(lengths[2]) + t5(table[32, 4])
      output and gradients equal T5's; 31 of 32 buckets learn
    decoder: causal + t5(table[32, 4], bidirectional=False)
      output and gradients equal T5's; 32 of 32 buckets learn
"""

import math

import torch
import torch.nn.functional as F
from torch import nn

import maskalg as ma
from maskalg import causal, padding, t5

LENGTH, HEADS, DIM, BUCKETS = 300, 4, 64, 32


class Stack(nn.Module):
    """Layers of self-attention that share a table of biases, as T5's do; T5 does not scale."""

    def __init__(self, decoder: bool) -> None:
        super().__init__()
        self.decoder = decoder
        self.relative_attention_bias = nn.Embedding(BUCKETS, HEADS)
        self.layers = nn.ModuleList([nn.Linear(DIM, 3 * DIM, bias=False) for _ in range(2)])
        for project in self.layers:
            nn.init.normal_(project.weight, std=DIM**-0.5 * (DIM // HEADS) ** -0.25)

    def forward(self, x: torch.Tensor, lengths: torch.Tensor) -> torch.Tensor:
        bias = t5(self.relative_attention_bias.weight, bidirectional=not self.decoder)
        mask = causal if self.decoder else padding(lengths)
        for project in self.layers:
            q, k, v = project(x).unflatten(-1, (3, HEADS, -1)).transpose(1, 3).unbind(2)
            x = x + ma.attention(q, k, v, mask + bias, scale=1.0).transpose(1, 2).flatten(2)
        return x


def dense(stack: Stack, x: torch.Tensor, lengths: torch.Tensor) -> torch.Tensor:
    """The same with the matrix of biases that T5 makes."""
    place = torch.arange(LENGTH)
    ahead = place - place[:, None]
    count = BUCKETS if stack.decoder else BUCKETS // 2
    distance = (-ahead).clamp(min=0) if stack.decoder else ahead.abs()
    near = count // 2
    growth = torch.log(distance.clamp(min=1).float() / near) / math.log(128 / near)
    far = (near + (growth * (count - near)).long()).clamp(max=count - 1)
    bucket = torch.where(distance < near, distance, far)
    if not stack.decoder:
        bucket = bucket + count * (ahead > 0)
    kept = (ahead <= 0) if stack.decoder else (place < lengths[:, None, None, None])
    bias = stack.relative_attention_bias(bucket).permute(2, 0, 1)
    bias = bias.where(kept, float("-inf")).expand(len(x), -1, -1, -1)
    for project in stack.layers:
        q, k, v = project(x).unflatten(-1, (3, HEADS, -1)).transpose(1, 3).unbind(2)
        out = F.scaled_dot_product_attention(q, k, v, attn_mask=bias, scale=1.0)
        x = x + out.transpose(1, 2).flatten(2)
    return x


def main() -> None:
    torch.manual_seed(0)
    x, lengths = torch.randn(2, LENGTH, DIM), torch.tensor([300, 120])
    for name, stack in (("encoder", Stack(decoder=False)), ("decoder", Stack(decoder=True))):
        parameters = list(stack.parameters())
        bias = t5(stack.relative_attention_bias.weight, bidirectional=not stack.decoder)
        print(f"{name}: {(causal if stack.decoder else padding(lengths)) + bias}")
        out, wanted = stack(x, lengths), dense(stack, x, lengths)
        torch.testing.assert_close(out, wanted, atol=1e-4, rtol=1e-4)
        gradients = torch.autograd.grad(out.square().mean(), parameters)
        by_hand = torch.autograd.grad(wanted.square().mean(), parameters)
        for found, expected in zip(gradients, by_hand, strict=True):
            torch.testing.assert_close(found, expected, atol=1e-5, rtol=1e-3)
        moved = int((gradients[0] != 0).any(1).sum())
        print(f"  output and gradients equal T5's; {moved} of {BUCKETS} buckets learn")


if __name__ == "__main__":
    main()
