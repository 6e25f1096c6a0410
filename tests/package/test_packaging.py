"""What installs: the wheel, the lazy imports, and a machine without Triton."""

import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

ROOT = Path(__file__).parents[2]


def run(code: str) -> str:
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert result.returncode == 0, result.stderr
    return result.stdout


def test_wheel_contents(tmp_path):
    files = ("maskalg_pytest.py", "pyproject.toml", "setup.py", "README.md", "LICENSE")
    for name in ("maskalg", "kernels", *files):
        source = ROOT / name
        copy = shutil.copytree if source.is_dir() else shutil.copy
        copy(source, tmp_path / name)
    command = [sys.executable, "-m", "pip", "wheel", "-q", "--no-deps", "--no-build-isolation"]
    result = subprocess.run([*command, "-w", "dist", "."], cwd=tmp_path, capture_output=True)
    assert result.returncode == 0, result.stderr.decode()
    (wheel,) = (tmp_path / "dist").glob("*.whl")
    archive = zipfile.ZipFile(wheel)
    names = set(archive.namelist())
    assert "maskalg_pytest.py" in names
    (points,) = (name for name in names if name.endswith("/entry_points.txt"))
    assert "[pytest11]\nmaskalg_pytest = maskalg_pytest\n" in archive.read(points).decode()
    typed = {"maskalg/py.typed", "maskalg/values/masks/__init__.pyi"}
    assert typed | {"maskalg_kernels/forward.py"} <= names
    assert {str(path.relative_to(ROOT)) for path in ROOT.glob("maskalg/**/*.py")} <= names
    static = {str(path.relative_to(ROOT)) for path in ROOT.glob("maskalg/views/explore/static/*")}
    assert static and static <= names
    assert not any(name.startswith(("kernels/", "tests/")) for name in names)


def test_import_is_lean():
    heavy = ("sympy", "triton", "rich", "hypothesis", "matplotlib", "maskalg_kernels")
    loaded = run(
        "import torch, sys; before = set(sys.modules); import maskalg; "
        f"print([m for m in {heavy!r} if m in set(sys.modules) - before])"
    )
    assert loaded.strip() == "[]"


def test_what_is_asked_by_hand_is_imported_late():
    """Importing costs files: proofs, pictures and tracing wait until they are asked for."""
    rooms = ("proof", "schedule", "reasoning", "codegen", "tracing", "inspect", "explanation")
    print_late = (
        "import sys, maskalg as ma; "
        f"print([r for r in {rooms!r} if 'maskalg.' + r in sys.modules]); "
        "ma.render, ma.mask, ma.plot; print(callable(ma.explain), 'plot' in dir(ma))"
    )
    assert run(print_late).split("\n")[:2] == ["[]", "True True"]


def test_runs_without_triton():
    run(
        "import sys; sys.modules['triton'] = None\n"
        "import torch, maskalg as ma\n"
        "q = torch.randn(1, 2, 40, 16)\n"
        "ma.attention(q, q, q, ma.causal & ma.sliding(5))\n"
        "ma.render(ma.causal)\n"
        "(ma.causal & ma.sliding(5)).blocks(40, block=8)\n"
    )


def test_cached_calls_need_no_sympy():
    """Masks, normal forms and dense evaluation never import SymPy; proofs do."""
    run(
        "import torch, sys, maskalg as ma\n"
        "before = set(sys.modules)\n"
        "(ma.causal & ma.sliding(5)).to_dense(8)\n"
        "assert 'sympy' not in set(sys.modules) - before\n"
    )
