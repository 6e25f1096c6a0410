"""A serving engine in miniature: a Llama of transformers over one pool of pages.

Requests wait, are admitted, share the pages of a prompt's beginning, give up their pages when the
pool is full, and finish. A step computes them all in one call: chunks of prompts, and the newest
token of each text with a tree of drafts behind it. `tree(parents, past)` is the mask of both, since
a chunk is a tree without branches. `python examples/serve.py` prints:

    10 requests in 18 steps, 79 drafts accepted,
    6 pages shared, 3 requests preempted; one of the masks:
    tree(end[10, 12], prompt[10]).shift(q=q_shift[10])
    each request has the tokens of a run alone: [61, 34, 35, 33, 61, 38, 16, 16] …
"""

from __future__ import annotations

from collections import Counter, deque
from dataclasses import dataclass, field

import torch
from transformers import AttentionInterface, LlamaConfig, LlamaForCausalLM

import maskalg as ma
from maskalg import tree

PAGE, CHUNK = 8, 24  # tokens of a page, and of a prompt in one step


@dataclass
class Plan:
    """Tokens of a request's next step, as a tree: a chunk of its text, drafts behind its end."""

    tokens: list[int]
    parents: list[int]
    known: int  # tokens of the text; the rest are drafts

    def child(self, parent: int, token: int) -> int | None:
        """The draft that continues with a token, if there is one."""
        drafts = range(self.known, len(self.tokens))
        found = (i for i in drafts if (self.parents[i], self.tokens[i]) == (parent, token))
        return next(found, None)

    def add(self, after: int, drafted: list[int]) -> None:
        for token in drafted:
            found = self.child(after, token)
            if found is None:
                found = len(self.tokens)
                self.tokens.append(token)
                self.parents.append(after)
            after = found


@dataclass(eq=False)
class Request:
    tokens: list[int]  # the prompt, and behind it what was written
    length: int  # tokens at which it is finished
    pages: list[int] = field(default_factory=list)
    kept: int = 0  # tokens whose keys lie in the pages

    def plan(self) -> Plan:
        chunk = self.tokens[self.kept : self.kept + CHUNK]
        plan = Plan(chunk, list(range(-1, len(chunk) - 1)), len(chunk))
        if self.kept + len(chunk) == len(self.tokens):
            # Drafts: what followed the last two tokens where they stood before, twice at most.
            text = self.tokens
            before = [n for n in range(2, len(text)) if text[n - 2 : n] == text[-2:]]
            for n in before[-2:]:
                plan.add(plan.known - 1, text[n : n + 4])
        return plan

    def rows(self, count: int) -> list[int]:
        """Rows of the pool for its next keys."""
        places = range(self.kept, self.kept + count)
        return [self.pages[n // PAGE] * PAGE + n % PAGE for n in places]

    def places(self, plan: Plan) -> list[int]:
        """Positions of the tokens: each one further than its parent."""
        found: list[int] = []
        for parent in plan.parents:
            found.append(found[parent] + 1 if parent >= 0 else self.kept)
        return found


@dataclass
class Step:
    """What the layers share: one mask and one table of pages."""

    pool: torch.Tensor
    rows: torch.Tensor
    mask: ma.Mask
    pages: ma.Pages


def attend(module, query, key, value, attention_mask, scaling, step, **others):  # type: ignore[no-untyped-def]
    keys, values = step.pool[module.layer_idx]
    for pool, new in ((keys, key), (values, value)):
        pool.flatten(0, 1)[step.rows] = new[0].transpose(0, 1)
    out = ma.attention(query, keys, values, step.mask, scale=scaling, pages=step.pages)
    return out.transpose(1, 2), None


AttentionInterface.register("pages", attend)


def padded(rows: list[list[int]]) -> torch.Tensor:
    longest = max(map(len, rows))
    return torch.tensor([row + [-1] * (longest - len(row)) for row in rows])


class Engine:
    """Requests wait in order, and the youngest gives way: so the oldest always goes on."""

    def __init__(self, model: LlamaForCausalLM, pages: int) -> None:
        c = model.config
        shape = (c.num_hidden_layers, 2, pages, PAGE, c.num_key_value_heads, c.head_dim)
        self.model, self.pool = model, torch.zeros(shape)
        self.free, self.uses = list(range(pages)), Counter[int]()
        self.ends: dict[tuple[int, ...], int] = {}  # the page in which the keys of a text end
        self.waiting, self.running = deque[Request](), list[Request]()
        self.counts = Counter[str]()

    def admit(self) -> None:
        """Requests for which there is room now, with the pages that others have filled already."""
        while self.waiting:
            request, shared = self.waiting[0], list[int]()
            for end in range(PAGE, len(request.tokens), PAGE):
                if (page := self.ends.get(tuple(request.tokens[:end]))) is None:
                    break
                shared.append(page)
            if len(request.tokens) // PAGE + 1 - len(shared) > len(self.free):
                return
            request.pages, request.kept = shared, PAGE * len(shared)
            self.uses.update(shared)
            self.counts["shared"] += len(shared)
            self.running.append(self.waiting.popleft())

    def release(self, request: Request) -> None:
        self.running.remove(request)
        self.uses.subtract(request.pages)
        unused = {page for page in request.pages if not self.uses[page]}
        self.free += unused
        self.ends = {text: page for text, page in self.ends.items() if page not in unused}
        request.pages, request.kept = [], 0

    def reserve(self, request: Request, length: int) -> bool:
        """Pages for this many keys. Where none are free, the youngest request begins again."""
        while len(request.pages) * PAGE < length:
            if self.free:
                request.pages.append(self.free.pop())
                self.uses[request.pages[-1]] += 1
                continue
            youngest = self.running[-1]
            self.release(youngest)
            self.waiting.appendleft(youngest)
            self.counts["preempted"] += 1
            if youngest is request:
                return False
        return True

    def step(self) -> ma.Mask:
        self.admit()
        plans = []
        for request in list(self.running):
            if request in self.running:  # still
                plan = request.plan()
                if self.reserve(request, request.kept + len(plan.tokens)):
                    plans.append((request, plan))
        counts = [len(plan.tokens) for _, plan in plans]
        past = torch.tensor([request.kept for request, _ in plans])
        starts = torch.tensor([0, *counts]).cumsum(0)
        table = padded([request.pages for request, _ in plans])
        pages = ma.Pages(table, past + torch.tensor(counts), starts, max(counts))
        rows = [row for request, plan in plans for row in request.rows(len(plan.tokens))]
        mask = tree(padded([plan.parents for _, plan in plans]), past).shift(q=past)
        out = self.model(
            torch.tensor([[token for _, plan in plans for token in plan.tokens]]),
            position_ids=torch.tensor([[place for r, plan in plans for place in r.places(plan)]]),
            use_cache=False,
            step=Step(self.pool, torch.tensor(rows), mask, pages),
        )
        chosen = out.logits[0].argmax(-1).split(counts)
        for (request, plan), tokens in zip(plans, chosen, strict=True):
            self.accept(request, plan, tokens.tolist())
        self.counts["steps"] += 1
        return mask

    def accept(self, request: Request, plan: Plan, chosen: list[int]) -> None:
        """Write on along the drafts that the model chooses too, and one token further."""
        path: list[int] = list(range(plan.known))
        if request.kept + plan.known == len(request.tokens):
            here: int | None = path[-1]
            while here is not None:
                token = chosen[here]
                request.tokens.append(token)
                here = plan.child(here, token)
                path += [] if here is None else [here]
        # Keys of the path move to where they belong; those of other drafts are written over.
        rows, pool = request.rows(len(plan.tokens)), self.pool.flatten(2, 3)
        pool[:, :, rows[: len(path)]] = pool[:, :, [rows[i] for i in path]]
        request.kept += len(path)
        self.counts["drafted"] += len(path) - plan.known
        for n, page in enumerate(request.pages[: request.kept // PAGE], 1):
            self.ends.setdefault(tuple(request.tokens[: n * PAGE]), page)
        if len(request.tokens) >= request.length:
            del request.tokens[request.length :]
            self.release(request)


@torch.no_grad()
def main() -> None:
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=64, hidden_size=64, intermediate_size=64, num_hidden_layers=2,
        num_attention_heads=4, num_key_value_heads=2, initializer_range=0.08,
        eos_token_id=None, attn_implementation="pages",
    )  # fmt: skip
    model = LlamaForCausalLM(config).eval()
    system, *own = (torch.randint(64, (n,)).tolist() for n in (20, 9, 3, 14, 40, 6, 1, 21, 8, 5, 2))
    engine = Engine(model, pages=52)
    requests = [Request(system + prompt, len(system + prompt) + 20) for prompt in own]
    engine.waiting.extend(requests)
    masks = []
    while engine.waiting or engine.running:
        masks.append(engine.step())
    n = engine.counts
    print(f"{len(requests)} requests in {n['steps']} steps, {n['drafted']} drafts accepted,")
    print(f"{n['shared']} pages shared, {n['preempted']} requests preempted; one of the masks:")
    print(masks[2])
    model.set_attn_implementation("eager")
    for prompt, request in zip(own, requests, strict=True):
        ids = torch.tensor([system + prompt])
        assert request.tokens == model.generate(ids, max_new_tokens=20, do_sample=False)[0].tolist()
    print("each request has the tokens of a run alone:", requests[0].tokens[29:37], "…")


if __name__ == "__main__":
    main()
