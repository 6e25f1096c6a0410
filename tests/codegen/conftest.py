"""Laws of every kernel that these tests compile."""

import re

import pytest

triton = pytest.importorskip("triton", reason="needs Triton")


def unused_barriers(text):
    """Barriers of a kernel in Triton's intermediate form that its specialised warps never name."""
    before, _, warps = text.partition("ttg.warp_specialize(")
    barriers = re.findall(r"(%\w+) = ttg\.local_alloc : \(\) -> !ttg\.memdesc<[\dx]+xi64", before)
    of_stages = re.findall(r"(%\w+) = ttg\.memdesc_index (%\w+)\[", before)
    named = set(re.findall(r"%\w+", warps))
    return [
        barrier for barrier in barriers
        if barrier not in named
        and not any(stage in named for stage, of in of_stages if of == barrier)
    ]  # fmt: skip


@pytest.fixture(autouse=True)
def every_barrier_is_used(monkeypatch):
    """The memory of any other would be given to reductions: `hopper_common.barriers`."""
    compile = triton.compile

    def checked(*args, **options):
        made = compile(*args, **options)
        if "ttg.warp_specialize(" in made.asm.get("ttgir", ""):
            assert not unused_barriers(made.asm["ttgir"])
        return made

    monkeypatch.setattr(triton, "compile", checked)
