"""What `import maskalg` costs: nothing beyond torch but its own files."""

from __future__ import annotations

import subprocess
import sys

LISTED = """
import sys, torch
before = set(sys.modules)
import maskalg
print(*sorted(set(sys.modules) - before))
"""


def test_heavy_packages_wait_for_their_first_use() -> None:
    run = subprocess.run([sys.executable, "-c", LISTED], capture_output=True, text=True, check=True)
    loaded = run.stdout.split()
    assert "maskalg.algebra" in loaded
    outside = {name.split(".")[0] for name in loaded} - {"maskalg", *sys.stdlib_module_names}
    assert not outside & {"sympy", "triton", "maskalg_kernels", "rich", "hypothesis", "matplotlib"}
    # torch itself loads parts of torch.fx; nothing of it is loaded for maskalg.
    assert not [name for name in loaded if name.startswith(("torch.fx", "torch._dynamo"))]
    late = ("maskalg.proof.literals", "maskalg.proof.symbols", "maskalg.backends.cpu")
    assert not set(late) & set(loaded)
