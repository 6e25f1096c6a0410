"""Expressions from text: what is read, what is refused, and where the error points."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import maskalg as ma
from maskalg import causal, document, errors, head, kv_idx, prefix, q_idx, sliding
from maskalg.parsing import budget, parse

READ = {
    "causal & sliding(256) | prefix(4)": causal & sliding(256) | prefix(4),
    "ma.causal & maskalg.sliding(256)": causal & sliding(256),
    "~causal | (sliding(window=3) & nothing)": ~causal | sliding(3) & ma.nothing,
    "causal.shift(q=4)": causal.shift(q=4),
    "sliding(4).bind(window=9)": sliding(9),
    "q_idx - kv_idx < 3": q_idx - kv_idx < 3,
    "(q_idx - kv_idx) % 8 == 0": (q_idx - kv_idx) % 8 == 0,
    "min(q_idx, kv_idx, 5) >= 3": ma.minimum(ma.minimum(q_idx, kv_idx), 5) >= 3,
    "abs(q_idx - kv_idx) != 2": abs(q_idx - kv_idx) != 2,
    "where(head % 2 == 0, causal, sliding(64))": ma.where(head % 2 == 0, causal, sliding(64)),
    "neighborhood((8, 4 * 2), 3, causal=(True, False))": ma.neighborhood(
        (8, 8), 3, causal=(True, False)
    ),
    "sliding_tile([8, 8], [2] * 2, 3, text=4)": ma.sliding_tile((8, 8), (2, 2), 3, text=4),
    "neighborhood([8, 8], [3, 5], 1, [True, False])": ma.neighborhood(
        (8, 8), (3, 5), 1, (True, False)
    ),
    "window(None, -1 + 2**2)": ma.window(None, 3),
    "scalar(5, 'reach', low=1) > q_idx": ma.scalar(5, "reach", low=1) > q_idx,
    "causal &\n sliding(4)": causal & sliding(4),
    "causal & sliding(4) + softcap(30)": causal & sliding(4) + ma.softcap(30),
    "0.5 * bias(-log(1 + abs(q_idx - kv_idx)))": 0.5 * ma.bias(-ma.log(1 + abs(q_idx - kv_idx))),
}


@pytest.mark.parametrize("text", READ)
def test_reads_as_python_would(text: str) -> None:
    assert parse(text) == READ[text]


IDS = torch.tensor([0, 0, 1, 1, 1, 2], dtype=torch.int32)


@pytest.mark.parametrize(
    "text, wanted",
    [
        ("document([0, 0, 1, 1, 1, 2])", document(IDS)),
        ("document([0] * 2 + 3 * [1] + [2])", document(IDS)),
        ("tree([], 6)", ma.tree([], 6)),
        (f"table([{-(2**63)}] * 8)[q_idx] > 0", ma.table([-(2**63)] * 8)[ma.q_idx] > 0),
        (f"kv_idx > -{2.0**63}", kv_idx > -(2.0**63)),
        ("document(lengths(2, 3, 1))", document(IDS)),
        ("document(lengths([2, 3], 1))", document(IDS)),
        ("document(lengths(2, 3, total=6))", document(IDS)),
        ("document(arange(6) // 2)", document(torch.arange(6) // 2)),
        ("document.from_lengths([2, 3, 1])", document(IDS)),
        ("padding.from_mask([[0, 1] * 3])", ma.padding.from_mask(torch.arange(6)[None] % 2)),
        ("global_tokens(arange(6) % 3 == 0)", ma.global_tokens(torch.arange(6) % 3 == 0)),
        ("table([True, False, True] * 2)[kv_idx]", ma.table(torch.arange(6) % 3 != 1)[kv_idx]),
        ("dense([[True, False], [False, True]])", ma.dense(torch.eye(2).bool())),
    ],
)
def test_tensors(text: str, wanted: ma.Mask) -> None:
    read = parse(text)
    assert isinstance(read, ma.Mask)
    size = 2 if "dense" in text else 6
    assert read.to_dense(size).equal(wanted.to_dense(size))


def test_dtypes_of_lists() -> None:
    def only(text: str) -> torch.Tensor:
        (tensor,) = parse(text).parameters.values()
        assert isinstance(tensor, torch.Tensor)
        return tensor

    assert only("document([1, 2])").dtype == torch.int32
    assert only(f"document([1, {2**40}])").dtype == torch.int64
    assert only("alibi([1, 0.5])").equal(torch.tensor([1, 0.5]))
    assert only("global_tokens([True, False])").dtype == torch.bool


def test_tensors_from_files(tmp_path) -> None:
    np.save(tmp_path / "ids.npy", IDS.numpy())
    torch.save(IDS, tmp_path / "ids.pt")
    for name in ("ids.npy", "ids.pt"):
        read = parse(f"document(load('{tmp_path / name}'))")
        assert read.to_dense(6).equal(document(IDS).to_dense(6))
    torch.save({"ids": IDS}, tmp_path / "dict.pt")
    torch.save(IDS.to("meta"), tmp_path / "meta.pt")
    torch.save(IDS.to_sparse(), tmp_path / "sparse.pt")
    (tmp_path / "other.pt").write_bytes(b"hello")
    np.save(tmp_path / "objects.npy", np.array([{}]), allow_pickle=True)
    for name, says in [
        ("dict.pt", "holds a dict, not a tensor"),
        ("objects.npy", "Object arrays cannot be loaded"),
        ("none.npy", "No such file"),
        ("meta.pt", r"without plain entries \(meta\)"),
        ("sparse.pt", r"sparse"),
        ("other.pt", "its content is not of that kind"),
        ("ids.txt", "unknown kind of file"),
    ]:
        with pytest.raises(errors.MaskValueError, match=says):
            parse(f"document(load('{tmp_path / name}'))")


def test_memory_of_a_text(tmp_path, monkeypatch) -> None:
    """Tensors are counted as long as an expression keeps them; files may be large."""
    monkeypatch.setattr(budget, "MOST_BYTES", 5000)
    monkeypatch.setattr(budget, "MOST_ENTRIES", 300)
    large, mask = np.arange(3000) // 7, "document(arange(250))"
    np.save(tmp_path / "large.npy", large)
    parse(f"{mask} & {mask} & {mask} & {mask}")
    with pytest.raises(errors.MaskValueError, match=r"tensors of .* are made for a text"):
        parse("&".join([mask] * 6))
    with pytest.raises(errors.MaskValueError, match=r"tensors of .* are made for a text"):
        parse(f"max({', '.join(['table(arange(250))[q_idx]'] * 6)}) > 3")
    with pytest.raises(errors.MaskValueError, match="3000 entries, at most 300 are made"):
        parse("document.from_lengths([1000, 2000])")
    read = parse(f"spans(load('{tmp_path / 'large.npy'}')) & {mask}")
    assert read.parameters["ids"].equal(torch.from_numpy(large))


REFUSED = {
    "causal & slidin(4)": (10, "no name 'slidin' is known here. Did you mean sliding?"),
    "docment([1])": (1, "Did you mean document or per_document?"),
    "sliding(-3)": (1, "sliding(-3): window must be an integer >= 1, got -3."),
    "sliding": (1, "the function sliding, not a mask, a bias or a score. Call it: sliding(window)"),
    "sliding()": (1, "missing a required argument: 'window'. Write sliding(window)."),
    "sliding(windw=3)": (1, "unexpected keyword argument 'windw'. Write sliding(window)."),
    "causal | causal(3)": (10, "causal takes no arguments"),
    "q_idx - kv_idx < 8 & causal": (18, "(q_idx - kv_idx < 8) & causal"),
    "8 & 4": (1, "`&` does not take numbers."),
    "0 <= q_idx < 5": (1, "write (a <= q_idx) & (q_idx < b)"),
    "causal == causal": (1, "masks are not compared."),
    "q_idx in [3]": (1, "`in` and `is` are not"),
    "causal and sliding(4)": (1, "write `&` and `|`"),
    "not causal": (1, "write `~`"),
    "3 ^ 4": (1, "`^` does not take numbers"),
    "causal if causal else causal": (1, "where(c, a, b)"),
    "causal & q_idx": (1, "Comparisons need parentheses"),
    "q_idx": (1, "this is an index expression, not a mask"),
    "[1, 2]": (1, "this is a list, not a mask"),
    "softmax": (1, "no name 'softmax'"),
    "causal | softcap(30)": (1, "`|`"),
    "causal & lambda: 3": (10, "invalid syntax"),
    "lambda: 3": (1, "file.py:name"),
    "causal.show(4)": (1, "a mask has no `.show(…)`. It has at, shift, bind."),
    "causal.label": (1, "`.label` is no method that is called"),
    "document.other([1])": (1, "It has from_lengths, from_cu_seqlens."),
    "causal.bind(window=3)": (1, "this expression has no parameter 'window'"),
    "causal & q_idx[3]": (10, "an index expression takes no `[…]`"),
    "table([1, 2])[0:2] > 0": (1, "slices are no part"),
    "table([1, 2])[q_idx, kv_idx] > 0": (1, "[2]"),
    "document([1, [2]])": (10, "rows of one length"),
    "document(['a'])": (10, "a number"),
    "document([True, 2])": (10, "bool and int"),
    "document(lengths(3, -1))": (10, "tokens must be an integer >= 0, got -1"),
    "document(arange(10**12))": (10, "at most 67108864"),
    "document([0] * 10**10)": (10, "at most 4194304"),
    "document([0] * 67108864)": (10, "at most 4194304"),
    "document([[0] * 50000] * 50000)": (10, "2500000000 entries"),
    "document([0] * 3000000 + [1] * 3000000)": (10, "6000000 entries"),
    "document([[0] * 3000000, [1] * 3000000])": (10, "6000000 entries"),
    "document([[[]] * 4000000] * 1000)": (10, "4000000000 entries"),
    "document.from_lengths([2147483647])": (1, "a tensor: 2147483647 entries, at most 67108864"),
    "document.from_cu_seqlens([0, 2147483647])": (1, "2147483647 entries"),
    "sandwich([1.0], 2147483647)": (1, "4294967293 entries"),
    "drafts([1, 5], 10, 1000000000)": (1, "2000000010 entries"),
    "vertical_slash.from_indices([[[1]]], [[[2]]], 2147483647)": (1, "2147483648 entries"),
    "tree([-1, 2147483647])": (1, "tree"),
    "document(arange(4) // 0)": (10, "ZeroDivisionError"),
    "9**9**9": (1, "exponents"),
    "'a' * 9": (1, "`*` does not take a text"),
    "sliding(*[3])": (9, "`*` before an argument"),
    "sliding(**[3])": (9, "`**` before an argument"),
    "sliding(3)(4)": (1, "only names are called"),
    "__import__('os').system('ls')": (1, "no name '__import__'"),
    "().__class__": (1, "no method"),
    "causal & (sliding(4)": (10, "'(' was never closed"),
    "causal &": (9, "invalid syntax"),
    "": (1, "nothing is written there"),
    "sliding(1j)": (9, "complex values"),
    f"sliding({'9' * 30})": (9, "64 bits"),
    f"q_idx > +{2**63}": (10, "64 bits"),
    "~" * 200 + "causal": (152, "more than 150 operations"),
    "-" * 990 + "q_idx > 3": (151, "more than 150 operations"),
    "é & causal": (1, "no name 'é'"),
    "causal & 'é' & x": (1, "`&` does not take"),
}


@pytest.mark.parametrize("text", REFUSED)
def test_refuses_in_one_line(text: str) -> None:
    column, says = REFUSED[text]
    with pytest.raises(errors.MaskValueError) as caught:
        parse(text)
    message = str(caught.value)
    assert f" column {column}: " in message
    assert says in message
    assert "\n" not in message


def test_columns_count_characters() -> None:
    with pytest.raises(errors.MaskValueError, match="column 22: no name 'x'"):
        parse("scalar(1, 'é') > 0 & x")


def test_long_texts_are_shown_around_the_place() -> None:
    text = " & ".join(["causal"] * 60) + " & slidin(3)"
    with pytest.raises(errors.MaskValueError) as caught:
        parse(text)
    assert str(caught.value).startswith("'…al & causal & causal & causal & slidin(3)' column 541")
    with pytest.raises(errors.MaskValueError, match="20003 characters"):
        parse("a" * 20_003)
