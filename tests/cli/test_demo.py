"""`maskalg demo`: its text, its own dense attention, what it prints, and how it refuses."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

import maskalg as ma
from maskalg import alibi, causal, document, sliding
from maskalg.cli import main
from maskalg.cli.demo import command
from maskalg.cli.demo.corpus import read_corpus
from maskalg.cli.demo.dense import Inputs, distance_matrix, reference, sdpa_heads
from maskalg.cli.demo.measure import peak_bytes, seconds

ROOT = Path(__file__).parents[2]
CPU = torch.device("cpu")
SMALL = ["--tokens", "300", "--window", "64", "--heads", "2", "--head-dim", "16"]


@pytest.fixture
def texts(tmp_path: Path) -> Path:
    """A folder of two texts, a hidden one and one that is no text."""
    (tmp_path / "b.txt").write_text("One fish, two fish; red fish.\n" * 20, encoding="utf-8")
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "c.txt").write_text("to be or not to be " * 30, encoding="utf-8")
    (tmp_path / ".hidden").write_text("nobody reads this", encoding="utf-8")
    (tmp_path / "picture.bin").write_bytes(bytes(range(256)))
    return tmp_path


@pytest.fixture
def inputs() -> Inputs:
    torch.manual_seed(0)
    q, k, v = torch.randn(3, 1, 2, 90, 8)
    ids = torch.arange(3).repeat_interleave(30)
    return Inputs(q, k, v, ids, torch.tensor([0.5, 0.125]), 20)


def score_of(inputs: Inputs) -> ma.Score:
    return causal & sliding(inputs.window) & document(inputs.ids) + alibi(inputs.slopes)  # type: ignore[return-value]


def test_tokens_are_words_and_marks(texts: Path) -> None:
    corpus = read_corpus([texts / "b.txt"], 9)
    (only,) = corpus.documents
    assert only.tokens == ("One", "fish", ",", "two", "fish", ";", "red", "fish", ".")
    assert corpus.vocabulary == {
        token: rank for rank, token in enumerate(["fish", ",", ".", ";", "One", "red", "two"])
    }
    assert corpus.token_ids().tolist() == [4, 0, 1, 6, 0, 3, 5, 0, 2]


def test_folders_are_read_in_order_and_the_last_document_is_cut(texts: Path) -> None:
    corpus = read_corpus([texts], 200)
    assert [document.name for document in corpus.documents] == ["b.txt", os.path.join("a", "c.txt")]
    assert corpus.lengths == [180, 20]
    assert len(corpus.token_ids()) == 200
    assert read_corpus([texts], 10_000).lengths == [180, 180]


def test_the_standard_library_is_the_default_and_always_the_same() -> None:
    corpus = read_corpus([], 16384)
    assert sum(corpus.lengths) == 16384
    assert len(corpus.documents) > 5
    assert corpus == read_corpus([], 16384)


def test_the_dense_way_agrees_with_the_reference_backend(inputs: Inputs) -> None:
    score = score_of(inputs)
    q, k, v = (x.double() for x in (inputs.query, inputs.key, inputs.value))
    whole = ma.attention(q, k, v, score, backend="reference")
    heads = torch.cat([call() for call in sdpa_heads(inputs)], dim=1)
    assert torch.allclose(heads.double(), whole, atol=1e-5)
    for start, end in [(0, 10), (35, 70), (89, 90)]:
        part = reference(inputs, start, end)
        assert torch.allclose(part, whole[:, :, start:end], atol=1e-12)
        shifted = score.shift(q=start)
        shifted_part = ma.attention(q[:, :, start:end], k, v, shifted, backend="reference")
        assert torch.allclose(part, shifted_part, atol=1e-12)


def test_distance_matrix_is_the_mask(inputs: Inputs) -> None:
    matrix = distance_matrix(inputs)
    mask = causal & sliding(inputs.window) & document(inputs.ids)
    assert isinstance(mask, ma.Mask)
    kept = mask.to_dense(90)[0, 0]
    assert torch.isfinite(matrix).equal(kept)
    place = torch.arange(90)
    assert matrix[kept].equal((place[None, :] - place[:, None]).float()[kept])


def test_peak_counts_what_is_alive_at_once() -> None:
    def held_together() -> torch.Tensor:
        first = torch.ones(1024)
        return first + torch.ones(1024)

    def one_by_one() -> None:
        for _ in range(5):
            kept = torch.ones(1024)
            kept += 1
            kept.view(32, 32)
            del kept

    given = torch.ones(1 << 20)
    assert peak_bytes(held_together, CPU) == 3 * 4096
    assert peak_bytes(one_by_one, CPU) == 4096
    assert peak_bytes(lambda: given.mul_(2), CPU) == 0
    assert seconds(lambda: None, CPU, times=3) < 1


def test_demo_on_given_texts(texts: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["demo", str(texts), *SMALL]) == 0
    out, err = capsys.readouterr()
    assert err == ""
    assert "300 tokens (11 different) in 2 documents, from given files:\nb.txt 180, " in out
    assert "(causal & sliding(64) & document(ids[300])) + alibi(slopes[2])" in out
    assert "touched   max(first_ids(q0), q0 - window + 1) <= k <= q1" in out
    assert "lengths  300 queries, 300 keys\n" in out and "38 x 38 blocks of 8 x 8" in out
    assert "torch SDPA, dense matrix" in out
    assert "agrees (tolerance 1e-05)" in out
    assert "\x1b" not in out


def test_demo_says_when_there_is_less_text(texts: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["demo", str(texts / "b.txt"), *SMALL]) == 0
    assert "note: 300 tokens were asked for; there are no more" in capsys.readouterr().out


def test_demo_leaves_out_a_dense_matrix_that_is_too_large(
    texts: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(command, "_MOST_MATRIX_BYTES", 1000)
    assert main(["demo", str(texts), *SMALL]) == 0
    assert "torch SDPA is left out" in capsys.readouterr().out


@pytest.mark.parametrize("wrong", [0.01, float("nan")])
def test_a_wrong_result_is_status_1(
    texts: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    wrong: float,
) -> None:
    right = ma.attention
    monkeypatch.setattr(command, "attention", lambda q, k, v, score: right(q, k, v, score) + wrong)
    assert main(["demo", str(texts), *SMALL]) == 1
    assert "DIFFERS" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["demo", "--tokens", "0"], "argument --tokens: expected a positive integer"),
        (["demo", "--heads", "two"], "expected a positive integer below 2**31, got 'two'"),
        (["demo", "--window", "-3"], "argument --window: expected a positive integer"),
        (["demo", "--seed", "-1"], "argument --seed: expected an integer >= 0"),
        (["demo", "no/such/file"], "maskalg demo: no/such/file: no such file or folder"),
        (["demo", "--device", "tpu"], "--device must be cpu, cuda or cuda:N, got 'tpu'"),
        (["demo", "--device", "cuda:99"], "--device cuda:99: there is no such GPU"),
    ],
)
def test_mistakes_are_one_line_and_status_2(
    arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(arguments) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert message in err
    assert err.count("\n") == 1


def test_files_that_are_no_text(texts: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (texts / "empty").mkdir()
    assert main(["demo", str(texts / "picture.bin")]) == 2
    assert "picture.bin: cannot be read as UTF-8 text" in capsys.readouterr().err
    assert main(["demo", str(texts / "empty")]) == 2
    assert "no text found in " in capsys.readouterr().err


def test_version_and_help(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--version"]) == 0
    assert capsys.readouterr().out.startswith("maskalg ")
    assert main(["demo", "--help"]) == 0
    assert "--tokens" in capsys.readouterr().out


def test_piped_output_is_plain(texts: Path) -> None:
    program = "import sys; from maskalg.cli import main; sys.exit(main(sys.argv[1:]))"
    paths = [str(ROOT), os.environ.get("PYTHONPATH", "")]
    result = subprocess.run(
        [sys.executable, "-c", program, "demo", str(texts), *SMALL],
        capture_output=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, paths))},
        check=False,
    )
    assert result.returncode == 0, result.stderr.decode()
    assert b"\x1b" not in result.stdout
    assert result.stderr == b""


def test_without_a_command_all_are_listed(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([]) == 0
    listed = capsys.readouterr().out
    for name in (
        "show",
        "explore",
        "prove",
        "compare",
        "render",
        "explain",
        "doctor",
        "demo",
        "bench",
        "tune",
    ):
        assert f"\n    {name} " in listed, listed
