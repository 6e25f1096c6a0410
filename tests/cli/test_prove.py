"""`maskalg prove`: proofs in words and in LaTeX."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from maskalg.cli import main


def printed(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    assert main(["prove", *arguments]) == 0
    return re.sub(r"\d+ ms", "1 ms", capsys.readouterr().out)


def test_in_words(capsys: pytest.CaptureFixture[str]) -> None:
    assert printed(capsys, "causal & (sliding(256) | prefix(4))") == (
        "causal & (sliding(256) | prefix(4))\n"
        "here window = 256, prefix = 4; the proof is for all values\n"
        "\n"
        "The mask\n"
        "   (q_idx >= kv_idx) & ((q_idx + window - kv_idx - 1 >= 0) & "
        "(window - 1 >= q_idx - kv_idx) | (kv_idx < prefix))\n"
        "   given      prefix >= 0\n"
        "   given      window >= 1\n"
        "\n"
        "Literals: a pair of a query q and a key k is\n"
        "   kept when     k + window >= q + 1 and q >= k\n"
        "   or            prefix >= k + 1 and q >= k\n"
        "   dropped when  k >= q + 1\n"
        "   or            q >= k + window and k >= prefix\n"
        "\n"
        "Eliminated: q, over the tile q0 <= q <= q1\n"
        "   touched    q0 - window + 1 <= k <= q1\n"
        "   or         k <= min(prefix - 1, q1)\n"
        "   not full   q0 + 1 <= k\n"
        "   or         prefix <= k <= q1 - window\n"
        "\n"
        "A block of the queries q0..q1 and the keys k0..k1 is\n"
        "   EMPTY  iff k0..k1 meets no touched key\n"
        "   FULL   iff k0..k1 meets no key that is not full\n"
        "\n"
        "Result\n"
        "   exactness  exact\n"
        "   rung       closed form\n"
        "   time       1 ms, once for all values of the parameters\n"
    )


SAYS = {
    "document([0, 1]) & causal": (
        "k >= first_ids(q) and ids[q] == ids[k]",
        "exact if equal entries of ids are contiguous",
    ),
    "document([0, 1]) & dilated(3)": (
        "(q - k) % dilation == 0",
        "where some (q - k) % dilation == 0, and key by key: one of its queries has an equal entry",
    ),
    "modality([0, 1], [[True, False], [True, True]])": (
        "kept when     allowed[types[q], types[k]]",
        "dropped when  not (allowed[types[q], types[k]])",
        "every key, and key by key: one of its queries has an allowed pair",
        "rung       tile predicates",
    ),
    "neighborhood((64, 64), 7)": ("Digits of a position x", "x % width", "rung       digits"),
    "global_tokens([True]) | sliding(3)": ("where flags[kv_idx]", "rung       token sets"),
    "(q_idx * kv_idx) % 5 == 1": ("sound, not exact", "because"),
    "everything": ("kept when     always", "dropped when  never", "not full   no key"),
}


@pytest.mark.parametrize("expression", SAYS)
def test_says_how(capsys: pytest.CaptureFixture[str], expression: str) -> None:
    text = printed(capsys, expression)
    for says in SAYS[expression]:
        assert says in text


def test_check(capsys: pytest.CaptureFixture[str]) -> None:
    text = printed(capsys, "causal", "--check")
    assert "Certificate\n" in text and "verified  sound and exact" in text
    both = printed(capsys, "causal", "--check", "--latex")
    assert "aligned" in both and "verified  sound and exact" in both


def test_latex(capsys: pytest.CaptureFixture[str]) -> None:
    assert printed(capsys, "causal & (dilated(3) | prefix(4))", "--latex") == (
        "\\begin{aligned}\n"
        "\\text{mask} && \\begin{aligned} & q \\ge k \\\\ \\land\\; & \\left(\\left(q - k\\right) "
        "\\bmod \\mathrm{dilation} = 0 \\lor k \\lt \\mathrm{prefix}\\right) \\end{aligned} \\\\\n"
        "\\text{given} && \\mathrm{dilation} \\ge 1, \\ \\mathrm{prefix} \\ge 0 \\\\\n"
        "\\text{touched} && k \\le q_{1}, \\ \\exists q: q - k \\equiv 0 "
        "\\pmod{\\mathrm{dilation}} \\\\\n"
        "\\text{or} && k \\le \\min\\left(\\mathrm{prefix} - 1, q_{1}\\right) \\\\\n"
        "\\text{not full} && q_{0} + 1 \\le k \\\\\n"
        "\\text{or} && \\mathrm{prefix} \\le k, \\ \\exists q: q - k \\not\\equiv 0 "
        "\\pmod{\\mathrm{dilation}}\n"
        "\\end{aligned}\n"
    )


@pytest.mark.parametrize("case", SAYS)
def test_latex_is_balanced(capsys: pytest.CaptureFixture[str], case: str) -> None:
    text = printed(capsys, case, "--latex")
    assert text.count("{") == text.count("}")
    assert text.count("\\left(") == text.count("\\right)")
    assert not re.search(r"(?<!\\)[%#$]", text) and not re.search(r"(?<!\\)_(?!\{)", text)


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no /dev/full here")
def test_a_full_disk_is_one_line(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    with open("/dev/full", "w") as disk:
        monkeypatch.setattr("sys.stdout", disk)
        assert main(["prove", "causal"]) == 2
    told = capsys.readouterr().err
    assert told.startswith("maskalg prove: ") and "No space left" in told
    assert told.count("\n") == 1
