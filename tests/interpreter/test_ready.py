"""What is launched again for a call like one before, with the interpreter in place of a variant."""

import gc
import os
import weakref
from functools import partial
from types import SimpleNamespace

import pytest
import torch

import maskalg as ma
from maskalg import causal, sliding
from tests.cases import gradients as gradient_cases
from tests.cases.many_numbers import windows
from tests.cases.remembered import forget

triton = pytest.importorskip("triton", reason="needs Triton")
pytestmark = pytest.mark.skipif(
    os.environ.get("TRITON_INTERPRET") != "1", reason="needs TRITON_INTERPRET=1"
)

LENGTH = 45

check_gradients = partial(gradient_cases.check_gradients, most=1e-3)  # of float32


@pytest.fixture
def found_anew(monkeypatch):
    """Lets calls be remembered as on a GPU, and collects those for which all was found anew."""
    from triton.tools.tensor_descriptor import TensorDescriptor

    from maskalg.backends.triton import backend as backend
    from maskalg.backends.triton.launching import ready
    from maskalg.backends.triton.launching.descriptors import Descriptor

    def variant_of(launch):
        arguments, constants = launch.first()
        blocks = [a.block_shape for a in arguments if isinstance(a, TensorDescriptor)]

        def start(programs, arguments):
            rest = iter(blocks)
            passed = [
                TensorDescriptor(a.base, a.shape, a.strides, next(rest))
                if isinstance(a, Descriptor)
                else a
                for a in arguments
            ]
            launch.kernel[programs](*passed, **constants)

        encoder = SimpleNamespace(
            blocks=[(block, "") for block in blocks], encode=lambda descriptor, _block: [descriptor]
        )

        def prepared(programs, _stream, arguments):
            return start, (programs, arguments)

        return SimpleNamespace(encoder=encoder, prepared=prepared)

    found = []
    for name in ("launch_forward", "fill_gradients"):
        launch = getattr(backend, name)
        monkeypatch.setattr(backend, name, lambda *a, f=launch: (found.append(a), f(*a))[1])
    monkeypatch.setattr(ready, "variant_of", variant_of)
    launch_once = ready.Ready.launch

    def launch(self, *arguments):
        try:
            return launch_once(self, *arguments)
        finally:
            self.prepared.clear()

    # The interpreter is passed tensors, which nothing may keep.
    monkeypatch.setattr(ready, "_addresses", list)
    monkeypatch.setattr(ready.Ready, "launch", launch)
    monkeypatch.setattr(ready, "watched", lambda: False)
    forget()
    yield found
    forget()


def inputs(heads=2, dim=16, dtype=torch.float32):
    return [torch.randn(1, heads, LENGTH, dim, dtype=dtype) for _ in range(3)]


def check(qkv, expression, **options):
    found = ma.attention(*qkv, expression, backend="triton", **options)
    wanted = ma.attention(*[t.double() for t in qkv], expression, backend="reference", **options)
    found, wanted = (r if isinstance(r, tuple) else (r,) for r in (found, wanted))
    for one, other in zip(found, wanted, strict=True):
        torch.testing.assert_close(one.double(), other, atol=1e-2, rtol=1e-2)


def test_the_third_call_finds_nothing_anew(found_anew):
    expression = causal & sliding(20) + ma.alibi(torch.rand(2))
    for _ in range(4):
        check(inputs(), expression)
    assert len(found_anew) == 2
    check(inputs(), expression, return_lse=True)
    check(inputs(), expression, return_lse=True)
    assert len(found_anew) == 3


def test_another_kind_of_call_is_another_launch(found_anew):
    expression = causal & sliding(20)
    q, k, v = inputs()
    kinds = [
        ((q, k, v), {}),
        ((q, k, v), {"scale": 0.3}),
        ((q, k, v), {"scale": -0.3}),  # of a copy of the queries: never remembered
        ((q, k[:, :1].contiguous(), v[:, :1].contiguous()), {}),
        ([t.transpose(1, 2).contiguous().transpose(1, 2) for t in (q, k, v)], {}),
        ((q[:, :, :33], k, v), {}),
        ([t.half() for t in (q, k, v)], {}),
        ((q[..., 1:9], k[..., 1:9], v), {}),  # not at a multiple of 16 bytes: nor this
    ]
    for _ in range(3):
        for tensors, options in kinds:
            check(tensors, expression, **options)
    # Another length or another layout is another size of the same launch.
    assert len(found_anew) == 1 + len(kinds) - 2 + 2 * 2


def test_tables_that_change_are_read_again(found_anew):
    ids = torch.arange(LENGTH) // 20
    slopes = torch.randn(2)
    expression = causal & ma.document(ids) + ma.alibi(slopes)
    qkv = inputs()
    for turn in range(6):
        check(qkv, expression)
        if turn > 2:
            ids.copy_(torch.arange(LENGTH) // (4 * turn))
            slopes.mul_(2)
    # Tables of other ids are other tensors for the same launch; slopes are read where they lie.
    assert len(found_anew) == 2


def test_a_write_past_torch_is_seen_once_it_is_told(found_anew):
    ids = torch.zeros(LENGTH, dtype=torch.int64)
    qkv, expression = inputs(), causal & ma.document(ids)
    for documents in (1, 9, 9, 4, 20):
        ids.numpy()[:] = torch.arange(LENGTH).numpy() // documents
        torch.autograd.graph.increment_version(ids)
        check(qkv, expression)
    assert len(found_anew) == 2


def test_other_lengths_are_other_sizes(found_anew):
    """Forward and backward, with tables, and numbers that follow from lengths."""
    slopes = torch.rand(2)
    for turn, length in enumerate((45, 45, 39, 61, 70, 33)):
        ids = torch.arange(length) // 20
        expression = causal & sliding(20 + turn) & ma.document(ids) + ma.alibi(slopes)
        qkv = [t[:, :, :1].expand(-1, -1, length, -1) + torch.randn(length, 1) for t in inputs()]
        check(qkv, expression)
        check_gradients(qkv, expression)
    # Lengths of all rows of tables that are multiples of 2, or not, are other kernels: each twice,
    # forward without lse, then with it, and backward.
    assert len(found_anew) <= 4 * 3


def test_what_an_empty_call_launches(found_anew):
    """Nothing, whatever calls of other lengths did."""
    q, k, v = inputs()
    for length in (LENGTH, LENGTH, 0, 30):
        check((q, k[:, :, :length], v[:, :, :length]), causal & sliding(20))
        check((q[:, :, :length], k, v), causal & sliding(20))


def test_weights_of_one_mask_are_told_apart(found_anew):
    qkv = inputs()
    mask = causal & sliding(60)
    sinks = [ma.softmax_with_sink(torch.randn(2)) for _ in range(2)]
    strided = ma.softmax_with_sink(torch.randn(4)[::2])
    for _ in range(3):
        for weight in (*sinks, ma.softmax, strided, ma.softmax_plus_one, ma.relu):
            check(qkv, mask, weight=weight)
    # Sinks are one kind, as is the copy of a strided one, numbers too: each is passed. relu makes
    # another expression of the mask.
    assert len(found_anew) == 1 + 1 + 1 + 2
    for _ in range(3):
        for weight in (sinks[0], strided):
            check(qkv, mask, weight=weight)
            weight.sink.add_(1)
    assert len(found_anew) == 5


def test_tensors_with_other_memory_are_other_tensors(found_anew):
    """What moving or converting a module does to its parameters."""
    sink, slopes = torch.nn.Parameter(torch.randn(2)), torch.nn.Parameter(torch.rand(2))
    expression, weight = causal + ma.alibi(slopes), ma.softmax_with_sink(sink)
    with torch.no_grad():
        for change in (
            lambda: None,
            lambda: setattr(slopes, "data", torch.rand(5)[1:3]),
            lambda: setattr(slopes, "data", torch.rand(2, dtype=torch.float16)),
            lambda: setattr(sink, "data", torch.rand(2, dtype=torch.bfloat16)),
            lambda: setattr(sink, "data", torch.rand(4, dtype=torch.bfloat16)[::2]),
        ):
            change()
            for _ in range(3):
                check(inputs(), expression, weight=weight)
    # Once more each time, but twice at first, and not for a sink that is copied.
    assert len(found_anew) == 2 + 1 + 1 + 1


def test_tables_of_another_size_are_other_tables(found_anew):
    slopes, kept = torch.rand(1), torch.rand(LENGTH, LENGTH) > 0.5
    biased, dense = causal + ma.alibi(slopes), ma.dense(kept)
    for _ in range(3):
        check(inputs(), biased)
        check(inputs(), dense)
    slopes.data = torch.tensor([0.1, 3.0])
    kept.data = torch.rand(128, 128) > 0.5
    check(inputs(), biased)
    check(inputs(), dense)
    slopes.resize_(1).fill_(2)
    check(inputs(), biased)
    assert len(found_anew) == 2 * 2


def test_numbers_in_a_table(found_anew):
    """They are found once, and are others with another value or another size of a tensor."""
    slopes = torch.rand(1)
    expression = windows(15) + ma.alibi(slopes)
    for value in (3, 40):
        other = expression.bind(more13=value)
        for _ in range(4):
            check(inputs(), other)
            check_gradients(inputs(), other)
    # Three forward, where lse is wanted or not, and two backward, for both expressions.
    assert len(found_anew) == 3 + 2
    slopes.data = torch.tensor([0.1, 3.0])
    for _ in range(3):
        check(inputs(), other)
    assert len(found_anew) == 3 + 2


def test_tables_that_are_new_at_each_call_are_not_kept(found_anew):
    kept = (torch.rand(LENGTH, LENGTH) > 0.5).t()
    expression = ma.dense(kept)
    for _ in range(8):
        check(inputs(), expression)
    assert len(found_anew) == 2
    from maskalg.engine.normal_form import bound

    assert set(map(type, bound(expression).remembered.values())) == {int}


def test_a_sink_ends_with_its_model(found_anew):
    parameter = torch.nn.Parameter(torch.rand(2))
    with torch.no_grad():
        for _ in range(3):
            check(inputs(), causal, weight=ma.softmax_with_sink(parameter * 1))
    with torch.enable_grad():
        sink = parameter * 1
    ended = weakref.ref(sink)
    with torch.no_grad():
        check(inputs(), causal, weight=ma.softmax_with_sink(sink))
    del sink
    gc.collect()
    assert ended() is None


def test_tuned_choices_are_looked_up_again(found_anew):
    from maskalg.backends.triton import tuned

    expression = causal & sliding(33)
    for _ in range(3):
        check(inputs(), expression)
    tuned.look_again()
    check(inputs(), expression)
    check(inputs(), expression)
    assert len(found_anew) == 3


def test_an_expression_remembers_some_kinds_of_calls(found_anew):
    expression = causal & sliding(5)
    tensors = [t[:, :, :3].contiguous() for t in inputs(heads=1)]
    for turn in range(70):
        check(tensors, expression, scale=1 / (turn + 1))
    from maskalg.engine.normal_form import bound

    assert len(bound(expression).remembered) <= 65


def test_gradients_are_found_anew_twice(found_anew):
    expression = causal & sliding(20) + ma.alibi(torch.rand(2))
    for _ in range(5):
        check_gradients(inputs(), expression)
    assert len(found_anew) == 2 * 2


def test_another_kind_of_gradient_is_another_launch(found_anew):
    expression = causal & sliding(9)
    x, q, k, v = torch.randn(4, 1, 2, 20, 16).unbind()
    strided = torch.randn(1, 20, 2, 16).transpose(1, 2)
    weight = ma.softmax_with_sink(torch.randn(2).requires_grad_())
    kinds = [
        ((q, k, v), {}),
        ((x, x, x), {}),  # one tensor in three places
        ((q, x, x), {}),
        ((x, k, x), {}),
        ((q, k, v), {"change": torch.ones(1).expand(1, 2, 20, 16)}),
        ((q, k, v), {"change": strided}),
        ((q, k, v), {"return_lse": True}),
        ((q, k, v), {"weight": weight}),
        ((q, k, v), {"scale": -0.3}),  # of a copy of the queries: never remembered
    ]
    for _ in range(3):
        for tensors, options in kinds:
            check_gradients(tensors, expression, **options)
    from maskalg.engine.normal_form import bound

    remembered = [kind for kind in bound(expression).remembered if kind[0] == "backward"]
    assert len(remembered) == len(kinds) - 1


def test_gradients_of_tables_follow_them(found_anew):
    ids, slopes = torch.arange(LENGTH) // 20, torch.randn(2)
    expression = causal & ma.document(ids) + ma.alibi(slopes)
    for turn in range(6):
        check_gradients(inputs(), expression)
        if turn > 2:
            ids.copy_(torch.arange(LENGTH) // (4 * turn))
            slopes.mul_(2)


def test_gradients_of_a_learned_table_are_not_kept(found_anew):
    slopes = torch.randn(2).requires_grad_()
    expression = causal + ma.alibi(slopes)
    for _ in range(4):
        q, k, v = (t.requires_grad_() for t in inputs())
        found = torch.autograd.grad(
            ma.attention(q, k, v, expression, backend="triton").sum(), [slopes, q, k, v]
        )
        assert all(gradient.isfinite().all() for gradient in found)
    assert len(found_anew) == 2 + 4
