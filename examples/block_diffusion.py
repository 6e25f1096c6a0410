"""Block diffusion (BD3-LM): denoise all blocks of a text at once, each given the clean ones before.

Training puts the noisy text and the clean text into one sequence, so that one pass replaces a pass
for each block. `python examples/block_diffusion.py` prints:

    block_diffusion(128, 16)
    BlockMap(q_len=256, kv_len=256, block=(16, 16), empty=184, partial=0, full=72, evaluated=0)
    loss 5.071 over 134 hidden tokens
    one pass equals 8 passes, a block each
    clean half, blocks of one token, is causal: True
"""

import torch
import torch.nn.functional as F
from torch import nn

import maskalg as ma
from maskalg import block_causal, block_diffusion, causal

LENGTH, BLOCK, HEADS, DIM, VOCABULARY = 128, 16, 4, 64, 100
MASKED = VOCABULARY  # the token that hides another


class Denoiser(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.words, self.places = nn.Embedding(VOCABULARY + 1, DIM), nn.Embedding(LENGTH, DIM)
        self.layers = nn.ModuleList([nn.Linear(DIM, 3 * DIM) for _ in range(2)])
        self.logits = nn.Linear(DIM, VOCABULARY)

    def forward(self, tokens: torch.Tensor, places: torch.Tensor, mask: ma.Mask) -> torch.Tensor:
        """Logits `[batch, length, VOCABULARY]`."""
        x = self.words(tokens) + self.places(places)
        for project in self.layers:
            q, k, v = project(x).unflatten(-1, (3, HEADS, -1)).transpose(1, 3).unbind(2)
            x = x + ma.attention(q, k, v, mask).transpose(1, 2).flatten(2)
        return self.logits(x)


def at_once(model: Denoiser, noisy: torch.Tensor, clean: torch.Tensor) -> torch.Tensor:
    """Logits of the noisy half."""
    places = torch.arange(LENGTH).repeat(2)
    both = model(torch.cat([noisy, clean], 1), places, block_diffusion(LENGTH, BLOCK))
    return both[:, :LENGTH]


def block_by_block(model: Denoiser, noisy: torch.Tensor, clean: torch.Tensor) -> torch.Tensor:
    """The same in a pass for each block, as it is generated: clean blocks, then the noisy one."""
    found = []
    for start in range(0, LENGTH, BLOCK):
        end = start + BLOCK
        tokens = torch.cat([clean[:, :start], noisy[:, start:end]], 1)
        found.append(model(tokens, torch.arange(end), block_causal(BLOCK))[:, start:])
    return torch.cat(found, 1)


def main() -> None:
    torch.manual_seed(0)
    model = Denoiser()
    clean = torch.randint(VOCABULARY, (2, LENGTH))
    hidden = torch.rand(2, LENGTH) < 0.5
    noisy = clean.masked_fill(hidden, MASKED)

    logits = at_once(model, noisy, clean)
    loss = F.cross_entropy(logits[hidden], clean[hidden])
    loss.backward()
    mask = block_diffusion(LENGTH, BLOCK)
    print(mask)
    print(mask.blocks(2 * LENGTH, block=BLOCK))
    print(f"loss {loss:.3f} over {int(hidden.sum())} hidden tokens")
    with torch.no_grad():
        wanted = block_by_block(model, noisy, clean)
    torch.testing.assert_close(logits.detach(), wanted, atol=1e-5, rtol=1e-4)
    print(f"one pass equals {LENGTH // BLOCK} passes, a block each")

    # With blocks of one token a clean half is a language model's.
    half = block_diffusion(LENGTH, 1).shift(q=LENGTH, kv=LENGTH)
    print("clean half, blocks of one token, is causal:", ma.equivalent(half, causal))


if __name__ == "__main__":
    main()
