"""The demo: reads text; proves, shows, computes and compares its attention."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import torch

from ...attention import attention
from ...errors import MaskValueError
from ...formula.expression import Expression
from ...values.algebra import Mask
from ...values.biases import alibi
from ...values.masks import causal, document, sliding
from ...views.inspect.terminal import percent, show
from ..options import plain_console
from .corpus import Corpus, read_corpus
from .dense import Inputs, matrix_bytes, reference, sdpa_heads
from .measure import peak_bytes, seconds

if TYPE_CHECKING:
    from collections.abc import Callable

    from rich.console import Console

_CLOSE_UP: Final = 2048
_KERNEL_BLOCK: Final = 128
_SLICES: Final = 4
_SLICE_ROWS: Final = 128
_MOST_MATRIX_BYTES: Final = 4 << 30
# Of values near 1; the sums of a row are short, so that rounding does not pile up.
_TOLERANCES: Final = {torch.float32: 1e-5, torch.float16: 5e-3}


@dataclass(frozen=True)
class Dense:
    """Time and memory of the dense way: all heads one after the other, one matrix at a time.

    `difference` is the largest difference of its output from ours.
    """

    seconds: float
    peak: int
    difference: float


@torch.no_grad()
def run(options: argparse.Namespace) -> int:
    """Run the demo; returns the exit status, 1 where the result differs from the dense one."""
    console = plain_console()
    device = _device(options.device)
    corpus = read_corpus(options.paths, options.tokens)
    _print_corpus(console, corpus, options)
    inputs = _inputs(corpus, options, device)
    mask = causal & sliding(options.window) & document(inputs.ids)
    score = mask + alibi(inputs.slopes)

    _title(console, "score")
    console.print(str(score))
    _title(console, "proof")
    console.print(str(mask.prove()))
    _print_blocks(console, mask, inputs.tokens)
    _title(console, "attention")
    return _measure(console, inputs, score)


def _print_corpus(console: Console, corpus: Corpus, options: argparse.Namespace) -> None:
    _title(console, "text")
    found = sum(corpus.lengths)
    source = "given files" if options.paths else "sources of Python's standard library"
    console.print(
        f"{found} tokens ({len(corpus.vocabulary)} different) in {len(corpus.documents)} "
        f"documents, from {source}:"
    )
    listed = [f"{d.name} {len(d.tokens)}" for d in corpus.documents[:12]]
    rest = len(corpus.documents) - len(listed)
    console.print(", ".join(listed) + (f", and {rest} more" if rest else ""))
    if found < options.tokens:
        console.print(f"note: {options.tokens} tokens were asked for; there are no more")


def _print_blocks(console: Console, mask: Mask, tokens: int) -> None:
    _title(console, "blocks")
    show(mask, tokens, console=console)
    if tokens > _CLOSE_UP:
        _title(console, f"blocks of the first {_CLOSE_UP} tokens")
        show(mask, _CLOSE_UP, console=console)
    found = mask.blocks(tokens, block=_KERNEL_BLOCK)
    console.print(
        f"\nOf all {found.labels.numel()} blocks of {_KERNEL_BLOCK} x {_KERNEL_BLOCK}, "
        f"{percent(found.sparsity)} are empty: no kernel visits them."
    )


def _inputs(corpus: Corpus, options: argparse.Namespace, device: torch.device) -> Inputs:
    """Tokens embedded and projected with random weights; the documents' ids; ALiBi's slopes."""
    heads, size = options.heads, options.heads * options.head_dim
    random = torch.Generator().manual_seed(options.seed)
    tokens = corpus.token_ids()
    embedded = torch.randn(len(corpus.vocabulary), size, generator=random)[tokens]
    dtype = torch.float16 if device.type == "cuda" else torch.float32

    def projected() -> torch.Tensor:
        weights = torch.randn(size, size, generator=random) / size**0.5
        split: torch.Tensor = (embedded @ weights).view(1, len(tokens), heads, -1)
        return split.transpose(1, 2).contiguous().to(device, dtype)

    lengths = torch.tensor(corpus.lengths)
    ids = torch.arange(len(lengths)).repeat_interleave(lengths)
    slopes = 2.0 ** (-8.0 * torch.arange(1, heads + 1) / heads)
    query, key, value = projected(), projected(), projected()
    return Inputs(query, key, value, ids.to(device), slopes.to(device), options.window)


def _measure(console: Console, inputs: Inputs, score: Expression) -> int:
    def ours() -> torch.Tensor:
        return attention(inputs.query, inputs.key, inputs.value, score)

    device = inputs.query.device
    dense_fits = matrix_bytes(inputs) <= _MOST_MATRIX_BYTES
    with _progress(2 + _SLICES + dense_fits * (1 + inputs.heads)) as step:
        step("attention: the first call")
        peak = peak_bytes(ours, device)
        step("attention")
        outputs: list[torch.Tensor] = []
        took = seconds(lambda: outputs.append(ours()), device, times=3)
        out = outputs[-1]
        error = _largest_error(inputs, out, step)
        dense = _measure_dense(inputs, out, step) if dense_fits else None
    dtype = str(inputs.query.dtype).removeprefix("torch.")
    console.print(f"q, k, v {list(inputs.query.shape)}, {dtype}, {_device_text(device)}\n")
    _print_row(console, "", "time", "memory")
    _print_row(console, "maskalg.attention", _time(took), _memory(peak))
    if dense is None:
        needed = _memory(matrix_bytes(inputs))
        console.print(f"torch SDPA is left out: the dense matrix of one head is {needed}")
    else:
        _print_dense(console, inputs, dense, (took, peak))
    tolerance = _TOLERANCES[inputs.query.dtype]
    verdict = "agrees" if error <= tolerance else "DIFFERS"
    console.print(
        f"\nlargest error {error:.1e} against dense float64 attention, at {_SLICES} slices of up "
        f"to {_slice_rows(inputs)} queries: {verdict} (tolerance {tolerance:.0e})"
    )
    return 0 if error <= tolerance else 1


def _print_dense(console: Console, inputs: Inputs, dense: Dense, ours: tuple[float, int]) -> None:
    _print_row(console, "torch SDPA, dense matrix", _time(dense.seconds), _memory(dense.peak))
    all_heads = _memory(matrix_bytes(inputs) * inputs.heads)
    console.print(
        f"\nSDPA takes {_ratio(dense.seconds / ours[0])} times the time and "
        f"{_ratio(dense.peak / ours[1])} times the memory; the outputs differ by at most "
        f"{dense.difference:.1e}.\n"
        "time:   ours is the median of 3 calls after the first; SDPA one call for each head, one "
        "head after the other, without the time to build its matrix.\n"
        "memory: most bytes of tensors allocated in a call and alive at once, without q, k, v. "
        f"SDPA holds mask and bias of one head at a time; all {inputs.heads} at once would be "
        f"{all_heads}."
    )


def _largest_error(inputs: Inputs, out: torch.Tensor, step: Callable[[str], None]) -> float:
    """The largest difference from the reference, over slices from the first to the last query."""
    rows = _slice_rows(inputs)
    errors = []
    for i in range(_SLICES):
        step("dense float64 reference of a slice")
        start = (inputs.tokens - rows) * i // (_SLICES - 1)
        wanted = reference(inputs, start, start + rows)
        errors.append(float((out[:, :, start : start + rows] - wanted).abs().max()))
    # Not `max`, which drops a NaN.
    return float(torch.tensor(errors).max())


def _slice_rows(inputs: Inputs) -> int:
    """Queries of a slice: fewer where the float64 scores of a slice would not fit 128 MiB."""
    fit = (1 << 24) // (inputs.tokens * inputs.heads)
    return max(1, min(_SLICE_ROWS, inputs.tokens, fit))


def _measure_dense(inputs: Inputs, out: torch.Tensor, step: Callable[[str], None]) -> Dense:
    device = inputs.query.device
    times: list[float] = []
    outputs: list[torch.Tensor] = []

    def every_head() -> None:
        step("torch SDPA: the dense matrix")
        for head, call in enumerate(sdpa_heads(inputs)):
            step(f"torch SDPA: head {head + 1} of {inputs.heads}")
            times.append(seconds(lambda: outputs.append(call()), device))  # noqa: B023

    peak = peak_bytes(every_head, device)
    difference = float((torch.cat(outputs, dim=1) - out).abs().max())
    return Dense(sum(times), peak, difference)


def _device(name: str | None) -> torch.device:
    if name is None:
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        device = torch.device(name)
    except RuntimeError:
        device = torch.device("meta")
    if device.type not in ("cpu", "cuda"):
        raise MaskValueError(f"--device must be cpu, cuda or cuda:N, got {name!r}")
    if device.type == "cuda" and (device.index or 0) >= torch.cuda.device_count():
        raise MaskValueError(f"--device {name}: there is no such GPU; write --device cpu")
    return device


def _device_text(device: torch.device) -> str:
    if device.type == "cuda":
        return torch.cuda.get_device_name(device)
    return f"CPU with {torch.get_num_threads()} threads"


@contextmanager
def _progress(steps: int) -> Iterator[Callable[[str], None]]:
    """A progress bar on standard error, where that is a terminal; call it as a step begins."""
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

    console = Console(stderr=True)
    columns = (BarColumn(), TimeElapsedColumn(), TextColumn("{task.description}"))
    hidden = not console.is_terminal
    with Progress(*columns, console=console, transient=True, disable=hidden) as bar:
        task = bar.add_task("", total=steps)
        begun = 0

        def step(text: str) -> None:
            nonlocal begun
            bar.update(task, description=text, completed=begun)
            begun += 1

        yield step


def _title(console: Console, text: str) -> None:
    console.print(f"\n{text}", style="bold")


def _print_row(console: Console, name: str, time: str, memory: str) -> None:
    console.print(f"{name:<26}{time:>10}{memory:>12}")


def _time(value: float) -> str:
    return f"{value:.2f} s" if value >= 1 else f"{1000 * value:.1f} ms"


def _ratio(value: float) -> str:
    return f"{value:.1f}" if value >= 1 else f"{value:.2g}"


def _memory(count: int) -> str:
    if count >= 1 << 30:
        return f"{count / (1 << 30):.1f} GiB"
    return f"{count / (1 << 20):.1f} MiB"
