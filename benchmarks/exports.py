"""What the exports to other engines take over the catalogue: processor time and memory.

    python benchmarks/exports.py                                  # three lengths, all masks
    python benchmarks/exports.py --len 1048576 --only document    # masks whose name holds a word

Each export of each mask runs in a process of its own, forked before anything was asked, with one
thread and a limit of 60 s of the clock. A line says the processor time of the export, the proof
included, and the most memory that the process held in it, in MiB above what it held before.
"refused" is a mask that the format does not hold: MaskValueError. A table of each export follows:
masks written, refused and stopped by the limit; the median, and the most time and memory.
"""

from __future__ import annotations

import argparse
import os
import resource
import select
import signal
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

import torch

from maskalg import Mask
from maskalg.bench.families import families
from maskalg.errors import MaskValueError
from maskalg.export import to_attention_slices, to_flashmask

LIMIT: Final = 60.0  # seconds
SMALLEST: Final = 1 << 16

EXPORTS: Final[dict[str, Callable[[Mask, int], object]]] = {
    "blocks": lambda mask, n: mask.blocks(n),
    "to_flex": lambda mask, n: mask.blocks(n).to_flex(),
    "to_fa4": lambda mask, n: mask.blocks(n).to_fa4(),
    "intervals": lambda mask, n: mask.to_mask_mod(n, form="intervals"),
    "to_cudnn": lambda mask, n: mask.to_cudnn(n),
    "to_flashinfer": lambda mask, n: mask.to_flashinfer(n, block=128),
    "to_vllm": lambda mask, n: mask.to_vllm(n),
    "to_flashmask": lambda mask, n: to_flashmask(mask, n),
    "slices": lambda mask, n: to_attention_slices(mask, n),
}


@dataclass(frozen=True)
class Taken:
    """Processor time in seconds and memory in MiB; or why there are none."""

    seconds: float = 0.0
    memory: float = 0.0
    failed: str = ""


def resident(field: str) -> float:
    """`VmRSS` or `VmHWM` (the most since it was reset) of this process, in MiB."""
    with open("/proc/self/status", encoding="ascii") as status:
        line = next(line for line in status if line.startswith(field))
    return int(line.split()[1]) / 1024


def measured(build: Callable[[], Mask], export: Callable[[Mask, int], object], n: int) -> Taken:
    """What an export takes in this process."""
    mask = build()
    with open("/proc/self/clear_refs", "w", encoding="ascii") as reset:
        reset.write("5")
    before, started = resident("VmRSS"), time.process_time()
    try:
        export(mask, n)
    except MaskValueError:
        return Taken(failed="refused")
    except MemoryError:
        return Taken(failed="memory")
    return Taken(time.process_time() - started, resident("VmHWM") - before)


def in_a_process(question: Callable[[], Taken]) -> Taken:
    """The answer of a forked process; a failure where it takes too long or ends without one."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(reading)
        try:
            taken = question()
        except Exception as error:
            taken = Taken(failed=type(error).__name__)
        text = f"{taken.seconds} {taken.memory} {taken.failed}"
        os.write(writing, text.encode())
        os._exit(0)
    os.close(writing)
    ready, _, _ = select.select([reading], [], [], LIMIT)
    if not ready:
        os.kill(child, signal.SIGKILL)
    text = os.read(reading, 1 << 12).decode() if ready else ""
    os.close(reading)
    os.waitpid(child, 0)
    if not ready:
        return Taken(failed=f"over {LIMIT:.0f} s")
    if not text:
        return Taken(failed="ended")
    seconds, memory, failed = text.split(" ", 2)
    return Taken(float(seconds), float(memory), failed)


def main() -> None:
    """Print a line for each mask and export, and a table for each length."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--len", dest="lengths", default="65536,262144,1048576")
    parser.add_argument("--only", default="")
    parser.add_argument("--exports", default=",".join(EXPORTS))
    chosen = parser.parse_args()
    torch.set_num_threads(1)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    for n in map(int, chosen.lengths.split(",")):
        found: dict[str, dict[str, Taken]] = {}
        for export in chosen.exports.split(","):
            found[export] = {}
            for name in families(SMALLEST):
                if chosen.only not in name:
                    continue

                def question(name: str = name, export: str = export, n: int = n) -> Taken:
                    return measured(families(n)[name], EXPORTS[export], n)

                taken = in_a_process(question)
                found[export][name] = taken
                says = taken.failed or f"{taken.seconds:.2f} s, {taken.memory:.0f} MiB"
                print(f"{n:9,} {export:14} {name:26} {says}", flush=True)
        print(f"\ntorch {torch.__version__}, 1 thread, {n:,} tokens")
        print("| export | written | refused | stopped | median, s | most, s | | most, MiB | |")
        print("|---|---|---|---|---|---|---|---|---|")
        for export, each in found.items():
            print(summary(export, each), flush=True)
        print()


def summary(export: str, each: dict[str, Taken]) -> str:
    """A line of the table of a length."""
    written = {name: taken for name, taken in each.items() if not taken.failed}
    refused = sum(taken.failed == "refused" for taken in each.values())
    stopped = len(each) - len(written) - refused
    if not written:
        return f"| {export} | 0 | {refused} | {stopped} | | | | | |"
    longest = max(written, key=lambda name: written[name].seconds)
    largest = max(written, key=lambda name: written[name].memory)
    median = statistics.median(taken.seconds for taken in written.values())
    return (
        f"| {export} | {len(written)} | {refused} | {stopped} | {median:.2f} | "
        f"{written[longest].seconds:.2f} | {longest} | "
        f"{written[largest].memory:.0f} | {largest} |"
    )


if __name__ == "__main__":
    main()
