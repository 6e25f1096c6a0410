"""Every kernel launched several times: Triton's own launch and those after it pass the same bytes.

The GPU is a stub below Triton's launcher in C (`tests/cases/stub_gpu.py`).
"""

import gc
import os
import shutil
import sys
import warnings
import weakref
from contextlib import contextmanager

import pytest
import torch

import maskalg as ma
from maskalg import causal, document, sliding
from maskalg.engine.normal_form import bound
from maskalg.parallel import attend, plan
from maskalg.parallel.steps import steps_of
from tests.cases.kept_bits import Anew
from tests.cases.stub_gpu import stub_gpu

triton = pytest.importorskip("triton", reason="launches of Triton's kernels")
pytestmark = [
    pytest.mark.skipif(os.environ.get("TRITON_INTERPRET") == "1", reason="nothing is compiled"),
    pytest.mark.skipif(shutil.which("gcc") is None, reason="the stub is compiled by gcc"),
]

IDS = torch.arange(1024, dtype=torch.int32) // 300


class Arena:
    """New tensors lie where those of their size lay in the call before."""

    def __init__(self):
        self.kept, self.counts = {}, {}

    @contextmanager
    def call(self, monkeypatch):
        self.counts = {}
        with monkeypatch.context() as patched:
            for name in ("empty", "empty_like", "empty_strided"):
                patched.setattr(torch, name, self.placed(getattr(torch, name)))
            for name in ("new_empty", "new_empty_strided"):
                patched.setattr(torch.Tensor, name, self.placed(getattr(torch.Tensor, name)))
            yield

    def placed(self, function):
        def place(*arguments, **keywords):
            made = function(*arguments, **keywords)
            kind = (tuple(made.shape), made.stride(), made.dtype)
            count = self.counts[kind] = self.counts.get(kind, -1) + 1
            return self.kept.setdefault((kind, count), made)

        return place


def inputs(dim=128, dtype=torch.bfloat16, length=1024, queries=None, heads=4, kv_heads=2, batch=1):
    q = torch.randn(batch, heads, queries or length, dim).to(dtype)
    k, v = (torch.randn(batch, kv_heads, length, dim).to(dtype) for _ in range(2))
    return q, k, v


class Passes:
    """Passes of a rank of two, by launches; what the other rank sends is zero."""

    def __init__(self, monkeypatch, mask, launches):
        made = plan(mask, 4096, 2)
        steps = steps_of(made, 0, 1, "gather", torch.device("cpu"))
        options = attend._Options(None, "triton")
        self.run = attend._Run(steps, None, mask, (), options, keeps=True)
        self.inputs = tuple(torch.randn(1, 1, made.count(1), 64) for _ in range(3))
        self.monkeypatch, self.launches, self.arena = monkeypatch, launches, Arena()
        monkeypatch.setattr(attend, "_exchange", self.exchange)

    def exchange(self, rows, to, back, group):
        kept = self.arena.kept.setdefault((sum(back), rows.shape), rows.new_zeros(sum(back), 128))
        return lambda: kept

    def both(self, change):
        """The launches of a forward and a backward pass."""
        self.launches.clear()
        with self.arena.call(self.monkeypatch):
            out, lse, parts = self.run.forward(self.inputs)
            self.run.backward(self.inputs, (out, lse), (change, None), parts)
        return [*self.launches]


WINDOW = causal & sliding(128)
SLOPES = torch.rand(4)
QUERIES = {"hopper_forward", "hopper_backward_queries"}
ONE_PASS = {"hopper_forward", "gradient_rows", "hopper_gradients"}
CASES = {
    "window": (WINDOW, {}, {*QUERIES, "hopper_backward_keys"}),
    "documents": (causal & document(IDS), {"dim": 64}, {"hopper_forward"}),
    "one pass": (causal, {"length": 4096, "heads": 16, "kv_heads": 16}, ONE_PASS),
    "wide": (
        WINDOW,
        {"dim": 256, "heads": 4, "kv_heads": 4},
        {"hopper_forward", "hopper_backward_wide_keys"},
    ),
    "float32": (WINDOW, {"dim": 64, "dtype": torch.float32}, {"forward", "backward_keys"}),
    "odd": (causal + ma.softcap(30.0), {"dim": 36}, {"forward", "backward_queries"}),
    "slopes": (causal + ma.alibi(SLOPES), {"dim": 64}, {"backward_entries"}),
    "marks": (ma.neighborhood((32, 32), 5), {}, {"hopper_forward"}),
    "one row": (causal.shift(q=2047), {"length": 2048, "queries": 1}, {"decode", "joined"}),
    "some rows": (causal.shift(q=2000), {"length": 2048, "queries": 48}, {"decode", "joined"}),
}


def launches_of(call, launches, monkeypatch):
    """The launches of a call through Triton's binding, and of the two after it."""
    from maskalg.backends.triton.launching import launch

    call()
    launch._VARIANTS.clear()
    arena, found = Arena(), []
    for _ in range(4):
        launches.clear()
        with arena.call(monkeypatch):
            call()
        found.append(list(launches))
    return found


@pytest.mark.parametrize("name", list(CASES))
def test_on_hopper(name, monkeypatch, compiled):
    check(name, "sm_90", CASES[name][2], monkeypatch, compiled)


@pytest.mark.parametrize("weight", [ma.softmax, ma.relu])
def test_bits_of_a_mask_that_costs(weight, monkeypatch, compiled):
    from maskalg.backends.triton import kept

    for name, new in (("_MEMORY", Anew()), ("_SERVES", {}), ("_FEWEST_PAIRS", 0)):
        monkeypatch.setattr(kept, name, new)
    mask = causal & ((ma.q_idx - ma.kv_idx) % 7 < 3)
    with stub_gpu(monkeypatch, compiled) as launches, warnings.catch_warnings(action="error"):
        ma.attention(*inputs(), mask, weight=weight, backend="triton")
    assert "kept_bits" in [launched.name for launched in launches]


def test_bits_that_come_to_take_too_much_memory(monkeypatch, compiled):
    """Launches that are remembered with bits give way to ones that compute the mask."""
    from maskalg.backends.triton import kept

    limits = {"_FEWEST_PAIRS": 0, "_MOST_BITS": 1 << 14, "MOST_OF_TILES": 1 << 14}
    for name, new in {"_SERVES": {}, **limits}.items():
        monkeypatch.setattr(kept, name, new)
    word = 0

    def piece(bits, begin, end):
        return torch.full((1, end - begin, bits._layout.words), word, dtype=torch.int32)

    monkeypatch.setattr(kept.KeptBits, "_piece", piece)
    order = torch.randperm(600)
    mask, q = ma.permutation(order), inputs(length=600, kv_heads=4)[0]
    found = []
    with stub_gpu(monkeypatch, compiled), warnings.catch_warnings(action="error"):
        for word in (0, 0, 0, 1, 1, 0, 0):
            order.add_(0)  # written to
            ma.attention(q, q, q, mask, backend="triton")
            if word == 1:
                ma.attention(q.half(), q.half(), q.half(), mask, backend="triton")
            found.append(ma.explain(q, q, q, mask, backend="triton").elements.split()[0])
    assert found == [*["looked"] * 3, *["computed,"] * 2, *["looked"] * 2]


def test_tables_of_many_lengths_are_forgotten(monkeypatch, compiled):
    """The launches of an expression keep no more tables than memory is allowed for them."""
    from maskalg.backends.triton import kept
    from maskalg.backends.triton.launching import ready

    monkeypatch.setattr(kept, "_FEWEST_PAIRS", 0)
    for name, new in (("_LARGE", 0), ("_MOST_OF_TABLES", 200_000)):
        monkeypatch.setattr(ready, name, new)
    mask = causal & ((ma.q_idx - ma.kv_idx) % 7 < 3)
    known, held = bound(mask).remembered, []
    with stub_gpu(monkeypatch, compiled):
        for length in range(512, 1536, 64):
            q = inputs(length=length, kv_heads=4)[0]
            for _ in range(3):
                ma.attention(q, q, q, mask, backend="triton")
            launches = [one for one in known.values() if isinstance(one, ready.Ready)]
            tables = {id(table): table.nbytes for one in launches for table in one.tables}
            assert len(launches) == 1 or sum(tables.values()) <= 200_000
            held.append(len(launches))
    assert max(held) > 1 and held[-1] < len(held)


@pytest.mark.parametrize("target", ["sm_80", "sm_100", "sm_120"])
@pytest.mark.parametrize("name", ["window", "one row"])
def test_elsewhere(name, target, monkeypatch, compiled):
    kernels = {"decode", "joined"} if "row" in name else {"forward", "backward_keys"}
    check(name, target, kernels, monkeypatch, compiled)


def check(name, target, kernels, monkeypatch, folder):
    """Each kernel is launched again with the parameters of its first launch."""
    score, sizes, _ = CASES[name]
    q, k, v = inputs(**sizes)
    of = [tensor.requires_grad_(q.shape[2] == k.shape[2]) for tensor in (q, k, v)]
    grad_out = torch.ones_like(q)

    def call():
        out = ma.attention(q, k, v, score, backend="triton")
        if out.requires_grad:
            torch.autograd.grad(out, [*of, SLOPES] if name == "slopes" else of, grad_out)

    SLOPES.requires_grad_(name == "slopes")
    with stub_gpu(monkeypatch, folder, target) as launches:
        check_launches(launches_of(call, launches, monkeypatch), kernels)


def check_launches(found, kernels):
    """As `launches_of` found them, the later ones are like the first."""
    first, *others = found
    assert {launched.name for launched in first} >= kernels, {one.name for one in first}
    for again in others:
        names = {launched.name for launched in again}
        assert names >= kernels
        expected = [launched for launched in first if launched.name in names]
        assert [differing(*pair) for pair in zip(again, expected, strict=True)] == [[]] * len(again)


@pytest.mark.parametrize("target", ["sm_90", "sm_80"])
def test_results_in_slices_of_longer_tensors(target, monkeypatch, compiled):
    """A call whose rooms have other strides is another call."""
    from maskalg.attention import checked_call
    from maskalg.backends.triton import backend

    calls = []
    for tokens in (1024, 2048, 1024):
        q, k, v = inputs(length=tokens)
        at = slice(tokens - 640, tokens - 128)
        of = [x[:, :, at].contiguous() for x in (q, k, v)]
        rooms = tuple(torch.empty_like(x)[:, :, at] for x in (q, q, k, v))
        calls.append(checked_call(*of, WINDOW, return_lse=True)._replace(rooms=rooms))
    change = torch.ones_like(calls[0].query)

    def run(call):
        out, lse = backend.compute(call, True)
        found = backend.differentiate(call, (out, lse), (change, None), ())
        assert all(a is b for a, b in zip((out, *found), call.rooms, strict=True))

    form, arena = bound(WINDOW), Arena()
    with stub_gpu(monkeypatch, compiled, target) as launches:
        found = []
        for again in (True, True, True, False):
            launches.clear()
            with arena.call(monkeypatch):
                for each in calls:
                    if not again:
                        form.remembered.clear()
                        form.structure.remembered.clear()
                    run(each)
            # A counter is made anew where nothing is remembered.
            found.append([one for one in launches if one.name != "no_rows_drawn"])
    *others, expected = found
    for again in others:
        for one, wanted in zip(again, expected, strict=True):
            numbers = [(i, a, b) for i, a, b in differing(one, wanted) if len(a) < 16]
            assert not numbers, (one.name, numbers)


def test_merged_parts(monkeypatch, compiled):
    """One variant serves all lengths, but for those whose heads lie at no multiples of 16."""
    from maskalg.backends.triton.launching import launch
    from maskalg.backends.triton.merged import fill_merged

    def parts(length, whole, rows=1):
        like = torch.zeros(1, 4, whole * rows, 64, dtype=torch.bfloat16)[
            :, :, : length * rows : rows
        ]
        outs = [torch.zeros(1, 4, length, 64), like, like[:, :, :length]]
        return outs, [torch.zeros(1, 4, length) for _ in outs], like, torch.zeros(1, 4, length)

    given = [parts(512, 2048), parts(640, 1024), parts(33, 48), parts(33, 35, 3)]
    with stub_gpu(monkeypatch, compiled) as launches:
        for each in given:
            launch._VARIANTS.clear()
            fill_merged(*each)
        expected = launches[:]
        launches.clear()
        launch._VARIANTS.clear()
        for each in given * 2:
            fill_merged(*each)
        assert len(launch._VARIANTS) == 2
    pairs = zip(launches, expected * 2, strict=True)
    assert [differing(*pair) for pair in pairs] == [[]] * 8


@pytest.mark.parametrize("page", [16, 256])
@pytest.mark.parametrize("packed", [False, True])
def test_chunks_in_pages(packed, page, monkeypatch, compiled):
    """By the Hopper kernel, with a descriptor of pages; packed ones beside the kernels of steps."""
    monkeypatch.setattr(ma.Pages, "_check_values", lambda *_: None)  # on a GPU nobody looks
    q, k, v = inputs(length=2048, queries=512, heads=32, kv_heads=8, batch=2)
    k, v = (t.transpose(1, 2).reshape(-1, page, *t.shape[1::2]).contiguous() for t in (k, v))
    table = torch.arange(len(k)).view(2, -1)
    lengths, starts = torch.tensor([2000, 900]).int(), torch.tensor([0, 512, 1024]).int()
    pages = ma.Pages(table, lengths, starts if packed else None)
    if packed:
        q = q.transpose(0, 1).reshape(1, 32, 1024, 128)
    mask = causal.shift(q=lengths - 512)

    def call():
        ma.attention(q, k, v, mask, pages=pages, backend="triton")

    kernels = {"hopper_forward"} | ({"listed", "ragged", "ragged_joined"} if packed else set())
    with stub_gpu(monkeypatch, compiled) as launches:
        check_launches(launches_of(call, launches, monkeypatch), kernels)


@pytest.mark.parametrize("packed", [False, True])
def test_strided_pages_are_read_as_they_are_now(packed, monkeypatch, compiled):
    """Their copies are made anew, and each launch is passed those of its own call."""
    monkeypatch.setattr(ma.Pages, "_check_values", lambda *_: None)
    copies, tensors = [], ma.Pages.tensors.fget
    monkeypatch.setattr(
        ma.Pages, "tensors", property(lambda pages: copies.append(tensors(pages)) or copies[-1])
    )
    q, k, v = inputs(length=2048, queries=2, heads=32, kv_heads=8, batch=2)
    k, v = (t.transpose(1, 2).reshape(-1, 16, *t.shape[1::2]).contiguous() for t in (k, v))
    store, lengths = torch.zeros(128, 2).int(), torch.tensor([2000, 900]).int()
    starts = torch.tensor([[0, 7], [2, 7], [4, 7]]).int()
    pages = ma.Pages(store.T, lengths, starts[:, 0] if packed else None)
    if packed:
        q = q.transpose(0, 1).reshape(1, 32, 4, 128)
    mask, kept = causal.shift(q=lengths - 2), []
    with stub_gpu(monkeypatch, compiled) as launches:
        for i in range(5):
            store.fill_(i)
            launches.clear()
            ma.attention(q, k, v, mask, pages=pages, backend="triton")
            passed = {parameter for launched in launches for parameter in launched.parameters}
            table, *cumulated = copies[-1]
            assert (table == i).all()
            for tensor in (table, *cumulated):
                assert tensor.data_ptr().to_bytes(8, "little") in passed
            kept += copies  # so that no address comes again
            copies.clear()


def test_no_request_is_no_launch(monkeypatch, compiled):
    pages = ma.Pages(*(torch.zeros(*size).int() for size in ((0, 8), (0,), (1,))))
    q, pool = torch.ones(1, 2, 9, 64).half(), torch.ones(4, 16, 2, 64).half()
    with stub_gpu(monkeypatch, compiled) as launches:
        out = ma.attention(q, pool, pool, causal, pages=pages, backend="triton")
    assert not launches and not out.any()


def differing(launched, expected):
    """The parameters of a launch that are not as expected."""
    assert (launched.name, launched.grid) == (expected.name, expected.grid)
    pairs = zip(launched.parameters, expected.parameters, strict=True)
    return [(i, a.hex(), b.hex()) for i, (a, b) in enumerate(pairs) if a != b]


OTHERS = {
    "window": {"length": 896},
    "documents": {"length": 960},
    "one pass": {"length": 4224},
    "wide": {"length": 1000},
    "float32": {"length": 777},
    "odd": {"length": 960},
    "marks": {"batch": 2},
    "one row": {"length": 2051},
    "some rows": {"length": 2100},
}


@pytest.mark.parametrize("name", list(OTHERS))
def test_another_size_on_hopper(name, monkeypatch, compiled):
    check_other_size(name, "sm_90", monkeypatch, compiled)


@pytest.mark.parametrize("target", ["sm_80", "sm_100"])
@pytest.mark.parametrize("name", ["window", "one row"])
def test_another_size_elsewhere(name, target, monkeypatch, compiled):
    check_other_size(name, target, monkeypatch, compiled)


def check_other_size(name, target, monkeypatch, folder):
    """Nothing is prepared for a call of another size; what is launched is as Triton launches it."""
    from maskalg.backends.triton import backend as backend
    from maskalg.backends.triton.launching import launch

    score, sizes, kernels = CASES[name]
    if target != "sm_90":
        kernels = {"decode", "joined"} if "row" in name else {"forward", "backward_keys"}
    forms = bound(score)
    arena = Arena()

    def call(tensors):
        grads = tensors[0].shape[2] == tensors[1].shape[2]
        of = [tensor.requires_grad_(grads) for tensor in tensors]
        with arena.call(monkeypatch):
            change = torch.empty_like(tensors[0])
            out = ma.attention(*tensors, score, backend="triton")
            if grads:
                torch.autograd.grad(out, of, change)

    def forget():
        forms.remembered.clear()
        forms.structure.remembered.clear()

    forget()
    other = inputs(**(sizes | OTHERS[name]))
    with stub_gpu(monkeypatch, folder, target) as launches:
        for _ in range(2):
            call(inputs(**sizes))
        launches.clear()
        known = len(launch._VARIANTS)
        with monkeypatch.context() as patched:
            for prepared in ("plan_of", "launch_forward", "fill_gradients"):
                patched.setattr(backend, prepared, lambda *_: pytest.fail("prepared anew"))
            call(other)
        found = launches[:]
        assert len(launch._VARIANTS) == known
        forget()
        launch._VARIANTS.clear()
        launches.clear()
        call(other)
    assert {launched.name for launched in found} >= kernels, found
    pairs = zip(sorted(found, key=by_name), sorted(launches, key=by_name), strict=True)
    assert [differing(*pair) for pair in pairs] == [[]] * len(found)


def by_name(launched):
    """Tables that are the same for every call of a size are made first."""
    return launched.name


@pytest.mark.parametrize("cache", ["sliced", "joined anew"])
def test_tokens_of_a_growing_cache(cache, monkeypatch, compiled):
    """Nothing grows with their number, and a step of another length costs little Python."""
    from maskalg.backends.triton.launching import descriptors, launch, ready
    from maskalg.engine import extents, normal_form

    extents._remembered.cache_clear()  # each length is new, whichever tests ran before
    q, *whole = inputs(length=2048, queries=1, heads=8)

    def step(n):
        k, v = (tensor[:, :, :n] for tensor in whole)
        if cache == "joined anew":
            k, v = k.contiguous(), v.contiguous()
        score = (causal & sliding(300)).shift(q=n - 1)
        return calls_of(lambda: ma.attention(q, k, v, score, backend="triton"))

    structure = bound((causal & sliding(300)).shift(q=7)).structure
    structure.remembered.clear()
    with stub_gpu(monkeypatch, compiled, "sm_90") as launches:
        for n in (1100, 1101):
            step(n)
        memories = (
            launch._VARIANTS, launch._TRIED, descriptors._ENCODED,
            normal_form._STRUCTURES, structure.remembered,
        )  # fmt: skip
        known = list(map(len, memories))
        launches.clear()
        calls = [step(n) for n in range(1102, 1202)]
        assert len(launches) == 2 * 100
        assert list(map(len, memories)) == known
        assert max(calls) <= 151
        # One expression that is called with all lengths.
        fixed = causal & sliding(300)
        for n in range(1000, 1000 + 2 * ready._MOST):
            ma.attention(q, *(t[:, :, :n] for t in whole), fixed, backend="triton")
        assert len(bound(fixed).remembered) <= ready._MOST


def test_layers_of_a_compiled_step_share_launches(monkeypatch, compiled):
    """The operators, which take tensors and numbers, are prepared once for a step."""
    from maskalg.backends.triton.launching import ready
    from maskalg.engine.keys import by_kind
    from maskalg.engine.normal_form import keyed

    q, k, v = inputs(length=512, dim=64)
    prepared, resized = [], ready._resized
    monkeypatch.setattr(ready, "_resized", lambda *of: prepared.append(of) or resized(*of))

    def step(mask):
        """How often the eight layers are prepared."""
        prepared.clear()
        key, parameters = keyed(mask)
        tables, integers, reals = by_kind(parameters)
        for _ in range(8):
            form = tables, key, integers, reals
            last = None, "exp", True, "triton", False
            out, lse = torch.ops.maskalg.attention_forward(q, k, v, *form, *last)
            wanted = [False] * len(tables)
            torch.ops.maskalg.attention_backward(
                q, k, v, tables, out, lse, out, None, *form[1:], *last[:2], wanted, *last[3:]
            )
        return len(prepared)

    with stub_gpu(monkeypatch, compiled):
        ids = IDS[:512].clone()
        for _ in range(3):
            step(causal & document(ids) & sliding(200))
        assert step(causal & document(ids) & sliding(100)) == 2  # once for each pass
        assert step(causal & document(ids) & sliding(100)) == 0
        ids += 1
        assert step(causal & document(ids) & sliding(100)) == 2
        assert step(causal & document(ids.clone()) & sliding(100)) == 2
        for _ in range(3):
            step(causal & sliding(50))
        assert step(causal & sliding(60)) == 2


def calls_of(function):
    """How many Python functions of the package a call calls."""
    folder, count = os.path.dirname(ma.__file__), 0

    def hear(frame, event, _):
        nonlocal count
        count += event == "call" and frame.f_code.co_filename.startswith(folder)

    sys.setprofile(hear)
    try:
        function()
    finally:
        sys.setprofile(None)
    return count


def test_each_stub_has_memory_of_its_own(monkeypatch, compiled):
    from triton.compiler.compiler import max_shared_mem

    found = []
    for target in ("sm_80", "sm_90", "sm_120"):
        with monkeypatch.context() as patched, stub_gpu(patched, compiled, target):
            found.append(max_shared_mem(0) // 1024)
    assert found == [163, 227, 99]


@pytest.mark.parametrize("paged", [False, True])
def test_layers_of_a_step_look_tables_up_once(paged, monkeypatch, compiled):
    """And again, once the tensors of the mask are written to."""
    from maskalg.backends.triton.launching import ready

    monkeypatch.setattr(ma.Pages, "_check_values", lambda *_: None)  # on a GPU nobody looks
    q, k, v = inputs(length=2048, queries=1, batch=2)
    kept = torch.ones(2, 2048, dtype=torch.bool)
    lengths = torch.tensor([2000, 900])
    pages = None
    if paged:
        k, v = (t[0].transpose(0, 1).unflatten(0, (-1, 16)).contiguous() for t in (k, v))
        pages = ma.Pages(torch.arange(128).view(1, 128).expand(2, 128).contiguous(), lengths)
    looked_up = []

    def counting(*arguments):
        looked_up.append(arguments)
        return tables_of(*arguments)

    tables_of = ready.tables_of
    monkeypatch.setattr(ready, "tables_of", counting)

    def step():
        padding = ma.table(kept, "kept")[ma.batch, ma.kv_idx]
        return (causal & padding).shift(q=lengths - 1)

    def layers(mask):
        looked_up.clear()
        for _ in range(8):
            ma.attention(q, k, v, mask, pages=pages, backend="triton")
        return len(looked_up)

    with stub_gpu(monkeypatch, compiled):
        for _ in range(3):
            layers(step())
        mask = step()
        assert layers(mask) == (2 if paged else 1)  # for another expression; of pages, to compare
        assert layers(mask) == 0
        kept[:, 100:300] = False
        assert layers(mask) == 1


def test_layers_of_a_window_with_padding(monkeypatch, compiled):
    """A layer after the first compares its call, and copies no row of the padding mask."""
    pytest.importorskip("transformers")
    from transformers.masking_utils import and_masks, causal_mask_function, sliding_window_overlay

    from maskalg.integrations.transformers import make_mask

    q, k, v = inputs(length=300, queries=1, heads=8, batch=2)
    kept = torch.ones(len(q), 1024, dtype=torch.long)
    with stub_gpu(monkeypatch, compiled, "sm_90") as launches:
        for n in range(600, 604):
            window = and_masks(sliding_window_overlay(300), causal_mask_function)
            mask = make_mask(
                len(q), 1, 300, n - 1, n - 300, mask_function=window, attention_mask=kept[:, :n]
            ).score
            calls = [
                calls_of(lambda: ma.attention(q, k, v, mask, backend="triton"))  # noqa: B023
                for _ in range(3)
            ]
        assert len(launches) >= 2 * 3 * 4
        assert calls[0] <= 205 and max(calls[1:]) <= 40


def gradient_calls(gradients, mask=causal, length=512):
    """Both passes of equal inputs with each of these gradients of the output."""
    of = [tensor.requires_grad_() for tensor in inputs(length=length, heads=2)]
    for grad_out in gradients:
        out = ma.attention(*of, mask, backend="triton")
        torch.autograd.grad(out, of, grad_out)


def test_a_gradient_that_is_aligned_otherwise_is_another_launch(monkeypatch, compiled):
    """Descriptors do not reach it: the plain kernels serve, and then the first ones again."""
    aligned = torch.zeros(1, 2, 512, 128, dtype=torch.bfloat16)
    shifted = torch.zeros(aligned.numel() + 1, dtype=torch.bfloat16)[1:].view(aligned.shape)
    bound(causal).remembered.clear()
    with stub_gpu(monkeypatch, compiled) as launches:
        gradient_calls([aligned] * 3)
        launches.clear()
        gradient_calls([shifted, aligned] * 2)
    of_aligned = ["hopper_forward", "hopper_backward_queries", "hopper_backward_keys"]
    of_shifted = ["hopper_forward", "backward_queries", "backward_keys"]
    assert [launched.name for launched in launches] == (of_shifted + of_aligned) * 2


def test_prepared_launches_hold_no_tensor(monkeypatch, compiled):
    lived = []

    class Watched(torch.autograd.Function):
        @staticmethod
        def forward(ctx, tensor):
            return tensor.clone()

        @staticmethod
        def backward(ctx, change):
            lived.append(weakref.ref(change))
            return change

    bound(causal).remembered.clear()
    with stub_gpu(monkeypatch, compiled):
        for _ in range(4):
            of = [tensor.requires_grad_() for tensor in inputs(length=512, heads=2)]
            out = ma.attention(*map(Watched.apply, of), causal, backend="triton")
            lived += map(weakref.ref, (out, *of))
            out.sum().backward()
            del out, of
    gc.collect()
    assert len(lived) == 4 * (3 + 4)
    assert not any(ref() is not None for ref in lived)


def test_python_of_a_step_of_training(monkeypatch, compiled):
    """A call like one before looks little up, in either pass."""
    of = [tensor.requires_grad_() for tensor in inputs(length=512, heads=2)]
    change = torch.zeros(1, 2, 512, 128, dtype=torch.bfloat16)
    with stub_gpu(monkeypatch, compiled):
        gradient_calls([change] * 4)
        found = []
        for _ in range(20):
            out = []
            forward = calls_of(
                lambda out=out: out.append(ma.attention(*of, causal, backend="triton"))
            )
            backward = calls_of(lambda out=out: torch.autograd.grad(out, of, change))
            found.append((forward, backward))
    # New tensors may lie where none did before; those calls prepare a launch.
    assert min(forward for forward, _ in found) <= 37, found
    assert min(backward for _, backward in found) <= 30, found


@pytest.mark.parametrize("dim", [64, 40])
@pytest.mark.parametrize("target", ["sm_80", "sm_90"])
def test_one_variant_serves_documents_however_packed(target, dim, monkeypatch, tmp_path):
    """Plain kernels, whose text does not depend on lengths, batch, strides or addresses."""
    from maskalg.backends.aligned import backend

    monkeypatch.setattr(backend, "_interpreted", lambda: True)  # the stub's tensors lie on the CPU

    def step(lengths, batch=1, *, together=False):
        q, k, v = inputs(dim, length=sum(lengths), batch=batch)
        if together:
            q, k, v = (t.transpose(1, 2).contiguous().transpose(1, 2) for t in (q, k, v))
        mask = causal & document.from_lengths(lengths) + ma.alibi(SLOPES.detach())
        leaves = [t.requires_grad_() for t in (q, k, v)]
        ma.attention(*leaves, mask, backend="aligned").float().sum().backward()

    wanted = ["forward", "backward_queries", "backward_keys"]
    with stub_gpu(monkeypatch, tmp_path, target) as launches:
        step([300, 511])
        assert [one.name for one in launches] == wanted
        for others in (([300],), ([1, 511, 0, 77], 2), ([4096],), ([16, 1],)):
            step(*others)
            step(*others, together=True)
        assert [one.name for one in launches] == 9 * wanted
    assert sorted(path.stem for path in tmp_path.rglob("*.ptx")) == sorted(wanted)


def test_passes_of_a_rank_launch_what_checked_calls_launch(monkeypatch, compiled):
    ids = torch.arange(4096, dtype=torch.int32) // 900
    with stub_gpu(monkeypatch, compiled) as launches:
        passes = Passes(monkeypatch, causal & document(ids), launches)
        calls = len(passes.run.steps.own) + len(passes.run.steps.hops[0].calls)
        change = torch.randn(passes.inputs[0].shape)
        # A change of another layout, then at another place modulo 16 bytes, then other ids.
        changes = [change, change.transpose(2, 3).contiguous().transpose(2, 3)]
        changes += [torch.randn(change.numel() + 1)[1:].view(change.shape), change]
        for number, each in enumerate(changes):
            if number == 3:
                ids += 7
            found = [passes.both(each) for _ in range(5)]
            with monkeypatch.context() as patched:
                patched.setattr(attend._Run, "_remembered", lambda *_: {})
                wanted = passes.both(each)
            assert len(wanted) >= 3 * calls > 3
            assert all(same == wanted for same in found[-2:])
        kinds = passes.run.score.__dict__["_made"].values()
        assert all(len(made) == calls for _, made in kinds)
        assert all(others[-1] for _, made in kinds for others in made.values())


def test_ids_of_64_bits_are_read_at_moved_places_as_at_others(monkeypatch, compiled):
    """What is added to an index makes no entry longer."""
    mask = (causal & document(IDS.long())).shift(q=torch.tensor([512]))
    q, k, v = inputs(length=1024, queries=512)
    with stub_gpu(monkeypatch, compiled, "sm_90"):
        assert ma.explain(q, k, v, mask, backend="triton").tier == "Gluon on Hopper, forward"


@pytest.mark.parametrize("dtype, count", [(torch.float32, 3), (torch.bfloat16, 4)])
def test_kernels_of_learned_tables_are_compiled_side_by_side(dtype, count, monkeypatch, compiled):
    """Those that are launched are those that were compiled, whatever their sums are."""
    from maskalg.backends.triton.families import entries

    together, launched, fits = [], [], entries.that_fits
    monkeypatch.setattr(entries, "compile_together", together.extend)

    def fitting(*args):
        launched.append(fits(*args))
        return launched[-1]

    monkeypatch.setattr(entries, "that_fits", fitting)
    slopes, by_distance = torch.rand(4, requires_grad=True), torch.rand(4, 65, requires_grad=True)
    by_key = torch.rand(200, requires_grad=True)
    bias = ma.alibi(slopes) + ma.relative(by_distance) + ma.key_bias(by_key)
    q, k, v = (torch.zeros(1, 4, 200, 64, dtype=dtype) for _ in range(3))
    with stub_gpu(monkeypatch, compiled):
        out = ma.attention(q, k, v, causal + bias, backend="triton")
        torch.autograd.grad(out.sum(), (slopes, by_distance, by_key))
    keys = {launch.key for launch in launched}
    assert keys == {launch.key for launch in together} and len(keys) == count


def test_few_tiles_are_not_labelled(monkeypatch, compiled):
    """Those of a step of decoding against an attention mask."""
    from maskalg.backends.triton import kept

    monkeypatch.setattr(kept, "_FEWEST_PAIRS", 0)
    real = torch.arange(2048)[None] >= 300
    mask = causal & ma.padding.from_mask(real)
    q, k, v = inputs(length=2048, queries=1)
    with stub_gpu(monkeypatch, compiled):
        step = ma.explain(q, k, v, mask.shift(q=2047), backend="triton")
        whole = ma.explain(k, k, v, mask & ma.sliding(1500), backend="triton")
    assert step.schedule == (
        "runs of tiles that intervals leave, computed in the kernel: too few to label them"
    )
    assert "bits of pairs" in whole.schedule
