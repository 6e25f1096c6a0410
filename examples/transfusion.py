"""Transfusion: one sequence of text and images, read from left to right, images seen whole.

Text is predicted token by token, images are denoised, by one transformer and one loss. The mask is
`causal | spans(ids)`. `python examples/transfusion.py` prints:

    causal | spans(ids[2, 256])
    BlockMap(q_len=256, kv_len=256, block=(64, 64), empty=8, partial=12, full=12, evaluated=0)
    loss of text 4.815, images 1.261; with a dense mask text 4.815, images 1.261
    gradients equal those of a dense mask
"""

import torch
import torch.nn.functional as F
from torch import nn

import maskalg as ma
from maskalg import causal, spans

HEADS, DIM, VOCABULARY, CHANNELS, IMAGE = 4, 64, 100, 8, 64
TEXT = -1


class Transfusion(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.words = nn.Embedding(VOCABULARY, DIM)
        self.patches, self.times = nn.Linear(CHANNELS, DIM), nn.Linear(1, DIM)
        self.project = nn.Linear(DIM, 3 * DIM, bias=False)
        self.mix = nn.Linear(DIM, DIM, bias=False)
        self.logits, self.noise = nn.Linear(DIM, VOCABULARY), nn.Linear(DIM, CHANNELS)

    def forward(
        self, tokens: torch.Tensor, noisy: torch.Tensor, time: torch.Tensor, ids: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Logits and predicted noise of every position.

        Args:
            tokens: `[batch, length]`; what stands at an image is not read.
            noisy: `[batch, length, CHANNELS]`, noisy patches; what stands at text is not read.
            time: `[batch, length]`, how noisy.
            ids: `[batch, length]`, the image of each position, TEXT for text.
        """
        image = self.patches(noisy) + self.times(time[..., None])
        x = torch.where(ids[..., None] == TEXT, self.words(tokens), image)
        q, k, v = self.project(x).unflatten(-1, (3, HEADS, -1)).transpose(1, 3).unbind(2)
        x = x + self.mix(self.mixed(q, k, v, ids).transpose(1, 2).flatten(2))
        return self.logits(x), self.noise(x)

    def mixed(
        self, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, ids: torch.Tensor
    ) -> torch.Tensor:
        return ma.attention(q, k, v, causal | spans(ids))


class Dense(Transfusion):
    """The same with a matrix, for comparison."""

    def mixed(
        self, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, ids: torch.Tensor
    ) -> torch.Tensor:
        one_image = (ids[:, :, None] == ids[:, None, :]) & (ids[:, None, :] != TEXT)
        kept = one_image | torch.ones_like(one_image).tril()
        return F.scaled_dot_product_attention(q, k, v, attn_mask=kept[:, None])


def layout(*parts: int) -> torch.Tensor:
    """Which image each position belongs to: counts of text tokens, with images between them."""
    pieces = [torch.full((parts[0],), TEXT)]
    for image, words in enumerate(parts[1:]):
        pieces += [torch.full((IMAGE,), image), torch.full((words,), TEXT)]
    return torch.cat(pieces)


def main() -> None:
    torch.manual_seed(0)
    ids = torch.stack([layout(30, 50, 48), layout(100, 10, 18)])  # two images in each row
    tokens = torch.randint(VOCABULARY, ids.shape)
    clean, noise = torch.randn(2, *ids.shape, CHANNELS)
    time = torch.rand(2, 2).gather(1, ids.clamp(min=0))  # a time for each image
    noisy = (1 - time[..., None]).sqrt() * clean + time[..., None].sqrt() * noise

    losses = []
    model = Transfusion()
    dense = Dense()
    dense.load_state_dict(model.state_dict())
    for each in (model, dense):
        logits, predicted = each(tokens, noisy, time, ids)
        after = ids[:, 1:] == TEXT
        text = F.cross_entropy(logits[:, :-1][after], tokens[:, 1:][after])
        image = F.mse_loss(predicted[ids != TEXT], noise[ids != TEXT])
        (text + 5 * image).backward()
        losses.append(f"text {text:.3f}, images {image:.3f}")
    mask = causal | spans(ids)
    print(mask)
    print(mask.blocks(ids.shape[1], block=64))
    print(f"loss of {losses[0]}; with a dense mask {losses[1]}")
    for ours, theirs in zip(model.parameters(), dense.parameters(), strict=True):
        torch.testing.assert_close(ours.grad, theirs.grad, atol=1e-6, rtol=1e-4)
    print("gradients equal those of a dense mask")


if __name__ == "__main__":
    main()
