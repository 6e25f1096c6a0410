"""What `import maskalg` and a command cost: of torch nothing but what `import torch` brings."""

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
    assert "maskalg.values.algebra" in loaded
    outside = {name.split(".")[0] for name in loaded} - {"maskalg", *sys.stdlib_module_names}
    assert not outside & {"sympy", "triton", "maskalg_kernels", "rich", "hypothesis", "matplotlib"}
    # torch itself loads parts of torch.fx; nothing of it is loaded for maskalg.
    assert not [name for name in loaded if name.startswith(("torch.fx", "torch._dynamo"))]
    late = ("maskalg.proof.literals", "maskalg.proof.symbols", "maskalg.backends.cpu.backend")
    assert not set(late) & set(loaded)


COMMAND = """
import gc, os, sys, torch
from maskalg.cli import main
def leave(status):
    late = [name for name in sys.modules if name.startswith("torch.") and name not in before]
    print("leaves with", status, late, torch.get_num_threads(), gc.isenabled(), flush=True)
os._exit = leave
before = set(sys.modules)
sys.argv = ["maskalg", "show", "causal & document([0, 0, 1, 1]) & dilated(2)", "--len", "4"]
main()
"""


def test_a_command_loads_no_more_of_torch_and_leaves_when_all_is_said() -> None:
    run = subprocess.run(
        [sys.executable, "-c", COMMAND], capture_output=True, text=True, check=True
    )
    lines = run.stdout.splitlines()
    assert lines[0].startswith("causal & document(")
    assert "blocks of 1 x 1" in lines[-2]
    # torch.broadcast_shapes, for one, would load the machinery of symbolic shapes.
    # Nor does it wait for other threads, which another process may keep from running.
    assert lines[-1] == "leaves with 0 [] 1 False"
