"""What `make release` checks of the files in `dist/`: contents, metadata, and a clean install.

Run it from the root of the repository, after `python -m build`.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
import sysconfig
import tarfile
import tempfile
import venv
import zipfile
from email.message import Message
from email.parser import Parser
from importlib import metadata
from pathlib import Path

from packaging.requirements import Requirement

ROOT = Path(__file__).parents[1]
EXTRAS = {"testing", "plot", "transformers", "diffusers", "trl", "docs", "dev"}
TRY = """
import maskalg as ma, torch
import maskalg.testing.strategies
from importlib.resources import files
q = torch.randn(1, 2, 40, 16)
mask = ma.causal & ma.sliding(5)
same = ma.attention(q, q, q, mask) - ma.attention(q, q, q, mask, backend="reference")
assert same.abs().max() < 1e-5
assert mask.blocks(40, block=8).labels.shape == (1, 1, 5, 5)
assert (files("maskalg") / "py.typed").is_file()
print(ma.__version__, ma.__file__)
"""


def main() -> None:
    """Check the one wheel and the one sdist of `dist/`; raises AssertionError at what is wrong."""
    (wheel,) = (ROOT / "dist").glob("*.whl")
    (sdist,) = (ROOT / "dist").glob("*.tar.gz")
    version = check_wheel(wheel)
    check_sdist(sdist, version)
    check_changelog(version)
    check_install(wheel, version)
    print(f"{wheel.name} and {sdist.name} hold what they should and run")


def check_wheel(wheel: Path) -> str:
    """The wheel holds the package, the kernels, the licence, and nothing else; its version."""
    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())
        (about,) = (name for name in names if name.endswith(".dist-info/METADATA"))
        text = Parser().parsestr(archive.read(about).decode())
    info = about.removesuffix("METADATA")
    held = {name for name in names if not name.startswith(info)}
    assert held == sources(), sorted(held ^ sources())
    assert f"{info}licenses/LICENSE" in names
    assert f"{info}entry_points.txt" in names
    check_metadata(text)
    return str(text["Version"])


def sources() -> set[str]:
    """The files of the repository that install, by their places in the wheel."""
    files = [path for path in (ROOT / "maskalg").rglob("*") if path.is_file()]
    package = {path.relative_to(ROOT).as_posix() for path in files if path.suffix != ".pyc"}
    kernels = {f"maskalg_kernels/{path.name}" for path in (ROOT / "kernels").glob("*.py")}
    alone = {path.name for path in ROOT.glob("maskalg_*.py")}  # such as the plugin of pytest
    assert "maskalg/py.typed" in package
    return package | kernels | alone


def check_metadata(about: Message) -> None:
    """The extras are those the documentation names, and what they need exists and is here."""
    extras = set(about.get_all("Provides-Extra", []))
    assert extras >= EXTRAS, EXTRAS - extras
    assert about["License-Expression"] == "Apache-2.0"
    assert about["Description-Content-Type"] == "text/markdown"
    for line in about.get_all("Requires-Dist", []):
        requirement = Requirement(line)
        if requirement.name == "maskalg":
            assert requirement.extras <= extras, line
        elif requirement.marker is None or requirement.marker.evaluate({"extra": "dev"}):
            assert requirement.specifier.contains(metadata.version(requirement.name)), line


def check_sdist(sdist: Path, version: str) -> None:
    """The sdist holds what builds, tests and documents the package."""
    with tarfile.open(sdist) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    assert sdist.name == f"maskalg-{version}.tar.gz"
    wanted = {"LICENSE", "README.md", "CHANGELOG.md", "pyproject.toml", "Makefile", "mkdocs.yml"}
    wanted |= {"tests/conftest.py", "docs/design.md", "examples/packed_documents.py"}
    wanted |= {f"kernels/{path.name}" for path in (ROOT / "kernels").glob("*.py")}
    assert wanted <= names, sorted(wanted - names)
    assert not any("__pycache__" in name or name.endswith(".pyc") for name in names)


def check_changelog(version: str) -> None:
    """The version is the newest of the change log."""
    newest = re.search(r"^## (\S+)", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)
    assert newest is not None and newest[1] == version, f"CHANGELOG.md starts with {newest}"


def check_install(wheel: Path, version: str) -> None:
    """The wheel installs into an empty environment, computes there, and has its command.

    Its dependencies come from this environment, by a path, so that nothing is fetched. What is
    linked into this environment for development is not seen there.
    """
    with tempfile.TemporaryDirectory() as folder:
        venv.create(folder, with_pip=False)
        python, command = (str(Path(folder, "bin", name)) for name in ("python", "maskalg"))
        pip = [sys.executable, "-m", "pip", "--python", python, "install", "-q", "--no-deps"]
        run(*pip, "--no-index", "--disable-pip-version-check", str(wheel), cwd=folder)
        here = sysconfig.get_path("purelib")
        place = run(python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))")
        Path(place, "dependencies.pth").write_text(f"{here}\n")
        found, where = run(python, "-c", TRY, cwd=folder).split()
        assert found == version and where.startswith(place), where
        assert run(command, "--version", cwd=folder) == f"maskalg {version}"
        report = json.loads(run(command, "doctor", "--json", cwd=folder))
        assert report["maskalg"] == version


def run(*command: str, cwd: str | None = None) -> str:
    """What a command prints; raises with its errors where it fails."""
    clean = {"PATH": "/usr/bin:/bin", "HOME": cwd or "/"}
    result = subprocess.run(command, cwd=cwd, env=clean, capture_output=True, text=True)
    assert result.returncode == 0, f"{' '.join(command)}: {result.stderr}"
    return result.stdout.strip()


if __name__ == "__main__":
    main()
