"""Calls like one before, launched without finding anything anew, against the float64 reference."""

import pytest
import torch

import maskalg as ma
from maskalg import causal, sliding
from maskalg.backends.triton import backend as backend
from maskalg.backends.triton import tuned
from maskalg.engine import memory
from tests.cases.gradients import check_gradients, gradients
from tests.cases.many_numbers import windows
from tests.cases.remembered import forget

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU"),
]

LENGTH = 259


@pytest.fixture(autouse=True)
def seeded():
    """Some gradients cancel but for rounding, of which some seeds leave more than others."""
    torch.manual_seed(0)


@pytest.fixture
def launched(monkeypatch):
    """Counts launches for which all was found anew."""
    forget()
    found = []
    for name in ("launch_forward", "fill_gradients"):
        launch = getattr(backend, name)
        monkeypatch.setattr(backend, name, lambda *a, f=launch: (found.append(a), f(*a))[1])
    return found


def inputs(dim=64, dtype=torch.bfloat16, length=LENGTH):
    return [torch.randn(2, 4, length, dim, dtype=dtype, device="cuda") for _ in range(3)]


def check(qkv, expression, **options):
    """Output and lse of one call against the reference."""
    poison = [torch.full_like(qkv[0], float("nan")) for _ in range(2)]
    del poison
    found = ma.attention(*qkv, expression, **options)
    wanted = ma.attention(*[t.double() for t in qkv], expression, backend="reference", **options)
    pairs = zip(found, wanted, strict=True) if options.get("return_lse") else [(found, wanted)]
    for one, other in pairs:
        finite = other.isfinite()
        assert torch.equal(finite, one.isfinite())
        error = (one.double() - other)[finite].abs().max() / other[finite].abs().max()
        assert error.item() <= 1.2e-2


# In turn: the warp-specialised kernel (on Hopper), the plain one with a bias, without descriptors.
@pytest.mark.parametrize(
    ("dim", "dtype"), [(128, torch.bfloat16), (64, torch.float32), (20, torch.float16)]
)
def test_the_third_call_finds_nothing_anew(dim, dtype, launched):
    expression = causal & sliding(70) + ma.alibi(torch.rand(4, device="cuda"))
    for _ in range(5):
        check(inputs(dim, dtype), expression)
    assert len(launched) == 2
    check(inputs(dim, dtype), expression, return_lse=True)
    check(inputs(dim, dtype), expression, return_lse=True)
    assert len(launched) == 3


def test_another_kind_of_call_is_another_launch(launched):
    expression = causal & sliding(70)
    q, k, v = inputs()
    kinds = [
        ((q, k, v), {}),
        ((q, k, v), {"scale": 0.3}),
        ((q, k[:, :2].contiguous(), v[:, :2].contiguous()), {}),
        ([t.transpose(1, 2).contiguous().transpose(1, 2) for t in (q, k, v)], {}),
        ((q[:, :, :100], k, v), {}),
        ([t.half() for t in (q, k, v)], {}),
        ((q[..., 1:33], k[..., 1:33], v), {}),
    ]
    for _ in range(3):
        for tensors, options in kinds:
            check(tensors, expression, **options)
    # One address of the last is no multiple of 16: all is found at every call.
    # Another layout, or another length, is another size of the same launch.
    assert len(launched) == 1 + len(kinds) - 2 + 2


def test_tables_that_change_are_read_again():
    ids = torch.arange(LENGTH, device="cuda") // 40
    bias = torch.randn(4, device="cuda")
    expression = causal & ma.document(ids) + ma.alibi(bias)
    qkv = inputs()
    for turn in range(6):
        check(qkv, expression)
        if turn > 2:
            ids.copy_(torch.arange(LENGTH, device="cuda") // (10 * turn))
            bias.mul_(2)


def test_weights_of_one_mask_are_told_apart():
    qkv = inputs()
    sinks = [ma.softmax_with_sink(torch.randn(4, device="cuda")) for _ in range(2)]
    strided = ma.softmax_with_sink(torch.randn(8, device="cuda")[::2])
    for _ in range(4):
        for weight in (*sinks, ma.softmax, strided, ma.softmax_plus_one, ma.relu):
            check(qkv, causal, weight=weight)
    strided.sink.add_(1)
    check(qkv, causal, weight=strided)


def test_tuned_choices_are_looked_up_again(launched):
    qkv = inputs()
    expression = causal & sliding(33)
    for _ in range(3):
        check(qkv, expression)
    before = len(launched)
    tuned.look_again()
    check(qkv, expression)
    assert len(launched) == before + 1


def test_profilers_hear_of_every_launch():
    triton = pytest.importorskip("triton")
    qkv, heard = inputs(), []
    expression = causal & sliding(34)
    for _ in range(3):
        check(qkv, expression)
    hooks = triton.knobs.runtime.launch_enter_hook
    hooks.add(heard.append)
    try:
        check(qkv, expression)
    finally:
        hooks.remove(heard.append)
    assert heard


@pytest.fixture(params=["two kernels", "one pass"])
def kernels(request, one_pass_from):
    """Whether the reference's lengths are served by one pass."""
    forget()
    if request.param == "one pass":
        one_pass_from(0)
    yield request.param
    forget()


# In turn: the warp-specialised kernels (on Hopper), the plain ones with and without descriptors.
@pytest.mark.parametrize(
    ("dim", "dtype"),
    [(128, torch.bfloat16), (64, torch.float16), (64, torch.float32), (20, torch.float16)],
)
def test_gradients_are_found_anew_twice(dim, dtype, kernels, launched):
    expression = causal + ma.alibi(torch.rand(4, device="cuda"))
    for _ in range(5):
        check_gradients(inputs(dim, dtype), expression)
    assert len(launched) == 2 * 2


def test_another_kind_of_gradient_is_another_launch(kernels, launched):
    expression = causal | ma.prefix(20)
    x, (q, k, v) = inputs()[0], inputs()
    half = [t.half() for t in inputs(128)]
    strided = torch.randn(2, LENGTH, 4, 64, device="cuda").transpose(1, 2)
    odd = torch.randn(2 * 4 * LENGTH * 64 + 1, device="cuda").bfloat16()[1:].view(x.shape)
    weight = ma.softmax_with_sink(torch.randn(4, device="cuda").requires_grad_())
    ones = torch.ones(1, device="cuda", dtype=x.dtype).expand(x.shape)
    kinds = [
        ((q, k, v), {}),
        (half, {}),
        ((x, x, x), {}),  # one tensor in three places
        ((q, x, x), {}),
        ((x, k, x), {}),
        ((q, k[:, :2].detach().contiguous(), v[:, :2].detach().contiguous()), {}),
        ((q, k, v), {"change": ones}),
        ((q, k, v), {"change": strided}),
        ((q, k, v), {"change": odd}),
        ((q, k, v), {"return_lse": True}),
        ((q, k, v), {"weight": weight}),
        ((q, k, v), {"scale": 0.3}),
    ]
    for _ in range(4):
        for tensors, options in kinds:
            check_gradients(tensors, expression, **options)
    from maskalg.engine.normal_form import bound

    remembered = [kind for kind in bound(expression).remembered if kind[0] == "backward"]
    assert len(remembered) == len(kinds)


def test_gradients_of_tables_follow_them():
    # Slopes are doubled three times; as steep ones as 8 leave a weight to one key alone.
    ids, slopes = torch.arange(LENGTH, device="cuda") // 40, 0.1 * torch.rand(4, device="cuda")
    expression = causal & ma.document(ids) + ma.alibi(slopes)
    for turn in range(7):
        check_gradients(inputs(), expression)
        if turn > 2:
            ids.copy_(torch.arange(LENGTH, device="cuda") // (10 * turn))
            slopes.mul_(2)


def test_other_numbers_of_a_table_are_read(launched):
    """Each value has a table of its own, on each stream, for the same launch; none waits for the
    device."""
    expression = windows(15) + ma.softcap(20.0)
    for stream in (None, torch.cuda.Stream()):
        torch.cuda.synchronize()
        with torch.cuda.stream(stream):
            for value in (1, 30, 2, 30):
                other, qkv = expression.bind(more13=value), inputs()
                torch.cuda.set_sync_debug_mode("error")
                try:
                    for _ in range(3):
                        ma.attention(*qkv, other)
                finally:
                    torch.cuda.set_sync_debug_mode("default")
                check(qkv, other)
    torch.cuda.synchronize()
    assert len(launched) == 2


def test_turns_of_another_stream_are_made_again(kernels, launched):
    """What one stream filled might be read on another before it is there."""
    expression = causal | ma.prefix(33)
    for stream in (None, torch.cuda.Stream(), None, torch.cuda.Stream()):
        torch.cuda.synchronize()
        with torch.cuda.stream(stream):
            for _ in range(3):
                check_gradients(inputs(), expression)
    torch.cuda.synchronize()
    # Forward and backward twice; turns alone are made again.
    assert len(launched) == 2 + 2


@pytest.mark.parametrize(
    "mask", [lambda: causal | ma.prefix(44), lambda: windows(15) | ma.prefix(2)]
)
def test_gradients_in_a_graph_are_those_of_its_replay(mask, kernels):
    expression, tensors = mask(), [t.requires_grad_() for t in inputs()]
    change = torch.randn_like(tensors[0])
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for _ in range(4):
            gradients(tensors, expression, change)
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, stream=stream):
        found = gradients(tensors, expression, change)
    # What was remembered ends, and other numbers take its place.
    expression.__dict__.clear()
    memory.CONSTANTS.clear()
    other = [torch.full((64,), -1, dtype=torch.int32, device="cuda") for _ in range(300)]
    with torch.cuda.stream(stream):
        other += [torch.full((64,), -1, dtype=torch.int32, device="cuda") for _ in range(300)]
    stream.synchronize()
    with torch.no_grad():
        for tensor in tensors:
            tensor.copy_(torch.randn_like(tensor))
    graph.replay()
    wide = [t.detach().double().requires_grad_() for t in tensors]
    wanted = gradients(wide, mask(), change, "reference")
    for one, other in zip(found, wanted, strict=True):
        assert ((one.double() - other).abs().max() / other.abs().max()).item() <= 2e-2


@pytest.mark.parametrize("of", ["documents", "numbers"])
def test_tables_of_a_graph_are_its_own(of, launched):
    from maskalg.engine.normal_form import bound

    ids = torch.arange(LENGTH, device="cuda") // 50
    expression = causal & ma.document(ids) if of == "documents" else windows(15)
    qkv = inputs()
    check(qkv, expression)
    with torch.cuda.graph(torch.cuda.CUDAGraph()):
        ma.attention(*qkv, expression)
    assert not any(bound(expression).remembered.values())
