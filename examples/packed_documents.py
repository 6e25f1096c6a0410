"""Training steps on packed documents: every batch has other documents, and needs no new proof.

Documents of any length share a row of the batch. Each token sees at most 64 tokens up to itself,
and only those of its own document. The window and the learned ALiBi slopes belong to the layer, the
documents to the batch. `python examples/packed_documents.py` prints:

    Attention(causal & sliding(64) + alibi(slopes[4]))
    step 0: 20 documents, loss 1.013, gradients as with a dense bias
    step 1: 29 documents, loss 1.021, gradients as with a dense bias
    step 2: 22 documents, loss 1.018, gradients as with a dense bias
    proofs after the first step: 0
"""

import torch
import torch.nn.functional as F
from torch import nn

import maskalg as ma
from maskalg import alibi, causal, document, sliding
from maskalg.proof.proof import proofs_made

ROWS, LENGTH, HEADS, DIM, WINDOW = 2, 512, 4, 64, 64


class SelfAttention(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        slopes = nn.Parameter(2.0 ** -torch.arange(1, HEADS + 1))
        self.project = nn.Linear(DIM, 3 * DIM, bias=False)
        self.attention = ma.nn.Attention(causal & sliding(WINDOW) + alibi(slopes))
        self.out = nn.Linear(DIM, DIM, bias=False)

    def forward(self, x: torch.Tensor, ids: torch.Tensor) -> torch.Tensor:
        q, k, v = self.project(x).unflatten(-1, (3, HEADS, -1)).transpose(1, 3).unbind(2)
        return self.out(self.attention(q, k, v, document(ids)).transpose(1, 2).flatten(2))

    def dense(self, x: torch.Tensor, ids: torch.Tensor) -> torch.Tensor:
        """The same with a bias of LENGTH x LENGTH numbers for each row and head."""
        q, k, v = self.project(x).unflatten(-1, (3, HEADS, -1)).transpose(1, 3).unbind(2)
        place = torch.arange(LENGTH)
        behind = place[:, None] - place
        kept = (behind >= 0) & (behind < WINDOW) & (ids[:, :, None] == ids[:, None, :])
        bias = -self.attention.slopes[:, None, None] * behind
        bias = bias.where(kept[:, None], float("-inf"))
        out = F.scaled_dot_product_attention(q, k, v, attn_mask=bias)
        return self.out(out.transpose(1, 2).flatten(2))


def packed() -> torch.Tensor:
    """Rows filled with documents of random lengths: the document of each token `[ROWS, LENGTH]`."""
    starts = torch.rand(ROWS, LENGTH) < 0.02
    return starts.cumsum(1)


def main() -> None:
    torch.manual_seed(0)
    layer = SelfAttention()
    optimizer = torch.optim.SGD(layer.parameters(), lr=0.5)
    print(layer.attention)
    proofs = []
    for step in range(3):
        x, ids = torch.randn(ROWS, LENGTH, DIM), packed()
        # A toy task: repeat the token before.
        target = x.roll(1, 1)
        loss = F.mse_loss(layer(x, ids), target)
        dense = F.mse_loss(layer.dense(x, ids), target)
        wanted = torch.autograd.grad(dense, list(layer.parameters()))
        optimizer.zero_grad()
        loss.backward()
        proofs.append(proofs_made())
        for parameter, gradient in zip(layer.parameters(), wanted, strict=True):
            torch.testing.assert_close(parameter.grad, gradient, atol=1e-6, rtol=1e-4)
        optimizer.step()
        count = int(ids.amax(1).sum()) + ROWS
        print(f"step {step}: {count} documents, loss {loss:.3f}, gradients as with a dense bias")
    print("proofs after the first step:", proofs[-1] - proofs[0])


if __name__ == "__main__":
    main()
