"""`maskalg explain`: what a call of `attention` would choose on this machine."""

from __future__ import annotations

import argparse
import re
from typing import Final

import torch

from .options import (
    LENGTH_SHOWN,
    add_expression,
    add_lengths,
    length_shown,
    positive,
)

HELP: Final = "what a call of attention would choose here: backend, kernel, bounds"
DESCRIPTION: Final = (
    "Print what attention under an expression would choose on this machine: the "
    "backend, its kernel and tile, and where the bounds of visited tiles come from."
)
_DTYPES: Final = {
    "bf16": torch.bfloat16,
    "fp16": torch.float16,
    "fp32": torch.float32,
    "fp64": torch.float64,
}


def declare(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the command."""
    add_expression(parser)
    add_lengths(parser, str(LENGTH_SHOWN))
    add = parser.add_argument
    add("--batch", type=positive, default=1, help="number of batch entries (%(default)s)")
    add("--heads", type=positive, default=8, help="number of query heads (%(default)s)")
    add("--kv-heads", type=positive, help="heads of key and value (default: as queries)")
    add("--head-dim", type=positive, default=64, help="dimensions of q, k and v (%(default)s)")
    add("--dtype", choices=list(_DTYPES), help="dtype (default: bf16 on a GPU, else fp32)")
    add("--device", type=_device, help="cpu or cuda (default: cuda where there is one)")


def run(options: argparse.Namespace) -> int:
    """Print the choice; returns the exit status."""
    from ..explanation import explain
    from ..parsing import read

    expression = read(options.expression)
    q_len = length_shown(expression, options)
    kv_len = q_len if options.kv_len is None else options.kv_len
    device = options.device or ("cuda" if torch.cuda.is_available() else "cpu")
    dtype = _DTYPES[options.dtype or ("fp32" if device == "cpu" else "bf16")]
    kv_heads = options.kv_heads or options.heads
    query, key = (
        torch.empty(1, 1, 1, 1, dtype=dtype, device=device).expand(
            options.batch, heads, length, options.head_dim
        )
        for heads, length in ((options.heads, q_len), (kv_heads, kv_len))
    )
    print(explain(query, key, key, expression.to(device)))
    return 0


def _device(text: str) -> str:
    if not re.fullmatch(r"cpu|cuda(:\d+)?", text):
        raise argparse.ArgumentTypeError(f"expected cpu, cuda or cuda:1, got {text!r}")
    here = torch.cuda.device_count()
    if text != "cpu" and int(text[5:] or 0) >= here:
        raise argparse.ArgumentTypeError(
            f"{text} is not here: torch finds {here} GPUs. Write --device cpu; "
            "`maskalg doctor` says what is here"
        )
    return text
