"""Training steps whose masks are built anew: nothing is proved, compiled or read back again."""

import functools
from unittest import mock

import pytest
import torch
from torch._dynamo.testing import CompileCounterWithBackend
from torch._subclasses import FakeTensorMode
from torch.utils.checkpoint import (
    CheckpointPolicy,
    checkpoint,
    create_selective_checkpoint_contexts,
)

import maskalg as ma
from maskalg import alibi, causal, document, prefix, proof, sliding

from .cases import assert_close, assert_equal

LENGTH, HEADS, DIM = 70, 4, 8
FORWARD = torch.ops.maskalg.attention_forward.default


@pytest.fixture(autouse=True)
def fresh():
    torch.manual_seed(0)
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()


class Layer(torch.nn.Module):
    """Slopes that learn, a window of its own, and the documents and the prompt of a batch."""

    def __init__(self, context=None):
        super().__init__()
        self.context = context
        self.project = torch.nn.Linear(HEADS * DIM, 3 * HEADS * DIM)
        slopes = torch.nn.Parameter(torch.rand(HEADS))
        self.attention = ma.nn.Attention(causal & sliding(9) + alibi(slopes))

    def forward(self, x, ids, prompts):
        if self.context is None:
            return self.attend(x, ids, prompts)
        return checkpoint(
            self.attend, x, ids, prompts, use_reentrant=False, context_fn=self.context
        )

    def attend(self, x, ids, prompts):
        parts = self.project(x).unflatten(-1, (3, HEADS, DIM)).transpose(1, 3).unbind(2)
        mask = document(ids) & (causal | prefix(prompts))
        return x + self.attention(*parts, mask).transpose(1, 2).flatten(2)


def batches(count=4):
    """Inputs, documents of other layouts, and prompts, all new."""
    for _ in range(count):
        ids = (torch.rand(2, LENGTH) < 0.1).cumsum(1)
        yield torch.randn(2, LENGTH, HEADS * DIM), ids, torch.randint(1, 30, (2,))


def step(model, optimizer, batch):
    optimizer.zero_grad()
    loss = model(*batch).square().mean()
    loss.backward()
    optimizer.step()
    return loss.detach()


def trained(model, run=step):
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    losses = [run(model, optimizer, batch) for batch in batches()]
    return [*losses, *[p.detach() for p in model.parameters()]]


def copy_of(model, **changes):
    other = Layer(**changes)
    other.load_state_dict(model.state_dict())
    return other


def test_steps_prove_nothing_after_the_first():
    model = Layer()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    first, *others = batches()
    step(model, optimizer, first)
    refused = mock.patch.object(proof.proof, "_prove", side_effect=AssertionError("a proof"))
    with refused:
        for batch in others:
            step(model, optimizer, batch)


def test_steps_compile_nothing_after_the_first():
    model = Layer()
    counter = CompileCounterWithBackend("aot_eager")
    compiled = torch.compile(copy_of(model), backend=counter, fullgraph=True)
    graphs = []

    def counted(*arguments):
        loss = step(*arguments)
        graphs.append(counter.frame_count)
        return loss

    torch.manual_seed(1)
    found = trained(compiled, counted)
    torch.manual_seed(1)
    assert_equal(found, trained(model))
    assert graphs == [1, 1, 1, 1]


def test_steps_of_other_lengths_compile_twice():
    counter = CompileCounterWithBackend("aot_eager")
    model = torch.compile(Layer(), backend=counter, fullgraph=True)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    graphs = []
    for (x, ids, prompts), length in zip(batches(5), (70, 64, 51, 33, 70), strict=True):
        step(model, optimizer, (x[:, :length], ids[:, :length], prompts))
        graphs.append(counter.frame_count)
    assert graphs == [1, 2, 2, 2, 2]


BUILT = {
    "documents": lambda ids, numbers: document(ids),
    "lengths": lambda ids, numbers: document.from_lengths(numbers, total=LENGTH),
    "list of lengths": lambda ids, numbers: document.from_lengths([30, LENGTH - 30]),
    "rows of lengths": lambda ids, numbers: document.from_lengths([[30, LENGTH - 30], [LENGTH]]),
    "cumulative": lambda ids, numbers: document.from_cu_seqlens(numbers.cumsum(0), total=LENGTH),
    "prefix": lambda ids, numbers: prefix(numbers),
    "padding": lambda ids, numbers: ma.padding(numbers),
    "spans": lambda ids, numbers: ma.spans(ids),
    "global": lambda ids, numbers: ma.global_tokens(ids > 2),
    "per document": lambda ids, numbers: ma.per_document(causal & ma.chunked(7), ids),
    "other keys": lambda ids, numbers: ma.per_document.from_cu_seqlens(
        causal, numbers.cumsum(0), 2 * numbers.cumsum(0), total=LENGTH
    ),
    "shared prefix": lambda ids, numbers: ma.shared_prefix(ids, numbers - 2),
    "prefix tree": lambda ids, numbers: ma.shared_prefix.from_cu_seqlens(
        torch.nn.functional.pad(numbers.cumsum(0), (1, 0)), numbers - 2, total=LENGTH
    ),
    "drafts": lambda ids, numbers: ma.drafts(numbers, LENGTH - 10, 5),
    "windows": lambda ids, numbers: ma.sliding(numbers.repeat(2)),
    "cache": lambda ids, numbers: causal.shift(q=numbers),
    "table": lambda ids, numbers: ma.table(ids)[ma.batch, ma.q_idx] >= ma.kv_idx,
}


@pytest.mark.parametrize("name", BUILT)
def test_building_a_mask_reads_nothing_back(name):
    """On a GPU that would be a synchronisation. Fake tensors have nothing to read."""
    with FakeTensorMode():
        ids, numbers = torch.zeros(2, LENGTH, dtype=torch.int64), torch.ones(2, dtype=torch.int64)
        tensors = [torch.randn(2, HEADS, LENGTH, DIM, requires_grad=True) for _ in range(3)]
        out = ma.attention(*tensors, BUILT[name](ids, numbers))
        assert len(torch.autograd.grad(out.sum(), tensors)) == 3


def test_a_step_reads_nothing_back():
    with FakeTensorMode():
        model = Layer()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for x, ids, prompts in batches():
            assert step(model, optimizer, (x, ids, prompts)).shape == ()


def policy(ctx, op, *args, **kwargs):
    return CheckpointPolicy.MUST_SAVE if op is FORWARD else CheckpointPolicy.PREFER_RECOMPUTE


def test_selective_checkpoints_train_alike():
    """Attention is kept and the rest computed again, plainly and in a compiled model."""
    context = functools.partial(create_selective_checkpoint_contexts, policy)
    model = Layer()
    again = copy_of(model, context=context)
    compiled = torch.compile(
        copy_of(model, context=context), backend="aot_eager_decomp_partition", fullgraph=True
    )
    states = []
    for each in (model, again, compiled):
        torch.manual_seed(1)
        states.append(trained(each))
    assert_equal(states[1], states[0])
    assert_close(states[2], states[0])


def test_autocast_trains_slopes_in_float32():
    def half(model, optimizer, batch):
        optimizer.zero_grad()
        with torch.autocast("cpu", dtype=torch.bfloat16):
            out = model(*batch)
        loss = out.float().square().mean()
        loss.backward()
        optimizer.step()
        return loss.detach()

    model = Layer()
    other = copy_of(model)
    torch.manual_seed(1)
    wanted = trained(model)
    torch.manual_seed(1)
    found = trained(other, half)
    assert other.attention.slopes.grad.dtype == torch.float32
    torch.testing.assert_close(found, wanted, atol=2e-2, rtol=2e-2)
