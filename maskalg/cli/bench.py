"""`maskalg bench`: times on this machine's GPU, a line for each case."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

import torch

from ..errors import BackendError
from .arguments import named_by


@dataclass(frozen=True)
class Settings:
    """The choices of `maskalg bench`.

    Attributes:
        cases: parts of the names of cases; empty is all of the usual shapes.
        catalogue: time each family of masks of the catalogue instead.
        rounds: how often each contender has its turn.
        backward: time the backward pass alone.
        markdown: print a Markdown table at the end.
    """

    cases: tuple[str, ...]
    catalogue: bool
    rounds: int
    backward: bool
    markdown: bool


def run(settings: Settings) -> int:
    """Measure and print; returns the exit status."""
    if not torch.cuda.is_available():
        raise BackendError(
            "no CUDA device was found (torch.cuda.is_available() is False). On a CPU, `maskalg "
            "demo` compares with scaled_dot_product_attention."
        )
    from ..bench import cudnn, flash_attention_4
    from ..bench.cases import FURTHER_SHAPES, SHAPES, cases, catalogue
    from ..bench.measure import measure
    from ..bench.report import line, markdown, summary

    shapes = SHAPES | FURTHER_SHAPES if settings.cases else SHAPES
    make = catalogue if settings.catalogue else partial(cases, shapes=shapes)
    names = named_by(settings.cases, list(make("cpu")))
    what = "backward" if settings.backward else "forward"
    print(
        f"{torch.cuda.get_device_name()}, torch {torch.__version__}, {what}, bfloat16{_tuned()}\n"
        f"milliseconds, median [min-max] of {settings.rounds} interleaved rounds; T: TFLOP/s of "
        "useful work; x: how many times faster maskalg is"
    )
    for name, peer in ((flash_attention_4.BUILT_IN, flash_attention_4), (cudnn.NAME, cudnn)):
        if (why := peer.missing()) is not None:
            print(f"{name}: {why}")
    found, rows = make("cuda"), []
    for name in names:
        rows.append(measure(name, found[name], settings.rounds, backward=settings.backward))
        print(line(rows[-1]), flush=True)
        torch.cuda.empty_cache()
    print(summary(rows))
    if settings.markdown:
        print("\n" + markdown(rows))
    return 0


def _tuned() -> str:
    """The tiles of `maskalg tune` behind the figures, as a line of text."""
    from ..backends.triton.tuned import machine_of

    _, choices = machine_of(torch.device("cuda", torch.cuda.current_device()))
    return f", {len(choices.by_key)} tuned tiles (MASKALG_TUNED=0: none)" if choices.by_key else ""
