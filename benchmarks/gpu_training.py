"""What training on one GPU asks of the kernels beside speed at one shape.

    python benchmarks/gpu_training.py [lengths] [memory] [first] [host] [weights] [tiers] [passes]
        [groups] [orders]

Every table is made in one process with its peer beside it; without a name all are made.

    lengths   time of lengths that are no multiple of 128, relative to the next multiple
    memory    peak memory of a training step, relative to FlashAttention-2's
    first     seconds of the first call of a structure, and of one with new values
    host      microseconds of host time of a cached call and of its backward pass, beside
              FlexAttention's and SDPA's
    weights   TFLOP/s of useful work of the weight functions, forward and backward
    tiers     the plain kernels beside the Hopper ones, forward and backward
    passes    the backward pass by two kernels beside that by one
    groups    backward of grouped heads beside FlexAttention's
    orders    time from a model's projections to what the next one reads, heads of a token
              together, beside that of inputs whose heads lie apart, and SDPA's
"""

from __future__ import annotations

import gc
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
import triton
from torch.nn.attention import SDPBackend, sdpa_kernel

import maskalg as ma
from maskalg import alibi, causal, document, sliding, softcap
from maskalg.backends.triton import plan as backend
from maskalg.backends.triton import tuned
from maskalg.bench.cases import Case, Shape, backward_of, cases, documents
from maskalg.bench.contenders import contenders, inputs_of
from maskalg.bench.measure import interleaved, kept_pairs
from maskalg.formula.expression import Expression
from maskalg.tiles.shapes import Least

DEVICE = "cuda"
Attend = Callable[..., torch.Tensor]
ROUNDS = 5


def medians(functions: dict[str, Callable[[], Any]]) -> dict[str, float]:
    return {name: statistics.median(t) for name, t in interleaved(functions, ROUNDS).items()}


def made(shape: Shape, gradients: bool = False) -> tuple[torch.Tensor, ...]:
    return inputs_of(Case(shape, ma.everything), torch.bfloat16, gradients=gradients)


def forget() -> None:
    """What was planned and remembered before a choice was changed."""
    backend.structure_plan.cache_clear()
    backend.backward_plan.cache_clear()
    tuned.look_again()


def lengths() -> None:
    print("\nlengths: time of N over that of the next multiple of 128, by pair")
    for label, mask in {"full": ma.everything, "causal": causal, "window": sliding(1024)}.items():
        for dim in (128, 64):
            runs: dict[str, Callable[[], Any]] = {}
            pairs = {}
            for length in (8065, 8100, 8191, 8192):
                shape = Shape(2, 16, 16, length, dim)
                inputs = made(shape, gradients=True)
                forward = partial(ma.attention, *inputs, mask)
                runs[f"forward {length}"] = forward
                runs[f"backward {length}"] = backward_of(forward, inputs)
                pairs[length] = kept_pairs(Case(shape, mask))
            found = medians(runs)
            for kind in ("forward", "backward"):
                base = found[f"{kind} 8192"] / pairs[8192]
                each = [
                    f"{n}: {found[f'{kind} {n}'] / pairs[n] / base:.3f}" for n in (8065, 8100, 8191)
                ]
                print(f"D={dim:<4} {label:8} {kind:9} {'  '.join(each)}  (per kept pair)")


def flash(*inputs: torch.Tensor) -> torch.Tensor:
    with sdpa_kernel(SDPBackend.FLASH_ATTENTION):
        return F.scaled_dot_product_attention(*inputs, is_causal=True)


def memory() -> None:
    print("\nmemory: MiB above the inputs at the peak of a step, and over FlashAttention-2's")
    for dim in (128, 64):
        shape = Shape(2, 16, 16, 8192, dim)
        inputs = made(shape, gradients=True)
        ids = documents(shape.length, 1000, DEVICE)
        steps = {
            "FlashAttention-2": partial(flash, *inputs),
            "causal": partial(ma.attention, *inputs, causal),
            "causal & document": partial(ma.attention, *inputs, causal & document(ids)),
        }
        peaks = {}
        for name, step in steps.items():
            for _ in range(2):
                for tensor in inputs:
                    tensor.grad = None
                torch.cuda.synchronize()
                torch.cuda.reset_peak_memory_stats()
                before = torch.cuda.memory_allocated()
                out = step()
                out.backward(torch.ones_like(out))
                del out
                peaks[name] = torch.cuda.max_memory_allocated() - before
            ratio = peaks[name] / peaks["FlashAttention-2"]
            print(f"D={dim:<4} {name:20} {peaks[name] / 2**20:8.1f} MiB  {ratio:.3f}")


def first() -> None:
    print("\nfirst: seconds of the first call of a structure; then with new values")
    shape = Shape(1, 8, 8, 4096, 128)
    inputs = made(shape, gradients=True)
    ids, other = documents(4096, 300, DEVICE), documents(4096, 500, DEVICE)
    slopes = torch.rand(8, device=DEVICE)
    pairs = {
        "causal & sliding & document": (
            causal & sliding(700) & document(ids),
            causal & sliding(701) & document(other),
        ),
        "causal & sliding + alibi": (
            causal & sliding(300) + alibi(slopes),
            causal & sliding(200) + alibi(slopes / 2),
        ),
        "causal + softcap": (causal + softcap(20.0), causal + softcap(30.0)),
    }
    before = triton.knobs.cache.dir
    triton.knobs.cache.dir = tempfile.mkdtemp()  # empty: all is compiled
    for name, expressions in pairs.items():
        seconds = []
        for expression in expressions:
            torch.cuda.synchronize()
            started = time.perf_counter()
            out = ma.attention(*inputs, expression)
            torch.cuda.synchronize()
            middle = time.perf_counter()
            out.sum().backward()
            torch.cuda.synchronize()
            seconds += [middle - started, time.perf_counter() - middle]
        print(
            f"{name:30} forward {seconds[0]:.2f} backward {seconds[1]:.2f};"
            f" new values {seconds[2]:.4f} {seconds[3]:.4f}"
        )
    shutil.rmtree(triton.knobs.cache.dir)
    triton.knobs.cache.dir = before


def host() -> None:
    print("\nhost: microseconds of host time of a call, median of 500, the GPU not waited for")
    gc.disable()  # as timeit does: what compilers left behind is not of the call
    shape = Shape(1, 8, 8, 512, 128)
    inputs, leaves = made(shape), made(shape, gradients=True)
    ids = documents(512, 100, DEVICE)
    mask, packed = causal & sliding(100), causal & document(ids)
    case = cases(DEVICE)["D128 causal"]
    peers = contenders(Case(shape, causal, case.mask_mod, sdpa_causal=True), inputs)
    calls = {
        "cached": lambda: ma.attention(*inputs, mask),
        "mask built anew": lambda: ma.attention(*inputs, causal & sliding(100)),
        "documents": lambda: ma.attention(*inputs, packed),
        **{name: peers[name]().run for name in ("FlexAttention", "FlashAttention-2")},
    }
    peers = contenders(Case(shape, causal, case.mask_mod, sdpa_causal=True), leaves)
    for name, expression in {"cached": mask, "documents": packed}.items():
        calls[f"{name}, backward"] = backward_of(partial(ma.attention, *leaves, expression), leaves)
    for name in ("FlexAttention", "FlashAttention-2"):
        calls[f"{name}, backward"] = peers[name]().backward()
    times: dict[str, list[float]] = {name: [] for name in calls}
    for turn in range(11):  # the first is not counted
        for name, call in calls.items():
            torch.cuda.synchronize()
            for _ in range(50):
                started = time.perf_counter()
                call()
                times[name] += [time.perf_counter() - started] if turn else []
    for name, found in times.items():
        print(f"{name:26} {1e6 * statistics.median(found):6.1f} µs")
    gc.enable()


def weights() -> None:
    print("\nweights: TFLOP/s of useful work at 16k, D=128, heads 16")
    shape = Shape(1, 16, 16, 16384, 128)
    inputs = made(shape, gradients=True)
    sink = torch.zeros(16, device=DEVICE)
    for mask_name, mask in {"full": ma.everything, "causal": causal}.items():
        pairs = shape.length**2 if mask_name == "full" else shape.length * (shape.length + 1) / 2
        flops = 4 * shape.heads * shape.dim * pairs
        forwards, backwards = {}, {}
        for name, weight in {
            "softmax": ma.softmax,
            "softmax with sink": ma.softmax_with_sink(sink),
            "sigmoid": ma.sigmoid(),
            "relu": ma.relu,
            "linear": ma.linear,
        }.items():
            forward = partial(ma.attention, *inputs, mask, weight=weight)
            forwards[f"{name} forward"] = forward
            backwards[f"{name} backward"] = backward_of(forward, inputs)
        # One after the other: the backward pass heats the card, and slows what comes after it.
        for name, middle in (medians(forwards) | medians(backwards)).items():
            rate = flops * (2.5 if "backward" in name else 1) / middle / 1e9
            print(f"{mask_name:8} {name:28} {middle:7.3f} ms {rate:5.0f} TFLOP/s")


def passes() -> None:
    print("\npasses: backward time of two kernels over that of one, wherever the one can serve")
    # Batch and heads; those of 512 programs, of 1024, and of more.
    shapes = {
        "1k": (8, 16, 16, 1024), "2k": (8, 16, 16, 2048), "2k 1024": (4, 16, 16, 2048),
        "4k 512": (1, 16, 16, 4096), "4k 1024": (2, 16, 16, 4096), "4k": (4, 16, 16, 4096),
        "8k 512": (1, 8, 8, 8192), "8k 1024": (1, 16, 16, 8192), "8k": (2, 16, 16, 8192),
        "32k 512": (1, 2, 2, 32768), "32k": (1, 16, 16, 32768), "32k grouped": (1, 32, 8, 32768),
    }  # fmt: skip
    found = []
    for dim in (64, 128):
        shape = Shape(*shapes["8k"], dim)
        found += [(f"D{dim} prefix 8k", shape, causal | ma.prefix(2048))]
        found += [(f"D{dim} alibi 8k", shape, causal + alibi(torch.rand(16, device=DEVICE)))]
        for keys in (256, 512, 1024, 2048, 4096):
            found += [(f"D{dim} window {keys} 8k", shape, causal & sliding(keys))]
        for keys in (1024, 2048, 4096):
            sinks = causal & (sliding(keys) | ma.prefix(4))
            found += [(f"D{dim} sinks {keys} 8k", shape, sinks)]
            found += [(f"D{dim} chunks {keys} 8k", shape, causal & ma.chunked(keys))]
        for keys in (1024, 2048, 4096, 8192):
            lengths = [keys] * (shape.length // keys)
            of_lengths = causal & document.from_lengths(lengths, device=DEVICE)
            found += [(f"D{dim} documents {keys} 8k", shape, of_lengths)]
        for name in ("4k", "8k", "32k 512"):
            shape = Shape(*shapes[name], dim)
            diffusion = ma.block_diffusion(shape.length // 2, 64)
            found += [(f"D{dim} block diffusion {name}", shape, diffusion)]
    masks = {"full": ma.everything, "causal": causal}
    found += [
        (f"D{dim} {mask} {name}", Shape(*shape, dim), masks[mask])
        for dim in (64, 128) for mask in masks for name, shape in shapes.items()
    ]  # fmt: skip
    chosen = backend.one_pass_for
    for name, shape, expression in found:
        inputs = made(shape, gradients=True)
        runs = {"backward": backward_of(partial(ma.attention, *inputs, expression), inputs)}
        times = []
        for least in (None, Least(0, 0, 0, 0)):
            backend.one_pass_for = lambda *_, least=least, **__: least
            forget()
            times.append(medians(runs)["backward"])
        print(f"{name:26} {times[0]:.3f} / {times[1]:.3f} ms = {times[0] / times[1]:.2f}")
    backend.one_pass_for = chosen
    forget()


def tiers() -> None:
    print("\ntiers: time of the plain kernels over that of the chosen ones, one after the other")
    names = (
        (backend, "hopper_tile_for"),
        (backend, "hopper_backward_tile_for"),
        (backend, "one_pass_for"),
    )
    chosen = [getattr(*name) for name in names]
    for name, case in cases(DEVICE).items():
        if name.startswith("GQA"):
            continue
        inputs = inputs_of(case, torch.bfloat16, gradients=True)
        run = partial(ma.attention, *inputs, case.expression)
        runs = {"forward": run, "backward": backward_of(run, inputs)}
        best = medians(runs)
        for module, attribute in names:
            setattr(module, attribute, lambda *_, **__: None)
        forget()
        plain = medians(runs)
        for (module, attribute), choice in zip(names, chosen, strict=True):
            setattr(module, attribute, choice)
        forget()
        ratios = "  ".join(f"{kind} {plain[kind] / best[kind]:.3f}" for kind in runs)
        print(f"{name:26} {ratios}")


def groups() -> None:
    print("\ngroups: FlexAttention's time over ours, backward, 32 heads on 8")
    for name in ("causal", "window", "document"):
        case = cases(DEVICE)[f"GQA32k {name}"]
        inputs = inputs_of(case, torch.bfloat16, gradients=True)
        runs = {
            peer: make().backward()
            for peer, make in contenders(case, inputs).items()
            if peer in ("maskalg", "FlexAttention")
        }
        found = medians(runs)
        print(f"{name:10} {found['FlexAttention'] / found['maskalg']:.2f}")


def ours(expression: Expression, *inputs: torch.Tensor) -> torch.Tensor:
    return ma.attention(*inputs, expression)


def projected(attend: Attend, dim: int, *tensors: torch.Tensor) -> torch.Tensor:
    """Attention of `[batch, length, heads * dim]`, as a model's projections are."""
    inputs = [t.unflatten(2, (-1, dim)).transpose(1, 2) for t in tensors]
    return attend(*inputs).transpose(1, 2).flatten(2)


def orders() -> None:
    print("\norders: heads of a token together, and what others take of that time")
    for name in ("D128 causal", "D128 window", "D128 document", "D64 window", "D64 document"):
        case = cases(DEVICE)[name]
        shape, expression = case.shape, case.expression
        dim = shape.dim
        apart = made(shape, gradients=True)
        together = tuple([t.detach().transpose(1, 2).flatten(2).requires_grad_() for t in apart])

        attend = partial(ours, expression)
        forms: dict[str, tuple[Attend, tuple[torch.Tensor, ...]]]
        forms = {"apart": (attend, apart), "together": (partial(projected, attend, dim), together)}
        if case.sdpa_causal:
            peer = partial(F.scaled_dot_product_attention, is_causal=True)
            forms["SDPA"] = (partial(projected, peer, dim), together)
        calls = {n: partial(function, *tensors) for n, (function, tensors) in forms.items()}
        backward = {n: backward_of(call, forms[n][1]) for n, call in calls.items()}
        for which, runs in {"forward": calls, "backward": backward}.items():
            with torch.set_grad_enabled(which == "backward"):
                found = medians(runs)
            ratios = [f"{n} {t / found['together']:.2f}" for n, t in found.items()]
            print(f"{name:14} {which:8} {found['together']:.3f} ms  {'  '.join(ratios)}")


TABLES = {
    f.__name__: f for f in (lengths, memory, first, host, weights, tiers, passes, groups, orders)
}

if __name__ == "__main__":
    unknown = set(sys.argv[1:]) - set(TABLES)
    if unknown:
        sys.exit(f"unknown: {', '.join(unknown)}; there are {', '.join(TABLES)}")
    print(f"{torch.cuda.get_device_name()}, torch {torch.__version__}, bfloat16")
    for table in sys.argv[1:] or list(TABLES):
        TABLES[table]()
