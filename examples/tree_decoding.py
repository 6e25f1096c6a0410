"""Tree decoding: a draft proposes a tree of tokens, the model checks the whole tree in one pass.

Keys and values of the prompt are in a cache, and the tokens of the tree are the queries after it.
So the mask is `tree(parents, prompt)`, shifted by the length of the cache. The best path is
accepted, and its keys stay in the cache. `python examples/tree_decoding.py` prints:

    tree(order[40], end[40], 60).shift(q=60)
    25 tokens in 9 passes over trees of 40
    the text equals that of plain decoding: [8, 21, 30, 35, 44, 13, 6, 39] …
"""

import torch
from torch import nn

import maskalg as ma
from maskalg import causal, tree

HEADS, DIM, VOCABULARY = 4, 64, 50
Cache = tuple[torch.Tensor, torch.Tensor]


class Model(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.words, self.places = nn.Embedding(VOCABULARY, DIM), nn.Embedding(512, DIM)
        self.project = nn.Linear(DIM, 3 * DIM, bias=False)
        self.logits = nn.Linear(DIM, VOCABULARY, bias=False)

    def forward(
        self, tokens: torch.Tensor, places: torch.Tensor, cache: Cache, mask: ma.Mask
    ) -> tuple[torch.Tensor, Cache]:
        """Logits of new tokens `[1, new]`, and the cache with their keys and values.

        `mask` is over positions of the cache; the new tokens are its last ones.
        """
        x = self.words(tokens) + self.places(places)
        q, k, v = self.project(x).unflatten(-1, (3, HEADS, -1)).transpose(1, 3).unbind(2)
        past = cache[0].shape[2]
        keys, values = torch.cat([cache[0], k], 2), torch.cat([cache[1], v], 2)
        out = ma.attention(q, keys, values, mask.shift(q=past))
        return self.logits(x + out.transpose(1, 2).flatten(2)), (keys, values)


def draft(model: Model, last: int, width: int, depth: int) -> tuple[list[int], list[int]]:
    """Tokens and parents of a tree: here likely successors by the embedding alone."""
    tokens, parents, level = [last], [-1], [0]
    for _ in range(depth):
        after = []
        for parent in level:
            likely = model.logits(model.words.weight[tokens[parent]]).topk(width).indices
            for token in likely.tolist():
                after.append(len(tokens))
                tokens.append(token)
                parents.append(parent)
        level = after
    return tokens, parents


def accepted(tokens: list[int], parents: list[int], chosen: list[int]) -> list[int]:
    """The path from the root along which each token is the one the model chose."""
    path = [0]
    while True:
        here = path[-1]
        children = [i for i, p in enumerate(parents) if p == here and tokens[i] == chosen[here]]
        if not children:
            return path
        path.append(children[0])


@torch.no_grad()
def main() -> None:
    torch.manual_seed(0)
    model = Model()
    empty = torch.zeros(1, HEADS, 0, DIM // HEADS)
    prompt = torch.randint(VOCABULARY, (1, 40))
    logits, cache = model(prompt, torch.arange(40), (empty, empty), causal)
    written, passes = [int(logits[0, -1].argmax())], 0
    while len(written) < 24:
        tokens, parents = draft(model, written[-1], width=3, depth=3)
        past = cache[0].shape[2]
        depth = [0] * len(tokens)
        for i, parent in enumerate(parents[1:], 1):
            depth[i] = depth[parent] + 1
        logits, grown = model(
            torch.tensor([tokens]), past + torch.tensor(depth), cache, tree(parents, past)
        )
        chosen = logits[0].argmax(-1).tolist()
        path = accepted(tokens, parents, chosen)
        written += [chosen[i] for i in path]
        stay = torch.cat([torch.arange(past), past + torch.tensor(path)])
        cache = (grown[0][:, :, stay], grown[1][:, :, stay])
        passes += 1
    print(tree(parents, past).shift(q=past))
    print(f"{len(written)} tokens in {passes} passes over trees of {len(tokens)}")

    # The same text, one token after the other.
    text = prompt
    for _ in written:
        logits, _ = model(text, torch.arange(text.shape[1]), (empty, empty), causal)
        text = torch.cat([text, logits[:, -1:].argmax(-1)], 1)
    assert text[0, 40:].tolist() == written
    print("the text equals that of plain decoding:", written[:8], "…")


if __name__ == "__main__":
    main()
