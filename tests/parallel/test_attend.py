"""`parallel.attention` of two and four processes, over gloo on the CPU, against one.

Each process runs this file as a script: forked ones could not, once a GPU was used.
"""

import os
import subprocess
import sys
import traceback
from pathlib import Path

import pytest
import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor.experimental._context_parallel import (
    _attention as context_parallel,
)
from torch.nn.attention.flex_attention import create_mask

import maskalg as ma
from maskalg import (
    MaskTypeError,
    MaskValueError,
    alibi,
    causal,
    document,
    errors,
    nothing,
    parallel,
    prefix,
    sliding,
    softcap,
    spans,
)

pytestmark = pytest.mark.skipif(not dist.is_gloo_available(), reason="needs gloo")

LENGTH, CHUNK, BATCH, HEADS, KV_HEADS, DIM, VALUE_DIM = 201, 8, 2, 4, 2, 12, 7
IDS = torch.tensor([3, 40, 1, 57, 20, 80]).cumsum(0)
IDS = torch.searchsorted(IDS, torch.arange(LENGTH), right=True)
SLOPES = [0.5, 0.25, 0.125, 0.01]

# A mask or a score of learned tensors, and a weight of a learned sink.
CASES = {
    "causal": lambda slopes: causal,
    "window": lambda slopes: causal & sliding(19),
    "sinks and window, learned slopes": lambda slopes: (
        causal & (sliding(9) | prefix(2)) + alibi(slopes)
    ),
    "documents": lambda slopes: causal & document(IDS) + softcap(5.0),
    "documents of each batch entry": lambda slopes: (
        document(torch.stack([IDS, IDS.flip(0)])) + alibi(slopes)
    ),
    "Transfusion": lambda slopes: causal | spans(torch.where(IDS % 2 == 0, IDS, -1)),
    "nothing for most": lambda slopes: causal & ~prefix(60) & document(IDS // 3),
    "nothing": lambda slopes: nothing,
}
SINKS = ("causal", "nothing for most", "window")


def inputs():
    torch.manual_seed(0)
    q = torch.randn(BATCH, HEADS, LENGTH, DIM, dtype=torch.float64)
    k = torch.randn(BATCH, KV_HEADS, LENGTH, DIM, dtype=torch.float64)
    v, change = torch.randn(2, BATCH, KV_HEADS, LENGTH, VALUE_DIM, dtype=torch.float64)
    change = change.repeat_interleave(HEADS // KV_HEADS, 1)
    return q, k, v, change * torch.arange(1, HEADS + 1).view(-1, 1, 1)


def learned(case):
    slopes = torch.tensor(SLOPES, dtype=torch.float64, requires_grad=True)
    sink = torch.linspace(-1, 1, HEADS, dtype=torch.float64).requires_grad_()
    score = CASES[case](slopes)
    weight = ma.softmax_with_sink(sink) if case in SINKS else ma.softmax
    return score, weight, (slopes, sink)


def alone(case):
    """Output and gradients of one process."""
    *tensors, change = inputs()
    score, weight, (slopes, sink) = learned(case)
    tensors = [t.requires_grad_() for t in tensors]
    out = ma.attention(*tensors, score, weight=weight, backend="reference")
    (out * change).sum().backward()
    return [out.detach(), *[t.grad for t in tensors], slopes.grad, sink.grad]


def alone_of(case, dtype):
    """Gradients of one process of inputs that were rounded, computed in float64."""
    *tensors, change = inputs()
    score, _, (slopes, _) = learned(case)
    tensors = [t.to(dtype).double().requires_grad_() for t in tensors]
    (ma.attention(*tensors, score, backend="reference") * change).sum().backward()
    return [*(t.grad for t in tensors), slopes.grad]


def shared(case, method, processes, rank):
    """The same of the tokens of one of the processes."""
    *tensors, change = inputs()
    score, weight, (slopes, sink) = learned(case)
    plan = parallel.plan(score, LENGTH, processes, chunk=CHUNK, batch=BATCH, heads=HEADS)
    own = plan.tokens(rank)
    tensors = [t[:, :, own].requires_grad_() for t in tensors]
    run = {"method": method, "weight": weight}
    out = parallel.attention(*tensors, score, plan, **run)
    (out * change[:, :, own]).sum().backward(retain_graph=True)
    every = [*tensors, slopes, sink]
    found = [out.detach(), *[t.grad for t in every]]
    for each in every:
        each.grad = None
    (out * change[:, :, own]).sum().backward()  # once more, from what was kept
    for one, other in zip(found[1:], [t.grad for t in every], strict=True):
        assert torch.equal(one, other) if one is not None else other is None
    with torch.no_grad():
        assert torch.equal(parallel.attention(*tensors, score, plan, **run), out)
    return found


def in_half_precision(processes, rank):
    *tensors, _ = inputs()
    plan = parallel.plan(causal, LENGTH, processes, chunk=CHUNK)
    own = [t[:, :, plan.tokens(rank)].bfloat16().requires_grad_() for t in tensors]
    out = parallel.attention(*own, causal, plan)
    out.sum().backward()
    assert out.dtype == own[1].grad.dtype == torch.bfloat16
    return [out.detach(), own[1].grad]


def learned_in_half_precision(processes, rank):
    *tensors, change = inputs()
    score, _, (slopes, _) = learned("sinks and window, learned slopes")
    plan = parallel.plan(score, LENGTH, processes, chunk=CHUNK)
    own = plan.tokens(rank)
    tensors = [t[:, :, own].bfloat16().requires_grad_() for t in tensors]
    out = parallel.attention(*tensors, score, plan)
    (out * change[:, :, own]).sum().backward()
    return [*(t.grad for t in tensors), slopes.grad]


def of_large_scores(processes, rank):
    """In float32: slopes that are learned, and slopes that are not, with scores of thousands."""
    found = []
    for factor, wanted in ((8, True), (2000, False)):
        *tensors, change = inputs()
        tensors[0] = tensors[0] * factor
        slopes = torch.tensor(SLOPES, requires_grad=wanted)
        score = causal + alibi(slopes)
        plan = parallel.plan(score, LENGTH, processes, chunk=CHUNK)
        own = plan.tokens(rank)
        tensors = [t[:, :, own].float().requires_grad_() for t in tensors]
        out = parallel.attention(*tensors, score, plan)
        (out * change[:, :, own]).sum().backward()
        found += [t.grad for t in tensors]
    return found


def in_float8(processes, rank):
    """Outputs of a mask that gives each rank calls, and of one that gives none."""
    tensors = [t.to(torch.float8_e4m3fn) for t in inputs()[0:3]]
    outs = []
    for mask in (causal, nothing):
        plan = parallel.plan(mask, LENGTH, processes, chunk=CHUNK)
        own = [t[:, :, plan.tokens(rank)] for t in tensors]
        outs.append(parallel.attention(*own, mask, plan))
    with pytest.raises(errors.BackendError, match="not built for float8"):
        parallel.attention(own[0].requires_grad_(), *own[1:], mask, plan)
    return outs


def sink_of_nothing(processes, rank):
    """A sink of -inf is none, also for queries that keep no key."""
    *tensors, _ = inputs()
    mask = CASES["nothing for most"](None)
    plan = parallel.plan(mask, LENGTH, processes, chunk=CHUNK)
    own = [t[:, :, plan.tokens(rank)] for t in tensors]
    weight = ma.softmax_with_sink(torch.full((HEADS,), -torch.inf))
    wanted = parallel.attention(*own, mask, plan)
    return torch.equal(parallel.attention(*own, mask, plan, weight=weight), wanted)


def left_to_others(processes, rank):
    """The sum over processes of gradients of slopes that nobody summed."""
    *tensors, change = inputs()
    score, _, (slopes, _) = learned("sinks and window, learned slopes")
    plan = parallel.plan(score, LENGTH, processes, chunk=CHUNK)
    own = plan.tokens(rank)
    mesh = init_device_mesh("cpu", (processes,))
    out = parallel.attention(
        *[t[:, :, own] for t in tensors], score, plan, group=mesh, sum_learned=False
    )
    (out * change[:, :, own]).sum().backward()
    dist.all_reduce(slopes.grad)
    return slopes.grad


def by_torch(processes, rank):
    """What torch's context parallelism gives this rank: of a batch, folded tokens, a BlockMask."""
    mesh = init_device_mesh("cpu", (processes,))
    length = 8 * 128  # torch wants blocks of 128 of a BlockMask
    plan = parallel.plan(causal, length, processes, chunk=128)
    assert not torch.equal(plan.order(), torch.arange(length))
    balancer = plan.load_balancer(mesh.device_type)
    tokens = torch.arange(length)
    batch, blocks = tokens.expand(BATCH, -1).clone(), causal.blocks(length).to_flex()
    part, folded, rows = context_parallel._context_parallel_shard(
        mesh, [batch, tokens, blocks], [1, 0, 2], load_balancer=balancer
    )
    own = plan.tokens(rank)
    assert torch.equal(part, own.expand(BATCH, -1)) and torch.equal(folded, own)
    # Its queries are this rank's tokens, its keys those of all ranks one after the other.
    kept = create_mask(rows.mask_mod, 1, 1, len(own), length, device="cpu")
    wanted = causal.to_dense(length)[:, :, own][..., plan.order()]
    assert torch.equal(kept, wanted)
    (whole,) = context_parallel.context_parallel_unshard(mesh, [part], [1], load_balancer=balancer)
    return torch.equal(whole, tokens.expand(BATCH, -1))  # torch 2.10 has put `batch` in order too


def changed_before_the_gradients(processes, rank):
    ids = IDS.clone()
    mask = causal & document(ids)
    plan = parallel.plan(mask, LENGTH, processes, chunk=CHUNK)
    own = [t[:, :, plan.tokens(rank)].requires_grad_() for t in inputs()[0:3]]
    out = parallel.attention(*own, mask, plan)
    ids.add_(1)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        out.sum().backward()
    with pytest.raises(MaskValueError, match="written to after it was planned"):
        parallel.attention(*own, mask, plan)
    plan = parallel.plan(mask, LENGTH, processes, chunk=CHUNK)
    parallel.attention(*own, causal & document(ids), plan)
    with pytest.raises(MaskValueError, match="other tensors, even if their entries are equal"):
        parallel.attention(*own, causal & document(ids.clone()), plan)


def refused(processes, rank):
    *tensors, _ = inputs()
    plan = parallel.plan(causal, LENGTH, processes, chunk=CHUNK)
    own = [t[:, :, plan.tokens(rank)] for t in tensors]
    held = plan.count(rank)
    for mistake, kind, text in (
        (lambda: parallel.attention(*tensors, causal, plan), MaskValueError, f"the {held} tokens"),
        (
            lambda: parallel.attention(*own, causal & sliding(8), plan),
            MaskValueError,
            "the plan is for causal with its tensors, got causal & sliding(8)",
        ),
        (lambda: parallel.attention(*own, 3, plan), MaskTypeError, "got int"),
        (
            lambda: parallel.attention(*own, causal, plan, group="cp"),
            MaskTypeError,
            "a DeviceMesh of one dimension, got 'cp'",
        ),
        (lambda: parallel.attention(*own, causal, 3), MaskTypeError, "plan must be a Plan"),
        (
            lambda: parallel.attention(
                *own, causal, plan, weight=ma.softmax_with_sink(torch.zeros(3))
            ),
            MaskValueError,
            "sink",
        ),
        (lambda: parallel.attention(*own, causal, plan, layer=1), MaskValueError, "0 to 0, got 1"),
        (
            lambda: parallel.attention(*own, causal, plan, method="tree"),
            MaskValueError,
            "method must be",
        ),
        (
            lambda: parallel.attention(*own, causal, plan, weight=ma.sigmoid()),
            MaskValueError,
            "softmax_with_sink",
        ),
        (
            lambda: parallel.attention(*own, causal, parallel.plan(causal, LENGTH, 8)),
            MaskValueError,
            f"the group has {processes} processes and the plan 8 ranks",
        ),
        (
            lambda: parallel.attention(own[0], own[1].float(), own[2], causal, plan),
            MaskTypeError,
            "one dtype",
        ),
        (plan.load_balancer, MaskValueError, "the same number of tokens"),
    ):
        with pytest.raises(kind) as found:
            mistake()
        assert text in str(found.value), found.value


def process(rank, processes, folder):
    """Compute each case; save the results, or what went wrong."""
    torch.set_num_threads(1)
    dist.init_process_group("gloo", f"file://{folder / 'store'}", rank=rank, world_size=processes)
    results = {}
    for case in CASES:
        for method in ("gather", "ring"):
            try:
                results[case, method] = shared(case, method, processes, rank)
            except Exception:
                results[case, method] = traceback.format_exc()
    for way in (
        in_half_precision,
        in_float8,
        learned_in_half_precision,
        of_large_scores,
        sink_of_nothing,
        left_to_others,
        by_torch,
        changed_before_the_gradients,
        refused,
    ):
        try:
            results[way.__name__] = way(processes, rank)
        except Exception:
            results[way.__name__] = traceback.format_exc()
    torch.save(results, folder / f"{rank}.pt")
    dist.destroy_process_group()


@pytest.fixture(scope="module", params=[2, 4])
def computed(request, tmp_path_factory):
    folder = tmp_path_factory.mktemp("shared")
    commands = [
        [sys.executable, __file__, str(rank), str(request.param), str(folder)]
        for rank in range(request.param)
    ]
    environment = {**os.environ, "CUDA_VISIBLE_DEVICES": "", "OMP_NUM_THREADS": "1"}
    processes = [
        subprocess.Popen(c, stderr=subprocess.PIPE, text=True, env=environment) for c in commands
    ]
    for each in processes:
        _, text = each.communicate(timeout=300)
        assert each.returncode == 0, text
    return [torch.load(folder / f"{rank}.pt") for rank in range(request.param)]


def whole(computed, plan, parts):
    """Parts of the ranks in the order of tokens."""
    return torch.cat(parts, dim=2)[:, :, plan.order().argsort()]


@pytest.mark.parametrize("method", ["gather", "ring"])
@pytest.mark.parametrize("case", CASES)
def test_output_and_gradients_are_those_of_one_process(computed, case, method):
    found = [results[case, method] for results in computed]
    wrong = [text for text in found if isinstance(text, str)]
    assert not wrong, wrong[0]
    score, _, _ = learned(case)
    plan = parallel.plan(score, LENGTH, len(computed), chunk=CHUNK, batch=BATCH, heads=HEADS)
    wanted = alone(case)
    for number in range(4):
        parts = whole(computed, plan, [results[number] for results in found])
        torch.testing.assert_close(parts, wanted[number], atol=1e-11, rtol=1e-9)
    for number in (4, 5):  # slopes and sink: every process has the sum
        for results in found:
            if wanted[number] is None:
                assert results[number] is None
            else:
                torch.testing.assert_close(results[number], wanted[number], atol=1e-10, rtol=1e-8)
                assert torch.equal(results[number], found[0][number])


def test_float8(computed):
    tensors = [t.to(torch.float8_e4m3fn) for t in inputs()[0:3]]
    plan = parallel.plan(causal, LENGTH, len(computed), chunk=CHUNK)
    found = [results["in_float8"] for results in computed]
    wrong = [text for text in found if isinstance(text, str)]
    assert not wrong, wrong[0]
    out = whole(computed, plan, [outs[0] for outs in found])
    wanted = ma.attention(*tensors, causal)
    assert out.dtype == wanted.dtype == torch.bfloat16
    torch.testing.assert_close(out, wanted, atol=2e-2, rtol=2e-2)
    assert all(outs[1].dtype == torch.bfloat16 and not outs[1].any() for outs in found)


def test_half_precision(computed):
    *tensors, _ = inputs()
    q, k, v = (t.float().requires_grad_() for t in tensors)
    out = ma.attention(q, k, v, causal)
    out.sum().backward()
    plan = parallel.plan(causal, LENGTH, len(computed), chunk=CHUNK)
    for number, wanted in enumerate((out, k.grad)):
        parts = [results["in_half_precision"][number] for results in computed]
        error = (whole(computed, plan, parts).float() - wanted).abs()
        assert error.max() <= 0.03 * wanted.abs().max()


def test_learned_slopes_in_half_precision(computed):
    wanted = alone_of("sinks and window, learned slopes", torch.bfloat16)
    score, _, _ = learned("sinks and window, learned slopes")
    plan = parallel.plan(score, LENGTH, len(computed), chunk=CHUNK)
    found = [results["learned_in_half_precision"] for results in computed]
    for number, exact in enumerate(wanted):
        got = found[0][3] if number == 3 else whole(computed, plan, [f[number] for f in found])
        assert (got - exact).abs().max() <= 0.03 * exact.abs().max(), number


def test_large_scores(computed):
    """Sums of weights that are computed again for large scores must not leave keys out."""
    found = [results["of_large_scores"] for results in computed]
    assert all(isinstance(each, list) for each in found), found
    for place, (factor, most) in enumerate(((8, 1e-4), (2000, 0.02))):
        *tensors, change = inputs()
        tensors[0] = tensors[0] * factor
        tensors = [t.float().double().requires_grad_() for t in tensors]
        score = causal + alibi(torch.tensor(SLOPES, dtype=torch.float64))
        (ma.attention(*tensors, score, backend="reference") * change).sum().backward()
        plan = parallel.plan(score, LENGTH, len(computed), chunk=CHUNK)
        for number, tensor in enumerate(tensors):
            got = whole(computed, plan, [f[3 * place + number] for f in found])
            error = (got - tensor.grad).norm() / tensor.grad.norm()
            assert error <= most, (factor, number, float(error))


def test_a_sink_of_nothing(computed):
    assert [results["sink_of_nothing"] for results in computed] == [True] * len(computed)


def test_gradients_of_slopes_may_be_left_to_others(computed):
    wanted = alone("sinks and window, learned slopes")[4]
    for results in computed:
        torch.testing.assert_close(results["left_to_others"], wanted)


def test_torch_shards_by_the_plan(computed):
    assert [results["by_torch"] for results in computed] == [True] * len(computed)


def test_tables_that_are_changed_before_the_gradients(computed):
    found = [results["changed_before_the_gradients"] for results in computed]
    assert found == [None] * len(computed)


def test_what_is_refused(computed):
    assert [results["refused"] for results in computed] == [None] * len(computed)


if __name__ == "__main__":
    process(int(sys.argv[1]), int(sys.argv[2]), Path(sys.argv[3]))
