"""Several documents packed into one sequence, each token seeing 512 tokens of its own document.

Run it: `python examples/packed_documents.py`. The documents are sources of Python's standard
library, so that the numbers differ a little between versions of Python:

    4096 tokens of 4 documents
    (causal & sliding(512) & document(ids[4096])) + alibi(slopes[8])
    keys touched by queries q0..q1: max(first_ids(q0), q0 - window + 1) <= k <= q1
    keys dropped by one of them:    k <= start_ids(q1) - 1 or k <= q1 - window or q0 + 1 <= k
    BlockMap(q_len=4096, kv_len=4096, block=(128, 128), empty=892, partial=69, full=63, evaluated=0)
    largest difference from dense attention: 2e-06
"""

import abc
import bisect
import colorsys
import re
import reprlib
import sched
import shelve
from collections import Counter
from pathlib import Path

import torch

import maskalg as ma
from maskalg import alibi, causal, document, sliding

HEADS, HEAD_DIM, TOKENS = 8, 64, 4096


def main() -> None:
    torch.manual_seed(0)

    # Real text: a list of tokens for each document, numbered by frequency.
    sources = (abc, bisect, colorsys, reprlib, sched, shelve)
    texts = [Path(str(module.__file__)).read_text(encoding="utf-8") for module in sources]
    documents = [re.findall(r"\w+|[^\w\s]", text) for text in texts]
    packed = [token for tokens in documents for token in tokens][:TOKENS]
    number = {token: rank for rank, (token, _) in enumerate(Counter(packed).most_common())}
    ids = torch.arange(len(documents)).repeat_interleave(torch.tensor([len(d) for d in documents]))
    ids = ids[:TOKENS]
    print(f"{len(packed)} tokens of {int(ids[-1]) + 1} documents")

    # The mask and the bias: one expression.
    slopes = 2.0 ** (-8 * torch.arange(1, HEADS + 1) / HEADS)
    mask = causal & sliding(512) & document(ids)
    score = mask + alibi(slopes)
    print(score)
    proof = mask.prove()
    print("keys touched by queries q0..q1:", " or ".join(proof.touched))
    print("keys dropped by one of them:   ", " or ".join(proof.unfull))
    print(mask.blocks(TOKENS, block=128))

    # Attention of the embedded tokens.
    embedded = torch.randn(len(number), HEADS * HEAD_DIM)[[number[token] for token in packed]]
    projected = torch.randn(3, HEADS * HEAD_DIM, HEADS * HEAD_DIM) / (HEADS * HEAD_DIM) ** 0.5
    q, k, v = (embedded @ projected).view(3, 1, TOKENS, HEADS, HEAD_DIM).transpose(2, 3)
    out = ma.attention(q, k, v, score)

    # The same with a dense matrix of 16 million entries for each head.
    place = torch.arange(TOKENS)
    bias = slopes[:, None, None] * (place[None, :] - place[:, None])
    bias = bias.masked_fill(~mask.to_dense(TOKENS)[0], float("-inf"))
    dense = torch.nn.functional.scaled_dot_product_attention(q, k, v, attn_mask=bias)
    difference = float((out - dense).abs().max())
    print(f"largest difference from dense attention: {difference:.0e}")
    assert difference < 1e-5


if __name__ == "__main__":
    main()
