"""Kernels of whole masks proved, and what the verifier says of wrong ones."""

import dataclasses

import pytest
import torch

import maskalg as ma
from maskalg.cli import main
from maskalg.engine.normal_form import bound
from maskalg.formula import nodes
from maskalg.testing.catalogue import CATALOGUE
from maskalg.values.index import Index
from maskalg.verifier import claims as of_claims
from maskalg.verifier.claims import claims

pytest.importorskip("z3")

each = ma.table(torch.tensor([5, -3]), "each")[ma.batch]
divisor = ma.table(torch.tensor([5, 3]), "c", low=1)[ma.batch]

SAMPLE = [
    "causal",
    "causal sliding",
    "sinks and window",
    "causal sliding documents",
    "dilated",
    "padding",
    "prefix LM per batch",
    "nothing",
    "strided",
]


@pytest.mark.parametrize("name", [name for name in SAMPLE if name in CATALOGUE])
def test_masks_of_the_catalogue(name):
    found = ma.verify(CATALOGUE[name].mask)
    assert found.whole, str(found)


@pytest.mark.parametrize("name", ["causal", "dense", "neighborhood on an image"])
def test_each_target_by_itself_has_claims_of_its_bounds_or_runs(name):
    found = {}
    for targets in (["ptx"], ["triton"], ["cpu"], ["ptx", "triton", "cpu"]):
        claims_of = ma.verify(CATALOGUE[name].mask, targets=targets).claims
        found[targets[0], len(targets)] = [
            c.text for c in claims_of if c.kind in ("bounds", "runs")
        ]
    assert found["ptx", 1] == found["triton", 1] != []
    assert found["cpu", 1] != [] and all("CPUs" in text for text in found["cpu", 1])
    assert set(found["ptx", 3]) == {*found["ptx", 1], *found["cpu", 1]}


def subject_of(mask):
    return of_claims.subject_of(bound(mask))


def wrong(mask, old, new, target):
    """The claims that are not proved where a text of the hooks is another one."""
    changed = []

    def rendered(text):
        # Behind the title, which shows the formula.
        title, first, rest = text.partition("@triton.jit" if target != "cpu" else 'extern "C"')
        changed.append(old in rest)
        return title + first + rest.replace(old, new)

    subject = dataclasses.replace(subject_of(mask), rendered=rendered)
    found = [claim for claim in claims(subject, (target,), 3000) if not claim.holds]
    assert any(changed)
    return found


@pytest.mark.parametrize(
    "old, new, target",
    [
        ("setp.lt.u32", "setp.le.u32", "ptx"),
        ("setp.lt.u32", "setp.lt.s32", "ptx"),
        ("sub.s32 distance, $2, $3", "sub.s32 distance, $3, $2", "ptx"),
        ("kv_len - 1)", "kv_len)", "ptx"),
        ("(q_idx - S[0] + 1)", "(q_idx - S[0])", "ptx"),
        ("(q_idx >= kv_idx)", "(q_idx > kv_idx)", "triton"),
        ("(kv_idx < kv_len) & ", "", "triton"),
        ('score, float("-inf")', 'float("-inf"), score', "triton"),
        (" >= ", " > ", "cpu"),
        ("(I)1LL", "(I)2LL", "cpu"),
    ],
)
def test_a_wrong_text_is_refuted(old, new, target):
    found = wrong(ma.causal & ma.sliding(300), old, new, target)
    assert found and any(claim.outcome == "wrong" for claim in found)
    assert all(claim.model is not None for claim in found if claim.outcome == "wrong")


def test_multiples_of_the_head_have_64_bits_where_they_need_them():
    """They were computed in 32: 3 * 10**9 positions for head 3 became a negative number."""
    found = ma.verify(ma.q_idx - ma.kv_idx <= 1_000_000_000 * ma.head, targets=("ptx", "triton"))
    assert not found.wrong, str(found)


def test_multiples_of_positions_in_tables_have_64_bits_where_they_need_them():
    """2 * t, of a position of 32 bits, was computed in 32 bits in kernels of 64."""
    ids = ma.table(torch.arange(64) // 9, "t")
    found = ma.verify(ids[(ma.q_idx + 2) // 2] == ids[ma.kv_idx // 2], targets=("ptx",))
    assert not found.wrong, str(found)


def test_an_index_that_adds_an_entry_stays_in_its_table():
    """In loops over queries it wrapped: a shift near the end of int64 took the first document for
    the last."""
    far = torch.tensor([2**63 - 1, 3])
    ids = torch.arange(64, dtype=torch.int32) // 9
    found = ma.verify(~ma.document(ids).shift(q=far), targets=("ptx", "triton"))
    assert not found.wrong, str(found)


def test_what_is_not_proved_is_said():
    image = ma.verify(ma.neighborhood((8, 8), 3), targets=("ptx",))
    assert "next_run, a call of 512 queries and 512 keys" in str(image) and image.whole
    assert "look up, and runs of keys on CPUs: they are checked for one call" in str(image)


def test_runs_of_a_call():
    found = ma.verify(ma.causal & ma.sliding(9), targets=("ptx",), length=50)
    runs = [claim for claim in found.claims if claim.kind == "runs"]
    assert runs and found.whole, str(found)
    assert all("50 queries and 50 keys" in claim.text for claim in runs)
    for length in (0, 10**6):
        with pytest.raises(ma.MaskValueError, match="pair by pair must be 1 to 8192"):
            ma.verify(ma.causal, length=length)


def test_the_command(capsys):
    assert main(["verify", "causal", "--target", "cpu", "--len", "20"]) == 0
    assert "20 queries and 20 keys" in capsys.readouterr().out


@pytest.mark.parametrize("target", ["sm_1", "gfx", "ptx", "tpu"])
def test_the_command_names_the_targets(target, capsys):
    assert main(["verify", "causal", "--target", target]) == 2
    found = capsys.readouterr().err
    assert "nvidia, gpu, cpu, torch, page or a GPU such as sm_90" in found and repr(target) in found


def test_targets_are_checked():
    with pytest.raises(ma.MaskValueError, match="target 'tpu' is not known; choose from ptx"):
        ma.verify(ma.causal, targets=("tpu",))


def test_a_proof_checks_the_kernels_of_its_mask():
    entries = ma.table(torch.tensor([3, 5], dtype=torch.int32), "lengths")
    proof = (ma.causal & (ma.kv_idx < entries[ma.batch])).prove()
    for dtypes in (None, {"lengths": torch.int32}):
        found = proof.check(kernel=True, dtypes=dtypes)
        assert found.whole, str(found)
        assert {claim.kind for claim in found.claims} == {"element", "bounds", "walk"}


def test_a_proof_says_which_kernels_it_cannot_check():
    mask = ma.table(torch.tensor([3, 1, 2]), "x")[ma.q_idx] >= ma.kv_idx % 3
    left = [claim for claim in mask.prove().check(kernel=True).claims if not claim.holds]
    assert [claim.kind for claim in left] == ["runs"] and "ma.verify(mask)" in left[0].by


@pytest.mark.parametrize(
    ("dtypes", "told"),
    [
        ({"y": torch.int32}, "no table is called 'y'; those of this mask are x"),
        ({"x": torch.float32}, "write a dtype such as torch.int64"),
    ],
)
def test_dtypes_that_are_not_of_the_mask(dtypes, told):
    mask = ma.table(torch.tensor([3, 1, 2]), "x")[ma.q_idx] >= ma.kv_idx
    with pytest.raises(ma.MaskValueError, match=told):
        mask.prove().check(kernel=True, dtypes=dtypes)


@pytest.mark.parametrize("old, new", [("kv_idx * S[0]", "q_idx * S[0]"), ("S[2]", "S[1]")])
def test_another_bit_than_the_pair_s_own_is_named(old, new):
    """Hooks that look bits of pairs up may ask for no bit but that of their own pair."""
    mask = CATALOGUE["dilated"].mask & (ma.head <= ma.q_idx)
    right = subject_of(mask)

    def rendered(text):
        before, start, rest = text.partition("def masked_of_keys")
        assert old in rest
        return before + start + rest.replace(old, new, 1)

    subject = dataclasses.replace(right, variant="bits of pairs in rows", rendered=rendered)
    found = [c for c in claims(subject, ("triton",), 1000, (32,)) if not c.holds]
    assert [claim.outcome for claim in found] == ["not proved"], found
    assert found[0].by.startswith("not read: the bit q_idx of the row"), found


@pytest.mark.parametrize(
    "old, new",
    [
        ("T[1] + kv_idx", "T[1] - kv_idx"),  # places before the first entry
        ("long_of(T[-1])", "long_of(T[-2])"),  # an address in place of an entry
        ("T + (t0,)", "T"),
    ],
)
def test_addresses_are_numbers_that_a_refutation_tells(old, new):
    x, y = (ma.table(torch.tensor([5, 3]), name) for name in "xy")
    for target in ("ptx", "triton"):
        found = wrong(x[ma.q_idx] + 3 >= y[ma.kv_idx], old, new, target)
        elements = [claim for claim in found if claim.kind == "element"]
        assert {claim.outcome for claim in elements} == {"wrong"}, found
        assert all(claim.model is not None for claim in elements)
        told = [name for claim in elements for name in claim.model.values if "address of" in name]
        assert bool(told) is (new != "T[1] - kv_idx")


def test_registers_of_another_type_are_bits():
    """ptxas takes them: registers of 32 bits are those of numbers of both kinds."""
    mask = CATALOGUE["dilated"].mask
    found = wrong(mask, "kept, $2, $3", "kept, $1, $3", "ptx")
    assert found and {claim.outcome for claim in found} == {"wrong"}, found
    found = wrong(mask, "selp.f32 $0, $1", "selp.f32 $0, $2", "ptx")
    assert {claim.by for claim in found} == {
        "not read: a result that is neither the score nor -inf"
    }


def test_a_key_may_lie_in_another_interval_than_the_closed_form_has_it_in():
    """What a loop needs of its intervals is that one of them holds the key."""
    mask = ma.causal & ma.sliding(300)
    more = "tiles(0, -1, True, kv_len, BLOCK)"
    start = "touched = (\n        "
    assert wrong(mask, start, f"{start}{more},\n        ", "ptx") == []
    found = wrong(mask, start, f"{start}{more},\n    )\n    other = (\n        ", "ptx")
    assert found and {claim.outcome for claim in found} == {"wrong"}, found


def test_integers_that_are_written_out_are_no_arithmetic_of_kernels():
    """Triton has 32 bits for them in kernels of 64: twice 2**31 - 1 was less than 0 in the bounds
    of this mask, and every block full."""
    far = Index(nodes.maximum(nodes.const(1 - 2**31), nodes.const(2**31 - 1)))
    distance = ma.kv_idx + 16 - ma.q_idx
    subject = subject_of(far < ma.maximum(distance, -distance))
    found = [claim for claim in claims(subject, ("ptx", "triton")) if not claim.holds]
    assert found == []
    for c in (1, 3, 2**31 - 1):
        for x in (-7, 0, 2**40):
            parts = nodes.const(x), nodes.const(c)
            assert [nodes.floordiv(*parts).data, nodes.mod(*parts).data] == [x // c, x % c]
            assert nodes.minimum(*parts, nodes.K) == nodes.minimum(nodes.const(min(x, c)), nodes.K)
            assert nodes.ge(*parts) == nodes.const(x >= c)
            assert nodes.gt(*parts) == nodes.const(x > c)
            assert (
                nodes.eq(*parts) == nodes.const(x == c) and nodes.eq(*parts[:1] * 2) == nodes.TRUE
            )
    assert nodes.ge(nodes.const(0.1), nodes.const(0.1 + 1e-12)).op == "ge"  # equal in float32
    assert nodes.mod(nodes.subtract(nodes.Q, nodes.K), nodes.const(1)) == nodes.const(0)


def test_kernels_of_a_comparison_of_numbers_are_whole():
    """Triton inverts the bits of a truth value of Python: `~(5 >= 0)` was -2, and kept."""
    x, y = Index(nodes.const(5)), Index(nodes.const(0))
    for mask in (~(x >= y) | ma.causal, ma.causal & ~(x < y)):
        assert "5 >= 0" not in ma.render(mask) and "-5" not in ma.render(mask)
        found = ma.verify(mask, targets=["ptx", "triton", "cpu"])
        assert found.whole, str(found)


@pytest.mark.parametrize(
    "mask",
    [
        (ma.q_idx + each - ma.kv_idx) % (2**31 - 1) == 0,
        (ma.kv_idx + each - ma.q_idx) % divisor == 2,
        (ma.q_idx + each - ma.kv_idx) % divisor == 0,
        (ma.kv_idx + each - ma.q_idx) % divisor <= 2,
        ma.chunked(3).shift(kv=torch.tensor(2**62)),
    ],
)
def test_entries_are_cut_to_remainders_before_they_are_added(mask):
    found = [c for c in claims(subject_of(mask), ("ptx", "triton"), 3000) if not c.holds]
    assert found == []


def test_kernels_that_no_call_has_are_told():
    far = ma.table(torch.tensor([2**62, 5]), "far")
    found = ma.verify(ma.q_idx * far[ma.q_idx % 2] >= ma.kv_idx, targets=["ptx", "triton", "cpu"])
    absent = [claim.text for claim in found.claims if claim.outcome == "not made"]
    assert absent == ["inline PTX, NVIDIA, 32 bits", "Triton, other GPUs, 32 bits"] and found.whole


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("lanes &= ~(I)15;", "lanes -= 16;"),
        ("lanes &= ~(I)15;", "lanes = 16;"),
        ("I lane = 0;", "I lane = 1;"),
        ("lane < lanes;", "lane < others;"),
        ("other++) {", "other++) { other0 += 1;"),
        ("lane++) {", "lane++) { lane += 1;"),
        ("lane++) {", "lane++) { return;"),
        ("at = other * lanes + lane", "at = lane"),
    ],
)
def test_hooks_of_cpus_with_other_turns_of_their_loops_are_refused(old, new):
    subject = of_claims.subject_of(bound(ma.causal & ma.sliding(256)))
    assert old in subject.cpp.source
    changed = dataclasses.replace(subject, rendered=lambda text: text.replace(old, new))
    found = [claim for claim in claims(changed, ("cpu",)) if claim.kind == "element"]
    assert len(found) == 2 and not any(claim.holds for claim in found)
