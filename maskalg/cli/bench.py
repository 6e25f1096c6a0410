"""`maskalg bench`: times on this machine's GPU, a line for each case."""

from __future__ import annotations

import argparse
from functools import partial
from typing import Final

import torch

from ..errors import BackendError, MaskValueError
from .options import named_by, positive

HELP: Final = "time attention on this machine's GPU, beside FlexAttention and other kernels"
DESCRIPTION: Final = (
    "Time attention under common masks and biases on this machine's GPU, in turn "
    "with FlexAttention, cuDNN and FlashAttention-2 (and -4 where it is installed)."
)


def declare(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the command."""
    add = parser.add_argument
    add(
        "--cases",
        default="",
        help='comma-separated names, or parts of names, such as "D64,causal"',
    )
    add("--catalogue", action="store_true", help="time every family of masks")
    add("--peers", default="", help="comma-separated names of other kernels to time (all)")
    add("--rounds", type=positive, default=7, help="turns of each kernel (%(default)s)")
    add("--workers", type=positive, default=1, help="processes that compile at once (%(default)s)")
    add("--backward", action="store_true", help="time the backward pass")
    add("--markdown", action="store_true", help="print a Markdown table at the end")


def run(options: argparse.Namespace) -> int:
    """Measure and print; returns the exit status."""
    if not torch.cuda.is_available():
        raise BackendError(
            "no CUDA device was found (torch.cuda.is_available() is False). On a CPU, `maskalg "
            "demo` compares with scaled_dot_product_attention."
        )
    from ..bench import cudnn, flash_attention_4
    from ..bench.cases import FURTHER_SHAPES, SHAPES, cases, catalogue
    from ..bench.report import PEERS, line, markdown, summary
    from ..bench.workers import measured

    peers = [peer for peer in options.peers.split(",") if peer]
    if unknown := set(peers) - set(PEERS):
        raise MaskValueError(
            f"--peers {','.join(sorted(unknown))} names no contender. Those there are: "
            f"{', '.join(PEERS)}."
        )
    parts = [part for part in options.cases.split(",") if part]
    shapes = SHAPES | FURTHER_SHAPES if parts else SHAPES
    make = partial(catalogue, named=parts) if options.catalogue else partial(cases, shapes=shapes)
    names = named_by(parts, list(make("cpu")))
    what = "backward" if options.backward else "forward"
    print(
        f"{torch.cuda.get_device_name()}, torch {torch.__version__}, {what}, bfloat16{_tuned()}\n"
        f"milliseconds, median [min-max] of {options.rounds} interleaved rounds; T: TFLOP/s of "
        "useful work; x: how many times faster maskalg is"
    )
    for name, peer in ((flash_attention_4.BUILT_IN, flash_attention_4), (cudnn.NAME, cudnn)):
        if (why := peer.missing()) is not None:
            print(f"{name}: {why}")
    rows = []
    workers = min(options.workers, len(names))
    for row in measured(
        make, names, options.rounds, workers, backward=options.backward, peers=peers
    ):
        rows.append(row)
        print(line(row), flush=True)
    print(summary(rows))
    if options.markdown:
        print("\n" + markdown(rows))
    return 0


def _tuned() -> str:
    """The tiles of `maskalg tune` behind the figures, as a line of text."""
    from ..backends.triton.tuned import machine_of

    _, choices = machine_of(torch.device("cuda", torch.cuda.current_device()))
    return f", {len(choices.by_key)} tuned tiles (MASKALG_TUNED=0: none)" if choices.by_key else ""
