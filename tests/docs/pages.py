"""Which pages there are, what they take for granted, and what of them cannot be run, and why."""

from __future__ import annotations

from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGES = [
    ROOT / "README.md",
    ROOT / "examples" / "README.md",
    *sorted((ROOT / "docs").rglob("*.md")),
]

SETUP = {
    "docs/howto/commands.md": """
        from pathlib import Path
        Path("masks.py").write_text(
            "from maskalg import causal, prefix, sliding\\n"
            "local = causal & (sliding(256) | prefix(4))\\n"
            "def mask_mod(b, h, q_idx, kv_idx):\\n"
            "    return (q_idx >= kv_idx) & ((q_idx - kv_idx < 256) | (kv_idx < 5))\\n"
        )
    """,
    "docs/explore.md": """
        import torch
        from maskalg import causal, document, prefix, sliding
        ids = torch.arange(1_048_576) // 1000
    """,
    "docs/pictures.md": """
        import torch
        import maskalg as ma
        from maskalg import alibi, causal, document, prefix, relative, sliding, softcap, t5
        from matplotlib.figure import Figure

        left, right = Figure().subplots(1, 2)
        mask, ids = causal & (sliding(256) | prefix(128)), torch.arange(4096) // 1000
        slopes, table, buckets = torch.ones(2), torch.randn(2, 17), torch.randn(32, 2)
    """,
}
"""Names that a page leaves to its reader, and files that it shows."""

ELSEWHERE = {
    "docs/contributing.md": "test_contributing.py runs it in a patched copy of the tree",
    "docs/from_flexattention.md": "test_from_flexattention.py",
    "docs/property_testing.md": "test_property_testing.py",
}
"""Pages with a test of their own."""

_GPU = "needs a GPU"
_TRL = "tests/integrations/test_trl.py does so where TRL is installed"

NOT_RUN = {
    ("docs/transformers.md", "import maskalg.integrations.trl"): _TRL,
    ("docs/howto/tuning.md", "maskalg tune"): _GPU,
    ("docs/performance.md", "maskalg bench --rounds 5 --markdown"): _GPU,
    (
        "docs/performance.md",
        "maskalg bench --backward --rounds 5 --markdown",
    ): _GPU,
}
"""Blocks that are not run, by page and first line, and why.

Besides these, `make`, `pip install` and `python SCRIPT` are not run: CI and
tests/package/test_examples.py run what they name. Of every command that is not run, what it names
is looked up (`commands.py`).
"""


def place(page: Path) -> str:
    """A page as it is listed here."""
    return page.relative_to(ROOT).as_posix()
