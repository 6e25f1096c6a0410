"""Test the package with each supported torch and the Triton that comes with it.

    python .ci/compat.py [--short] [--keep] [VERSION OF TORCH ...]

Each pair gets an environment of its own in `.compat/`, deleted again unless `--keep` is given; its
torch is the build of PyPI, with CUDA on Linux: 6 GB on disk. No GPU is needed: kernels are compiled
for GPUs that are not there, interpreted, and launched twice on a stub of the driver.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).parents[1]
TORCH = ("2.10.0", "2.11.0", "2.12.1", "2.13.0", "2.14.1", "2.15.0")
LAUNCHES = "tests/backends/triton/test_launches.py"
HOPPER = "tests/codegen/test_compile_hopper.py"
COMPILED = (
    *(f"forward-{target}" for target in ("sm_80", "sm_90", "sm_100", "gfx942")),
    *(f"backward_{of}-gfx942" for of in ("queries", "keys", "entries")),
)
# Imports; each kernel launched twice, for Hopper and for others; kernels compiled for NVIDIA and
# AMD; torch's graph trees; operators under torch.compile; several processes; transformers.
SHORT = (
    "tests/package/test_imports.py",
    "tests/engine/test_graphs.py",
    f"{LAUNCHES}::test_on_hopper",
    f"{LAUNCHES}::test_elsewhere",
    f"{LAUNCHES}::test_merged_parts",
    f"{LAUNCHES}::test_bits_of_a_mask_that_costs[weight0]",
    f"{LAUNCHES}::test_chunks_in_pages[True-16]",
    f"{LAUNCHES}::test_one_variant_serves_documents_however_packed[sm_90-64]",
    "tests/backends/triton/test_launch.py",
    "tests/backends/triton/test_descriptors.py",
    "tests/backends/triton/test_fitting.py",
    *(f"tests/codegen/test_compile.py::test_compiles_everywhere[{each}]" for each in COMPILED),
    f"{HOPPER}::test_128_dimensions",
    f"{HOPPER}::test_each_arrival_follows_one_barrier",
    f"{HOPPER}::test_all_gradients[window-0-64-128]",
    f"{HOPPER}::test_tiles_are_weighed_while_values_are_multiplied",
    "tests/operators",
    "tests/parallel/test_attend.py",
    "tests/integrations/test_continuous_batching.py",
    "tests/integrations/test_transformers.py",
)
WHOLE = (
    "tests/package/test_imports.py",
    "tests/engine",
    "tests/backends",
    "tests/codegen",
    "tests/operators",
    "tests/parallel",
    "tests/integrations",
)
INTERPRETED_SHORT = ("tests/interpreter/test_forward.py", "tests/interpreter/test_units.py")
INTERPRETED = ("tests/interpreter",)
NEEDED = ("setuptools>=77", "pytest", "pytest-xdist", "hypothesis", "sympy", "rich", "numpy")
# Beside the oldest torch, with what its continuous batching needs on a CPU; the others get the
# pinned one.
OLDEST_TRANSFORMERS = ("transformers==5.19.0", "psutil")


def main() -> int:
    """Test the pairs one after the other; 1 where any fails."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("torch", nargs="*", default=TORCH, help="versions, all by default")
    parser.add_argument("--short", action="store_true", help="what CI runs: some minutes a pair")
    parser.add_argument("--keep", action="store_true", help="keep the environments")
    chosen = parser.parse_args()
    results = [tested(version, short=chosen.short, keep=chosen.keep) for version in chosen.torch]
    print("\ntorch      Triton     Python     result")
    for row, _ in results:
        print(row)
    return int(not all(passed for _, passed in results))


def tested(version: str, *, short: bool, keep: bool) -> tuple[str, bool]:
    """A row of the table, and whether all passed."""
    folder = ROOT / ".compat" / version
    started = time.monotonic()
    try:
        python = environment(folder, version)
        passed = all(
            [
                ran(python, SHORT if short else WHOLE, {}),
                ran(python, INTERPRETED_SHORT if short else INTERPRETED, {"TRITON_INTERPRET": "1"}),
            ]
        )
        versions = output(
            python, "import torch, triton; print(torch.__version__, triton.__version__)"
        )
    finally:
        if not keep:
            shutil.rmtree(folder, ignore_errors=True)
    minutes = (time.monotonic() - started) / 60
    torch, triton = versions.split()
    python_version = ".".join(map(str, sys.version_info[:3]))
    verdict = "passed" if passed else "FAILED"
    return f"{torch:<10} {triton:<10} {python_version:<10} {verdict} in {minutes:.0f} min", passed


def environment(folder: Path, version: str) -> Path:
    """The interpreter of an environment with this torch, and the package as editable."""
    python, ready = folder / "bin" / "python", folder / "ready"
    if not ready.exists():
        subprocess.run([sys.executable, "-m", "venv", str(folder)], check=True)
        pip(python, f"torch=={version}")
        pinned = (ROOT / "constraints.txt").read_text().splitlines()
        own = ("torch==", "triton==", "transformers==")
        others = [line for line in pinned if not line.startswith(own)]
        (newest,) = [line for line in pinned if line.startswith(own[2])]
        constraints = folder / "constraints.txt"
        constraints.write_text("\n".join(others) + "\n")
        transformers = OLDEST_TRANSFORMERS if version == TORCH[0] else (newest,)
        pip(python, "-c", str(constraints), *NEEDED, *transformers)
        pip(python, "--no-deps", "--no-build-isolation", "-e", ".")
        ready.touch()
    return python


def pip(python: Path, *arguments: str) -> None:
    """Install; a cap on torch in the machine's settings of pip does not hold here."""
    command = [str(python), "-m", "pip", "install", "-q", "--disable-pip-version-check"]
    clean = os.environ | {"PIP_CONSTRAINT": os.devnull}
    subprocess.run([*command, *arguments], cwd=ROOT, env=clean, check=True)


def ran(python: Path, tests: tuple[str, ...], more: dict[str, str]) -> bool:
    """Whether these tests pass, two at a time."""
    command = [str(python), "-m", "pytest", "-q", "-n", "2", "-p", "no:cacheprovider", *tests]
    environment = os.environ | {"OMP_NUM_THREADS": "1"} | more
    return subprocess.run(command, cwd=ROOT, env=environment).returncode == 0


def output(python: Path, code: str) -> str:
    return subprocess.run(
        [str(python), "-c", code], capture_output=True, text=True, check=True
    ).stdout


if __name__ == "__main__":
    sys.exit(main())
