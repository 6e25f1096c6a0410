"""Random compositions under context parallelism: all ranks, as threads, against one process."""

import threading
import weakref

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import maskalg as ma
from maskalg import parallel
from maskalg.parallel import attend
from maskalg.parallel.steps import steps_of
from maskalg.testing.case import BATCH, HEADS
from maskalg.testing.strategies import masks

LONGEST = 48


class Group:
    """Ranks that exchange rows in memory; `self.of` tells a thread which it is."""

    def __init__(self):
        self.of = threading.local()

    def exchange(self, rows, to, back, group):
        ranks, rank, number = self.of.ranks, self.of.rank, self.of.exchanges
        self.of.exchanges += 1
        with self.changed:
            self.sent[number, rank] = rows.split(to)
            self.changed.notify_all()

        def wait():
            # Ranks wait in any order, but only for what all send.
            every = [(number, other) for other in range(ranks)]
            with self.changed:
                self.changed.wait_for(lambda: self.failed or self.sent.keys() >= {*every}, 60)
                return torch.cat([self.sent[one][rank] for one in every])

        return wait

    def results(self, ranks, compute):
        """What `compute(rank)` returns on each rank."""
        self.sent, self.failed, self.changed = {}, False, threading.Condition()
        found = {}

        def start(rank):
            self.of.ranks, self.of.rank, self.of.exchanges = ranks, rank, 0
            try:
                found[rank] = compute(rank)
            except BaseException:
                with self.changed:
                    self.failed = True
                    self.changed.notify_all()
                raise

        threads = [threading.Thread(target=start, args=(rank,)) for rank in range(ranks)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        return [found[rank] for rank in range(ranks)]


@pytest.fixture
def group(monkeypatch):
    made = Group()
    monkeypatch.setattr(attend, "_exchange", made.exchange)
    return made


def computed(tensors, change, function):
    leaves = [x.detach().requires_grad_() for x in tensors]
    out, lse = function(*leaves)
    gradients = torch.autograd.grad(out, leaves, change, materialize_grads=True)
    return out.detach(), lse.detach(), *gradients


@settings(
    max_examples=80, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(
    case=masks(),
    length=st.integers(1, LONGEST),
    ranks=st.integers(1, 7),
    chunk=st.sampled_from([1, 3, 8, 16]),
    method=st.sampled_from(["gather", "ring"]),
    dtype=st.sampled_from([torch.float32, torch.bfloat16]),
)
def test_every_rank_has_the_tokens_of_one_process(group, case, length, ranks, chunk, method, dtype):
    mask = case.mask
    ranks = min(ranks, -(-length // chunk))
    plan = parallel.plan(mask, length, ranks, chunk=chunk, batch=BATCH, heads=HEADS)
    torch.manual_seed(0)
    shapes = [(HEADS, 8), (1, 8), (1, 6), (HEADS, 6)]
    q, k, v, change = [torch.randn(BATCH, h, length, d).to(dtype) for h, d in shapes]
    options = attend._Options(None, "cpu")

    def of_rank(rank):
        steps = steps_of(plan, 0, rank, method, q.device)
        run = attend._Run(steps, None, mask, (), options, keeps=method == "gather")
        own = [x[:, :, plan.tokens(rank)] for x in (q, k, v, change)]
        return computed(own[:3], own[3], lambda *inputs: attend._Attention.apply(run, *inputs))

    def alone(*inputs):
        return ma.attention(*inputs, mask, return_lse=True, backend="reference")

    exact = computed([x.double() for x in (q, k, v)], change.double(), alone)
    tolerance = 3e-5 if dtype == torch.float32 else 5e-2
    for rank, found in enumerate(group.results(ranks, of_rank)):
        for got, whole in zip(found, exact, strict=True):
            wanted = whole[:, :, plan.tokens(rank)].to(got.dtype)
            torch.testing.assert_close(got, wanted, atol=tolerance, rtol=tolerance)


@pytest.mark.parametrize("ranks", [4, 16])
def test_results_held_around_a_ring_do_not_grow_with_the_ranks(group, monkeypatch, ranks):
    held, most = {}, {}
    plain = attend._Run._computed

    def counted(*args):
        out, lse = plain(*args)
        rank = group.of.rank
        held.setdefault(rank, []).append(weakref.ref(out))
        most[rank] = max(most.get(rank, 0), sum(each() is not None for each in held[rank]))
        return out, lse

    monkeypatch.setattr(attend._Run, "_computed", counted)
    plan = parallel.plan(ma.causal, 256, ranks, chunk=4)

    def of_rank(rank):
        steps = steps_of(plan, 0, rank, "ring", torch.device("cpu"))
        run = attend._Run(steps, None, ma.causal, (), attend._Options(None, "cpu"), keeps=False)
        inputs = [torch.randn(1, 1, plan.count(rank), 8) for _ in range(3)]
        return run.forward(inputs)[0]

    group.results(ranks, of_rank)
    assert len(most) == ranks and max(map(len, held.values())) >= ranks
    assert max(most.values()) <= 12


def backward_around_a_ring(group, ranks, score, learned=()):
    """The gradients of learned tensors on each rank."""
    plan = parallel.plan(score, 256, ranks, chunk=4)

    def of_rank(rank):
        steps = steps_of(plan, 0, rank, "ring", torch.device("cpu"))
        options = attend._Options(None, "cpu")
        run = attend._Run(steps, None, score, attend._learned(score)[0], options, keeps=False)
        own = torch.randn(3, 1, 1, plan.count(rank), 8, requires_grad=True)
        out, _ = attend._Attention.apply(run, *own, *learned)
        return torch.autograd.grad(out.sum(), [own, *learned])[1:]

    return group.results(ranks, of_rank)


@pytest.mark.parametrize("ranks", [4, 16])
def test_gradients_that_return_around_a_ring_are_added_as_they_come(group, monkeypatch, ranks):
    under_way, most = dict.fromkeys(range(ranks), 0), dict.fromkeys(range(ranks), 0)

    def counted(*exchange):
        rank, arrives = group.of.rank, group.exchange(*exchange)
        under_way[rank] += 1
        most[rank] = max(most[rank], under_way[rank])

        def wait():
            under_way[rank] -= 1
            return arrives()

        return wait

    monkeypatch.setattr(attend, "_exchange", counted)
    backward_around_a_ring(group, ranks, ma.causal)
    assert set(under_way.values()) == {0}
    assert max(most.values()) == 3  # the next keys, and the gradients of these and the last ones


def test_gradients_of_learned_tensors_in_half_precision_are_added_in_float32(group, monkeypatch):
    calls, small = {}, 2.0**-9  # 1 + small is 1 in bfloat16

    def found(self, inputs, learned, call, of_rows, rooms, made):
        calls[group.of.rank] = number = calls.get(group.of.rank, 0) + 1
        mine = torch.full_like(learned[0], 1.0 if number == 1 else small)
        return [*map(torch.zeros_like, inputs), mine]

    monkeypatch.setattr(attend._Run, "_gradients", found)
    slope = torch.tensor([0.5], dtype=torch.bfloat16, requires_grad=True)
    parts = backward_around_a_ring(group, 16, ma.causal + ma.alibi(slope), [slope])
    assert max(calls.values()) >= 16
    wanted = [torch.tensor([1 + (calls[rank] - 1) * small]).bfloat16() for rank in range(16)]
    assert [gradient for (gradient,) in parts] == wanted
