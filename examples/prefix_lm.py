"""A prefix language model: prompts are seen from both sides, answers from left to right.

Each row of the batch has a prompt of its own length, and padding after its answer. The lengths are
arguments of the mask, so other lengths need no new proof. `python examples/prefix_lm.py` prints:

    (causal | prefix(prefix[3])) & padding(lengths[3])
    BlockMap(q_len=256, kv_len=256, block=(64, 64), empty=21, partial=12, full=15, evaluated=0)
    loss 4.777 over 409 tokens of answers
    logits equal those of a dense mask
    a change of token 39 reaches back to token 0
    a change of token 41 reaches back to token 41
"""

import torch
import torch.nn.functional as F
from torch import nn

import maskalg as ma
from maskalg import causal, padding, prefix

LENGTH, HEADS, DIM, VOCABULARY = 256, 4, 64, 100


class PrefixLM(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(VOCABULARY, DIM)
        self.project = nn.Linear(DIM, 3 * DIM, bias=False)
        self.out = nn.Linear(DIM, VOCABULARY, bias=False)

    def forward(self, tokens: torch.Tensor, mask: ma.Mask | torch.Tensor) -> torch.Tensor:
        """Logits `[batch, length, vocabulary]`; a tensor as mask takes torch's dense attention."""
        x = self.embed(tokens)
        q, k, v = self.project(x).unflatten(-1, (3, HEADS, -1)).transpose(1, 3).unbind(2)
        if isinstance(mask, torch.Tensor):
            mixed = F.scaled_dot_product_attention(q, k, v, attn_mask=mask)
        else:
            mixed = ma.attention(q, k, v, mask)
        return self.out(x + mixed.transpose(1, 2).flatten(2))


def main() -> None:
    torch.manual_seed(0)
    tokens = torch.randint(VOCABULARY, (3, LENGTH))
    prompts, ends = torch.tensor([40, 100, 7]), torch.tensor([256, 180, 120])
    model = PrefixLM()

    mask = (causal | prefix(prompts)) & padding(ends)
    logits = model(tokens, mask)

    # Tokens behind the prompt and before the padding are predicted from those before them.
    place = torch.arange(LENGTH)
    answer = (place >= prompts[:, None]) & (place < ends[:, None])
    loss = F.cross_entropy(logits[:, :-1][answer[:, 1:]], tokens[:, 1:][answer[:, 1:]])
    print(mask)
    print(mask.blocks(LENGTH, block=64))
    print(f"loss {loss:.3f} over {int(answer[:, 1:].sum())} tokens of answers")

    q, k = place[:, None], place
    kept = ((q >= k) | (k < prompts[:, None, None])) & (k < ends[:, None, None])
    torch.testing.assert_close(logits, model(tokens, kept[:, None]), atol=1e-5, rtol=1e-5)
    print("logits equal those of a dense mask")

    # A token of the prompt changes what earlier tokens compute, one of the answer does not.
    for place in (39, 41):
        changed = tokens.clone()
        changed[0, place] = (tokens[0, place] + 1) % VOCABULARY
        moved = (model(changed, mask)[0] != logits[0]).any(-1).nonzero()
        print(f"a change of token {place} reaches back to token {int(moved.min())}")


if __name__ == "__main__":
    main()
