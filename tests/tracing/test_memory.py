"""Functions like one traced before are filled with their values, and traced where they differ."""

import copy
import gc
import pickle
import weakref

import pytest
import torch

import maskalg as ma
from maskalg.engine import normal_form
from maskalg.engine.normal_form import bound
from maskalg.engine.recent import Recent
from maskalg.tracing import memory
from maskalg.tracing import trace as tracing


@pytest.fixture
def traces(monkeypatch):
    """Counts the functions that are run on symbols, with nothing remembered before."""
    monkeypatch.setattr(memory, "_TEMPLATES", Recent(512))
    counted = []
    attempt = tracing._attempt

    def counting(function, constants, scored):
        counted.append(function)
        return attempt(function, constants, scored)

    monkeypatch.setattr(tracing, "_attempt", counting)
    return counted


def both(*functions):
    def joined(b, h, q, k):
        result = q.new_ones((), dtype=torch.bool)
        for function in functions:
            result = result & function(b, h, q, k).to(result.device)
        return result

    return joined


def back(window):
    return lambda b, h, q, k: q - k < window


def same(ids):
    return lambda b, h, q, k: ids[b, q] == ids[b, k]


def rows(length, step=4):
    return (torch.arange(length) // step)[None]


def dense(function, length):
    index = torch.arange(length)
    return function(torch.tensor(0), torch.tensor(0), index[:, None], index[None, :])


def test_a_new_step_is_not_traced(traces):
    first = ma.mask(both(back(3), same(rows(16))))
    assert len(traces) == 1
    ids = rows(24, 5)
    second = ma.mask(both(back(7), same(ids)))
    assert len(traces) == 1
    assert bound(first).structure is bound(second).structure
    assert second.parameters == {"window": 7, "ids": ids}
    assert second.parameters["ids"] is ids
    assert (second.to_dense(24)[0, 0] == dense(both(back(7), same(ids)), 24)).all()


@pytest.mark.parametrize(
    "other",
    [
        both(same(rows(16)), back(3)),  # another order
        both(back(3), back(3)),  # other code
        both(back(3.0), same(rows(16))),  # a real number
        both(back(-3), same(rows(16))),  # of another sign
        both(back(3), same(rows(16).bool())),  # another kind of tensor
        both(back(3), same(rows(16).float())),
    ],
)
def test_what_differs_is_traced(traces, other):
    ma.mask(both(back(3), same(rows(16))))
    mask = ma.mask(other)
    assert len(traces) == 2
    assert mask == ma.mask(other)
    assert len(traces) == 2
    assert (mask.to_dense(16)[0, 0] == dense(other, 16)).all()


def test_one_tensor_twice_is_not_two_tensors(traces):
    def three(first, second, third):
        return lambda b, h, q, k: (first[q] == second[k]) & (q >= third[k])

    one, two = torch.arange(8) // 2, torch.arange(8) // 3
    for count, given in enumerate(((one, one, one), (one, two, one), (one, two, two))):
        function = three(*given)
        mask = ma.mask(function)
        assert len(traces) == count + 1
        assert len(mask.parameters) == (1 if count == 0 else 2)
        assert (mask.to_dense(8)[0, 0] == dense(function, 8)).all()


WINDOW = 3


def global_window(b, h, q, k):
    return q - k < WINDOW


def test_globals_and_defaults_are_values(monkeypatch, traces):
    assert ma.mask(global_window).parameters == {"WINDOW": 3}
    monkeypatch.setitem(globals(), "WINDOW", 5)
    assert ma.mask(global_window).parameters == {"WINDOW": 5}
    assert len(traces) == 1


def test_values_that_python_needs_are_traced_again(traces):
    def unrolled(count):
        def kept(b, h, q, k):
            result = q == k
            for i in range(count):
                result = result | (q - k == 2 * i)
            return result

        return kept

    for count in (2, 3, 2):
        mask = ma.mask(unrolled(count))
        assert (mask.to_dense(12)[0, 0] == dense(unrolled(count), 12)).all()


def test_sizes_and_entries_that_decide_are_traced_again():
    def by_row(table):
        return lambda b, h, q, k: table[q].sum() > k

    for width in (2, 3):
        table = torch.ones(6, width, dtype=torch.int64)
        assert ma.mask(by_row(table)).to_dense(6)[0, 0].sum() == 6 * width

    def through(places, table):
        return lambda b, h, q, k: table[places[q]] > k

    table = torch.tensor([1, 2, 6, 4])
    for places in ([0, 1, 2, 3], [-1, -2, 0, 1]):  # negative ones count from the end
        function = through(torch.tensor(places), table)
        assert (ma.mask(function).to_dense(4)[0, 0] == dense(function, 4)).all()


def test_bad_numbers_raise_as_in_a_first_trace():
    def chunk(size):
        return lambda b, h, q, k: q // size == k // size

    ma.mask(chunk(4))
    with pytest.raises(ma.MaskValueError, match="divides by"):
        ma.mask(chunk(0))
    assert ma.mask(chunk(2**40)).to_dense(8).all()


def test_objects_that_may_change_are_traced_each_time(traces):
    class Holder:
        window = 3

    def held(b, h, q, k):
        return q - k < Holder.window

    counts = []
    for window in (3, 5):
        Holder.window = window
        counts.append(int(ma.mask(held).to_dense(8).sum()))
    assert counts[0] < counts[1] and len(traces) == 2


def test_formulas_that_are_made_when_asked_for(traces):
    """They are those that tracing makes, and their normal form is that of the formulas."""
    ids = rows(40)
    shared = torch.arange(8)

    def pairs(window, one, other):
        return lambda b, h, q, k: (
            (q - k < window) & (one[q % 8] >= other[k % 8]) & same(ids)(b, h, q, k)
        )

    for given in ((9, shared, shared + 1), (5, shared, shared)):
        first, again = ma.mask(pairs(*given)), ma.mask(pairs(*given))
        assert len(traces) == 1 + (given[1] is given[2])
        assert "mask_node" in vars(first) and "mask_node" not in vars(again)
        known = bound(again)
        assert known.structure is bound(first).structure and "mask_node" not in vars(again)
        assert all(a is b for a, b in zip(known.values, bound(first).values, strict=True))
        assert torch.equal(again.to_dense(40), first.to_dense(40))
        for made in (again, copy.copy(ma.mask(pairs(*given)))):
            assert made == first and hash(made) == hash(first) and repr(made) == repr(first)
        assert pickle.loads(pickle.dumps(ma.mask(pairs(*given)))).parameters["window"] == given[0]
        wider = ma.mask(pairs(*given)).bind(window=12)
        assert torch.equal(wider.to_dense(40), ma.mask(pairs(12, *given[1:])).to_dense(40))
        assert (ma.causal & ma.mask(pairs(*given))) == (ma.causal & first)
        with pytest.raises(AttributeError):
            _ = ma.mask(pairs(*given)).mask_nodes


def test_threads_that_ask_for_formulas_get_the_same():
    one, again = (ma.mask(back(7)) for _ in range(2))
    make, other = vars(again)["_formulas"], []

    def interrupted():
        vars(again)["_formulas"] = make
        other.extend([again.mask_node, again.label])  # as another thread would
        return make()

    vars(again)["_formulas"] = interrupted
    assert again.mask_node is other[0] and again.label is other[1] and again == one


def test_a_structure_that_was_forgotten_is_one_again(monkeypatch):
    ma.mask(back(7))
    before = bound(ma.mask(back(7))).structure
    monkeypatch.setattr(normal_form, "_STRUCTURES", Recent(4096))
    late, moved = ma.mask(back(7)), ma.mask(back(7)).bind(window=9)
    assert bound(late).structure is bound(moved).structure is before


def test_sparse_tables_are_refused_where_a_dense_one_was_traced():
    def positive(table):
        return lambda b, h, q, k: table[q, k] > 0

    table = torch.rand(8, 8)
    ma.mask(positive(table))
    with pytest.raises(ma.MaskTypeError, match="sparse_coo"):
        ma.mask(positive(table.to_sparse()))


def test_no_tensor_is_kept_alive():
    ids = rows(40)
    gone = weakref.ref(ids)
    ma.mask(both(back(9), same(ids)))
    del ids
    gc.collect()
    assert gone() is None


def test_symbols_know_their_device():
    """`x.to(result.device)` of computed values, as composed mask functions write it."""
    mask = ma.mask(both(back(3), back(9)))
    assert mask.prove().exact
