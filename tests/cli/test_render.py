"""`maskalg render`: the source, and what compiling it for an absent GPU gives."""

from __future__ import annotations

import ast
import os
import sys

import pytest

from maskalg.cli import main

COMPILES = pytest.mark.skipif(
    os.environ.get("TRITON_INTERPRET") == "1", reason="the interpreter does not compile"
)


def source(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    assert main(["render", *arguments]) == 0
    out = capsys.readouterr().out
    text, _, rest = out.partition("\ncalled by ")
    assert "\x1b" not in out and rest.startswith("maskalg_kernels/")
    ast.parse(text)
    return text


def test_the_hooks(capsys: pytest.CaptureFixture[str]) -> None:
    text = source(capsys, "causal & sliding(64) + softcap(30)")
    assert "def masked(" in text and "def biased(" in text and "def next_run(" in text
    assert "inline_asm_elementwise" in text and "def slope(" not in text


def test_the_hooks_of_the_backward_pass(capsys: pytest.CaptureFixture[str]) -> None:
    text = source(capsys, "causal + softcap(30)", "--backward")
    assert "def slope(" in text and "def next_run_of_keys(" in text


def test_tables_of_64_bits_are_compared_by_assembly_in_documents_alone(
    capsys: pytest.CaptureFixture[str],
) -> None:
    text = source(capsys, "document([1, 2])")
    assert text.count("inline_asm") == 2 and "setp.eq.s32" in text and "tl.where" not in text
    long = source(capsys, f"document([1, {2**40}])")
    assert long.count("inline_asm") == 2 and "setp.eq.s64" in long and "tl.where" not in long
    either = source(capsys, f"document([1, {2**40}]) | prefix(1)")
    assert either.count("inline_asm") == 2 and "mov.b32" in either  # the score, before a branch
    assert "u0 == u1" in either and "tl.where" in either


@COMPILES
def test_compiles_for_an_absent_gpu(capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("triton", reason="needs Triton")
    assert main(["render", "causal", "--target", "sm_80", "--head-dim", "64"]) == 0
    out = capsys.readouterr().out
    assert "forward on sm_80: plain Triton, 64 x 128, 4 warps, 2 stages\n  registers " in out
    assert "matrix products" in out and "  spills        " in out


def test_counts_of_instructions() -> None:
    pytest.importorskip("triton", reason="needs Triton")
    from maskalg.backends.triton.offline import instructions

    ptx = """.version 8.7
.visible .entry kernel(
\t.param .u64 q
)
{
\t.reg .b32 \t%r<9>;
\t// a comment: bar.sync 0;
\tld.global.b32 %r1, [%rd1];
\t{ .reg .pred p0; setp.lt.s32 p0, %r1, %r2; selp.f32 %f1, %f2, 0fFF800000, p0; }
\t@%p1 bra \t$L__BB0_2;
$L__BB0_2:
\tbar.sync \t0;
\tret;
}
"""
    assert instructions(ptx) == {
        "all": 6, "global memory": 1, "comparisons and choices": 2, "barriers": 1
    }  # fmt: skip
    gcn = "kernel:\n\tv_mfma_f32_32x32x8_bf16 v[0:15], v[1:2]\n\ts_barrier ; bar\n.LBB0:\n"
    assert instructions(gcn) == {"all": 2, "matrix products": 1, "barriers": 1}


REFUSED = [
    (["causal", "--target", "sm_12"], "target 'sm_12' is not served. The targets: sm_80, "),
    (["causal", "--target", "sm_90", "--head-dim", "500"], "500"),
    (["causal", "--head-dim", "7"], "head dimensions 8 to 256, got 7"),
    (["causal", "--head-dim", "512"], "head dimensions 8 to 256, got 512"),
    (["causal", "--dtype", "int8"], "invalid choice: 'int8'"),
    (["causl"], "Did you mean causal?"),
    (["causal", "sliding(3)"], 'sliding(3). An expression is one argument: write "causal & '),
    (["causal", "--lenght", "3"], "unrecognized arguments: --lenght 3\n"),
]


@COMPILES
@pytest.mark.parametrize("arguments, says", REFUSED)
def test_refuses(capsys: pytest.CaptureFixture[str], arguments: list[str], says: str) -> None:
    assert main(["render", *arguments]) == 2
    err = capsys.readouterr().err
    assert says in err and err.count("\n") == 1


def test_without_triton(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "triton", None)
    monkeypatch.delitem(sys.modules, "maskalg.backends.triton.offline", raising=False)
    assert main(["render", "causal", "--target", "sm_90"]) == 2
    assert "compiling needs Triton, which is not installed" in capsys.readouterr().err
