"""`attention` under torch.compile: one graph, and none for a new value."""

from pathlib import Path

import pytest
import torch
from torch._dynamo.testing import CompileCounterWithBackend

import maskalg as ma
from maskalg import alibi, causal, document, prefix, sliding, softcap
from maskalg.engine import normal_form
from maskalg.engine.recent import Recent

from .cases import assert_close, assert_equal, ids_of, inputs, with_gradients

KV = ma.maximum(ma.kv_idx - 1, 0)
SLOPES = torch.tensor([0.5, 0.25, 0.1, 0.0])


@pytest.fixture(autouse=True)
def fresh():
    torch.manual_seed(0)
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()


class Compiled:
    """A function compiled as one graph, and how many graphs were made."""

    def __init__(self, function, backend="aot_eager"):
        self.counter = CompileCounterWithBackend(backend)
        self.function = function
        self.compiled = torch.compile(function, backend=self.counter, fullgraph=True)

    def check(self, tensors, *rest):
        found = with_gradients(self.compiled, tensors, *rest)
        assert_equal(found, with_gradients(self.function, tensors, *rest))
        return self.counter.frame_count


CONSTANT = {
    "none": None,
    "causal": causal,
    "composed": causal & (sliding(9) | prefix(4)) & ~document(ids_of(70)),
    "biased": causal & sliding(30) + softcap(2.0) @ alibi(SLOPES),
    "table": ma.relative(torch.linspace(-1, 1, 7)),
    "formula": (ma.q_idx // 3 >= ma.kv_idx // 5) & (ma.head != 2),
}


@pytest.mark.parametrize("backend", ["cpu", "reference"])
@pytest.mark.parametrize("name", CONSTANT)
def test_constant_expressions(name, backend):
    def attend(q, k, v):
        return ma.attention(q, k, v, CONSTANT[name], return_lse=name == "causal", backend=backend)

    compiled = Compiled(attend)
    tensors = inputs()
    if backend == "cpu":
        assert compiled.check(tensors) == 1
    else:  # whose derivatives are found anew within the operator
        found = with_gradients(compiled.compiled, tensors)
        assert_close(found, with_gradients(attend, tensors))


WEIGHTS = {
    "sink": lambda logits: ma.softmax_with_sink(logits),
    "plus one": lambda logits: ma.softmax_plus_one,
    "sigmoid": lambda logits: ma.sigmoid(logits),
    "relu": lambda logits: ma.relu_squared,
}


@pytest.mark.parametrize("name", WEIGHTS)
def test_weight_functions(name):
    def attend(q, k, v, logits):
        return (
            ma.attention(q, k, v, causal & sliding(20), weight=WEIGHTS[name](logits)) + logits.sum()
        )

    compiled = torch.compile(attend, backend="aot_eager", fullgraph=True)
    tensors = [*inputs(), SLOPES.clone().requires_grad_()]
    assert_close(with_gradients(compiled, tensors), with_gradients(attend, tensors))


def test_an_expression_built_within():
    """A new window or a new length: one graph when first seen to change, then none."""

    def attend(q, k, v, slopes, ids, window):
        mask = causal & (sliding(window) | prefix(4)) & document(ids)
        return ma.attention(q, k, v, mask + alibi(slopes))

    compiled = Compiled(attend)
    slopes = SLOPES.clone().requires_grad_()
    graphs = [
        compiled.check([*inputs(length), slopes], ids_of(length), window)
        for length, window in ((70, 9), (70, 10), (70, 33), (90, 5), (101, 6), (64, 7), (128, 20))
    ]
    assert graphs == [1, 2, 2, 3, 3, 3, 3]


KINDS = torch.tensor([[1, 0, 1], [0, 1, 1], [1, 1, 1]], dtype=torch.bool)
CHOSEN = {
    "blocks": lambda t: ma.block_table.from_kv_indices(t[:10].view(5, 2) * 2, 14, columns=5),
    "counted blocks": lambda t: ma.block_table.from_kv_indices(
        t[:10].view(5, 2) * 2, 14, columns=5, kv_num_blocks=t[:5]
    ),
    "columns and diagonals": lambda t: ma.vertical_slash.from_indices(t[:9] * 34, t[:9] * 15, 70),
    "kinds": lambda t: ma.modality(t, KINDS),
    "media": lambda t: ma.media(t.cumsum(0), 2),
    "distances": lambda t: ma.graphormer(torch.eye(3, 4), (t - t[:, None]).abs()),
}


@pytest.mark.parametrize("name", CHOSEN)
def test_what_is_chosen_within(name):
    """Entries that a model computes are put into a mask without a break of the graph."""
    entries = torch.arange(70) % 3
    build = CHOSEN[name]
    compiled = Compiled(lambda q, k, v, t: ma.attention(q, k, v, build(t)))
    assert compiled.check(inputs(), entries) == 1


def test_blocks_of_a_router():
    """A model chooses the keys of each block of queries; what is no block keeps nothing."""

    def attend(q, k, v, wrong):
        means = [t.unflatten(2, (-1, 16)).mean(3) for t in (q, k.repeat_interleave(2, 1))]
        best = (means[0] @ means[1].mT).topk(2).indices
        chosen = ma.block_table.from_kv_indices(torch.cat([best, wrong], -1), 16, columns=4)
        return ma.attention(q, k, v, causal & (chosen | ma.chunked(16)))

    compiled = Compiled(attend)
    tensors = inputs(64)
    none, outside = (torch.full((2, 4, 4, 1), entry) for entry in (-1, 7))
    assert compiled.check(tensors, none) == 1
    assert_equal(
        with_gradients(compiled.compiled, tensors, outside), with_gradients(attend, tensors, none)
    )
    with pytest.raises(ma.MaskValueError, match="kv_indices must lie in 0 … 3"):
        attend(*tensors, outside)


def test_nothing_is_specialised_that_was_marked_dynamic():
    """One graph from the start, also for the window, where lengths are marked."""

    def attend(q, k, v, ids):
        half = q.shape[2] // 2
        return ma.attention(q, k, v, causal & sliding(half) & document(ids))

    compiled = Compiled(attend)
    for length in (70, 90, 33):
        tensors, ids = inputs(length), ids_of(length)
        for tensor in tensors:
            torch._dynamo.mark_dynamic(tensor, 2)
        torch._dynamo.mark_dynamic(ids, 0)
        assert compiled.check(tensors, ids) == 1


def test_an_expression_as_argument():
    compiled = Compiled(ma.attention)
    graphs = []
    for length, window in ((70, 9), (70, 10), (70, 33), (90, 5), (101, 6)):
        mask = causal & (sliding(window) | prefix(4)) & document(ids_of(length, window))
        graphs.append(compiled.check(inputs(length), mask))
    assert graphs == [1, 2, 2, 3, 3]


def test_an_argument_moved_within():
    """Identities of its parts are no reason for another graph."""
    compiled = Compiled(lambda q, k, v, mask: ma.attention(q, k, v, mask.shift(q=1).at(kv=KV)))
    graphs = [compiled.check(inputs(), causal & sliding(window)) for window in (9, 10, 33, 5, 6)]
    assert graphs == [1, 2, 2, 2, 2]


def test_an_argument_moved_to_a_device_within():
    compiled = Compiled(lambda q, k, v, mask: ma.attention(q, k, v, mask.to("cpu")))
    masks = [causal & document(ids_of(70, seed)) for seed in (1, 2, 3)]
    assert [compiled.check(inputs(), mask) for mask in masks] == [1, 1, 1]


def test_one_parameter_bound_within_after_two():
    compiled = Compiled(lambda q, k, v, mask: ma.attention(q, k, v, causal & mask.bind(window=2)))
    one, two = sliding(9), sliding(9)
    for mask in (one | two.shift(q=-3), one | one.shift(q=-3), two | one.shift(q=-3)):
        compiled.check(inputs(), mask)


SEEDS = (1, 2, 3, 4)
BOUND_WITHIN = {
    "a window": ([causal & sliding(w) for w in (9, 10, 33, 5)], {"window": 7}, 1),
    "one of two windows": (
        [sliding(w) | sliding(w - 1).shift(q=-3) for w in (9, 10, 33, 5)],
        {"window": 7},
        2,  # the second varies
    ),
    "documents": ([causal & document(ids_of(70, n)) for n in SEEDS], {"ids": ids_of(70)}, 1),
    "one of two documents": (
        [document(ids_of(70, n)) | document(ids_of(70, n + 9)) & sliding(5) for n in SEEDS],
        {"ids": ids_of(70)},
        1,
    ),
    "a table": (
        [ma.table(ids_of(70, n))[ma.kv_idx] <= ma.q_idx for n in SEEDS],
        {"table": ids_of(70)},
        1,
    ),
    "learned slopes": (
        [causal + alibi(torch.nn.Parameter(torch.rand(4))) for n in SEEDS],
        {"slopes": SLOPES},
        1,
    ),
}


@pytest.mark.parametrize("name", BOUND_WITHIN)
def test_an_argument_bound_within(name):
    """One graph for all masks of one structure."""
    masks, values, graphs = BOUND_WITHIN[name]
    compiled = Compiled(lambda q, k, v, mask: ma.attention(q, k, v, mask.bind(values)))
    found = [compiled.check(inputs(), mask) for mask in masks]
    assert found == [min(n, graphs) for n in range(1, len(masks) + 1)]


@pytest.mark.parametrize("learned", [False, True])
def test_one_tensor_bound_within_after_two(learned):
    compiled = Compiled(lambda q, k, v, mask: ma.attention(q, k, v, mask.bind(slopes=SLOPES)))
    one, two = (torch.nn.Parameter(torch.rand(4), requires_grad=learned) for _ in range(2))
    one, two = (one, two) if learned else (one.data, two.data)
    for a, b in ((one, two), (one, one), (two, one), (two, two)):
        compiled.check(inputs(), causal + alibi(a) + alibi(b).shift(q=1))


def test_shared_and_separate_parameters_are_told_apart():
    """A graph for one window twice must not serve two windows, nor one tensor twice two."""
    compiled = Compiled(ma.attention)
    tensors = inputs()
    one = sliding(9)
    windows = (one & one, sliding(5) & sliding(30), sliding(30) & sliding(5), one & one)
    a, b = ids_of(70), ids_of(70, 13)
    documents = [document(i) & document(j) for i, j in ((a, a), (a, b), (b, a), (b, b))]
    for mask in (*windows, *documents):
        compiled.check(tensors, mask)


def test_another_structure_is_another_graph():
    compiled = Compiled(ma.attention)
    tensors = inputs()
    graphs = [compiled.check(tensors, mask) for mask in (causal, ~causal, causal, ma.everything)]
    assert graphs == [1, 2, 2, 3]


def test_a_step_of_a_cache():
    def attend(q, k, v):
        mask = causal.shift(q=k.shape[2] - q.shape[2]) & sliding(200)
        return ma.attention(q, k, v, mask)

    compiled = Compiled(attend)
    for queries, keys in ((8, 70), (9, 71), (5, 33), (1, 90)):
        graphs = compiled.check([inputs(queries)[0], *inputs(keys)[1:]])
    assert graphs <= 4  # static, then dynamic; a length of 1 has its own


def test_atoms_write_no_number_down_before_it_is_wrong():
    """A dynamic number has no text in a compiled function: `shown` leaves it out there."""
    folder = Path(ma.__file__).parent / "values" / "masks"
    assert not [path.name for path in folder.glob("*.py") if "!r}" in path.read_text()]


@pytest.mark.parametrize("name", ["lengths", "cumulative", "relative_2d", "sandwich"])
def test_sizes_that_change(name):
    """Sizes of documents and of biases are symbols from the second on."""
    made = {
        "lengths": lambda n: causal & document.from_lengths([2 * n, 2 * n]),
        "cumulative": lambda n: causal & document.from_cu_seqlens([0, n, 4 * n]),
        "relative_2d": lambda n: ma.relative_2d(torch.zeros((2 * n - 1) * 7, 4), (n, 4)),
        "sandwich": lambda n: causal + ma.sandwich(torch.ones(4), 4 * n),
    }[name]

    def attend(q, k, v, n):
        return ma.attention(q, k, v, made(n))

    compiled = Compiled(attend)
    graphs = [compiled.check(inputs(4 * n), n) for n in (10, 12, 15)]
    assert graphs == [1, 2, 2]


def test_bind_within():
    mask = causal & sliding(3) & document(ids_of(70)) + softcap(3.0) @ alibi(SLOPES)

    def attend(q, k, v, slopes, window):
        return ma.attention(q, k, v, mask.bind(slopes=slopes, window=window))

    compiled = Compiled(attend)
    graphs = [compiled.check([*inputs(), torch.rand(4, requires_grad=True)], w) for w in (3, 4, 5)]
    assert graphs == [1, 2, 2]


def test_atoms_built_within():
    def attend(q, k, v, ids, lengths, dense, n):
        near = ma.q_idx - ma.kv_idx < ma.scalar(n, low=1)
        ranks = ma.table(ids)
        mask = ma.where(ma.head % 2 == 0, causal, causal & near)
        mask = mask & ma.padding(lengths) & ma.dense(dense) & (ranks[ma.q_idx] >= ranks[ma.kv_idx])
        return ma.attention(q, k, v, mask | ma.window(n, None) & ma.chunked(n) & ma.dilated(n))

    compiled = Compiled(attend)
    rest = (ids_of(70), torch.tensor([40, 70]), torch.rand(70, 70) > 0.5)
    graphs = [compiled.check(inputs(), *rest, n) for n in (3, 4, 5)]
    assert graphs == [1, 2, 2]


def test_negation_and_nesting_have_names_that_are_followed():
    """Of `~` and `@` torch 2.13 says that it does not know how to trace them."""

    def attend(q, k, v, slopes, window):
        mask = causal & sliding(window).complement() | prefix(2)
        return ma.attention(q, k, v, mask + softcap(2.0).of(alibi(slopes)))

    compiled = Compiled(attend)
    graphs = [compiled.check(inputs(), SLOPES, window) for window in (3, 4, 5)]
    assert graphs == [1, 2, 2]
    assert sliding(3).complement() == ~sliding(3)
    assert softcap(2.0).of(alibi(SLOPES)) == softcap(2.0) @ alibi(SLOPES)
    assert repr(softcap(2.0).of(causal + alibi(SLOPES))) == repr(
        softcap(2.0) @ (causal + alibi(SLOPES))
    )


def test_a_constant_is_part_of_the_structure():
    """So each has a graph, as it has a proof; `ma.scalar` is for numbers that change."""

    def attend(q, k, v, n):
        return ma.attention(q, k, v, ma.q_idx - n < ma.kv_idx)

    compiled = Compiled(attend)
    assert [compiled.check(inputs(), n) for n in (3, 4, 5, 3)] == [1, 2, 3, 3]


def test_a_structure_first_met_in_a_graph(monkeypatch):
    monkeypatch.setattr(normal_form, "_STRUCTURES", Recent(64))
    compiled = torch.compile(
        lambda q, k, v, i: ma.attention(q, k, v, document(i) | prefix(3)),
        backend="eager",
        fullgraph=True,
    )
    tensors = inputs()
    found = compiled(*tensors, ids_of(70))
    assert_equal([found], [ma.attention(*tensors, document(ids_of(70)) | prefix(3))])


def test_inductor():
    def attend(q, k, v, ids, window):
        return ma.attention(q * 2, k, v, causal & sliding(window) & document(ids)).cos()

    compiled = torch.compile(attend, fullgraph=True)
    for length, window in ((70, 3), (81, 30)):
        tensors, rest = inputs(length), (ids_of(length), window)
        found = with_gradients(compiled, tensors, *rest)
        assert_close(found, with_gradients(attend, tensors, *rest))


def test_a_mask_that_does_not_fit_is_named():
    compiled = torch.compile(ma.attention, backend="eager", fullgraph=True)
    with pytest.raises(RuntimeError, match=r"ids of shape \[3\] has 3 entries"):
        compiled(*inputs(), document(ids_of(3)))


def test_a_short_table_after_a_long_one_is_refused():
    """The graph's condition on lengths sends it back to the check."""
    compiled = torch.compile(ma.attention, backend="eager", dynamic=True, fullgraph=True)
    compiled(*inputs(), document(ids_of(80)))
    with pytest.raises(RuntimeError, match=r"MaskValueError\('ids of shape"):
        compiled(*inputs(), document(ids_of(60)))
