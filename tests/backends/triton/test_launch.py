"""Kernels that are compiled side by side before they are launched, for a GPU that is not here."""

import os
import threading

import pytest
import torch

import maskalg as ma

pytest.importorskip("triton", reason="launches of Triton's kernels")

pytestmark = pytest.mark.skipif(
    os.environ.get("TRITON_INTERPRET") == "1", reason="the interpreter compiles nothing"
)


class Driver:
    """As much of a driver as compiling needs."""

    def get_current_device(self):
        return 0

    def set_current_device(self, device):
        assert device == 0

    def get_current_stream(self, device):
        return 0

    def get_current_target(self):
        from triton.backends.compiler import GPUTarget

        return GPUTarget("cuda", 90, 32)


@pytest.fixture
def compiled(tmp_path, monkeypatch):
    """Names of the kernels that were compiled, in an empty cache; what is read from it is none."""
    import triton

    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path))
    names = []

    def listen(*, src, cache_hit, **_):
        if not cache_hit:
            names.append(src.name)

    monkeypatch.setattr(triton.knobs.compilation, "listener", listen)
    monkeypatch.setattr(triton.runtime.driver, "_active", Driver())
    # Python 3.11 now and then raises "AST constructor recursion depth mismatch" where threads parse
    # at once. In use such a kernel is compiled at its launch; here it would be missing.
    owner = next(kind for kind in triton.JITFunction.__mro__ if "parse" in vars(kind))
    parse, one_at_a_time = owner.parse, threading.Lock()

    def parsed(function):
        with one_at_a_time:
            return parse(function)

    monkeypatch.setattr(owner, "parse", parsed)
    return names


def launches(block):
    """Two kernels, the second in two variants; `block` tells those of each test apart."""
    from maskalg.attention import checked_call
    from maskalg.backends.triton.launching.launch import Launch
    from maskalg.backends.triton.launching.spec import KernelSpec, Sizes

    tensor = torch.zeros(4, 32, dtype=torch.float32)
    call = checked_call(*[tensor.view(1, 1, 4, 32)] * 3, ma.causal)
    sizes = Sizes(1, {"length": 32})

    def launch(name, **constants):
        spec = KernelSpec(f"tests.backends.triton.small_kernels.{name}")
        given, of = {"source": tensor, "target": tensor}, tuple(constants.values())
        return Launch(spec, of, call, given, lambda call: sizes, lambda: constants)

    return [
        launch("sums", BLOCK=block),
        *[launch("filled", BLOCK=block, VALUE=value) for value in (0.0, 1.0)],
    ]


def test_missing_variants_are_compiled_once(compiled):
    from maskalg.backends.triton.launching.launch import compile_together

    made = launches(32)
    compile_together(made)
    assert sorted(compiled) == ["filled", "filled", "sums"]
    for launch in made:
        arguments, constants = launch.first()
        launch.kernel.warmup(*arguments, grid=launch.programs, **constants)
    assert len(compiled) == 3


def test_one_launch_is_left_to_itself(compiled):
    from maskalg.backends.triton.launching.launch import compile_together

    compile_together(launches(64)[:1])
    assert compiled == []


def test_what_was_tried_is_not_tried_again(compiled):
    import triton

    from maskalg.backends.triton.launching.launch import compile_together

    made = launches(128)
    compile_together(made)
    triton.knobs.compilation.listener = lambda **_: pytest.fail("compiled again")
    for launch in made:
        launch.kernel.device_caches.clear()
    compile_together(made)


def test_a_caller_that_compiles_aside(compiled):
    from concurrent.futures import ThreadPoolExecutor

    import triton

    from maskalg.backends.triton.launching.launch import compile_together

    with ThreadPoolExecutor(1) as threads, triton.AsyncCompileMode(threads):
        compile_together(launches(256))
        assert sorted(compiled) == ["filled", "filled", "sums"]


def test_what_fails_is_left_to_its_launch(compiled):
    from maskalg.backends.triton.launching.launch import compile_together

    made = launches(33)  # no block of Triton's: its sides are powers of two
    compile_together(made)
    assert compiled == []
    arguments, constants = made[0].first()
    with pytest.raises(Exception, match="power of 2"):
        made[0].kernel.warmup(*arguments, grid=made[0].programs, **constants)
