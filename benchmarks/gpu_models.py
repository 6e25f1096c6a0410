"""Models of transformers with our attention and its peers: training on packed rows, and `generate`.

    python benchmarks/gpu_models.py [train] [generate] [--rounds 5] [--new 64] [--small]

    train      tokens a second of a step (forward, loss, backward) of a Llama on a row of packed
               documents, eager and compiled, and seconds of the first two steps
    generate   milliseconds of a new token against a cache that grows, the least and the median: a
               Llama, a Llama whose first entry is padded, and a Mistral with a window of 4096;
               "bound" is 1.15 times the least with attention left out, and the bytes of the kept
               keys and values at 3.5 TB/s

Random weights in bfloat16, 8 layers, 2048 wide, 16 heads on 4 of 128 dimensions. With --small a
tiny model in float32 runs on a CPU. "left out" computes everything but attention. Each contender
has a process of its own: they compile side by side, and are timed in turns.
"""

from __future__ import annotations

import argparse
import multiprocessing
import statistics
import time
from collections.abc import Callable, Mapping
from functools import partial
from itertools import pairwise
from typing import Any, Final, NamedTuple

import torch
from transformers import AttentionInterface, LlamaConfig, MistralConfig, PretrainedConfig
from transformers import AutoModelForCausalLM as Models
from transformers.generation import StoppingCriteria, StoppingCriteriaList
from transformers.masking_utils import AttentionMaskInterface

import maskalg.integrations.transformers  # noqa: F401
from maskalg.bench.cases import documents

LEFT_OUT: Final = "left out"
BYTES_A_SECOND: Final = 3.5e12
WINDOW: Final = 4096


class Sizes(NamedTuple):
    """Sizes of the models and of their inputs."""

    layers: int
    width: int
    heads: int
    kv_heads: int
    vocabulary: int
    row: int
    document: int
    batch: int
    prompt: int
    new: int


LARGE: Final = Sizes(8, 2048, 16, 4, 32000, 16384, 1000, 4, 32768, 64)
SMALL: Final = Sizes(2, 64, 4, 2, 100, 256, 60, 2, 128, 8)


def left_out(module: Any, query: Any, key: Any, value: Any, mask: Any, **_: Any) -> Any:
    """In place of attention: the queries, heads last but one, as attention returns its output."""
    return query.transpose(1, 2).contiguous(), None


AttentionInterface.register(LEFT_OUT, left_out)
AttentionMaskInterface.register(LEFT_OUT, lambda *_, **__: None)


def config(kind: type[PretrainedConfig], sizes: Sizes, **more: Any) -> PretrainedConfig:
    """The configuration of a model of these sizes."""
    return kind(
        vocab_size=sizes.vocabulary,
        hidden_size=sizes.width,
        intermediate_size=sizes.width * 11 // 4,
        num_hidden_layers=sizes.layers,
        num_attention_heads=sizes.heads,
        num_key_value_heads=sizes.kv_heads,
        max_position_embeddings=2 * max(sizes.prompt, sizes.row),
        **more,
    )


def model_of(made: PretrainedConfig, attention: str, device: str) -> Any:
    """A model with the same random weights for each attention."""
    torch.manual_seed(0)
    dtype = torch.bfloat16 if device == "cuda" else torch.float32
    with torch.device(device):
        return Models.from_config(made, dtype=dtype, attn_implementation=attention)


Run = Callable[[], list[float]]
"""Runs a contender once and returns seconds: of a step, or of each token."""

Contender = Callable[[], Run]
"""Makes a contender's model; called in the process that runs it."""


def train(sizes: Sizes, device: str, rounds: int) -> None:
    """Tokens a second of a training step; every model has the loss of the first one."""
    contenders: dict[str, Contender] = {
        f"{attention}, {'compiled' if compiled else 'eager'}": partial(
            training, attention, compiled, sizes, device
        )
        for attention in ("maskalg", "flex_attention", "sdpa")
        for compiled in (False, True)
    }
    print(f"{'train':26} {'tokens a second':>16} {'first two, s':>14}")
    for name, (first, taken) in in_turns(contenders, rounds).items():
        print(f"{name:26} {sizes.row / statistics.median(taken):16,.0f} {sum(first):14.1f}")


def training(attention: str, compiled: bool, sizes: Sizes, device: str) -> Run:
    """A training step; the first run prints its loss."""
    torch.manual_seed(0)
    ids = documents(sizes.row, sizes.document, device).long()
    begins = torch.cat([ids.new_ones(1, dtype=torch.bool), ids[1:] != ids[:-1]])
    place = torch.arange(sizes.row, device=device)
    positions = (place - place.where(begins, 0).cummax(0).values)[None]
    tokens = torch.randint(sizes.vocabulary, (1, sizes.row), device=device)
    model = model_of(config(LlamaConfig, sizes), attention, device)
    step = step_of(model, tokens, positions, compiled)
    losses: list[float] = []

    def run() -> list[float]:
        begin = time.perf_counter()
        loss = step()
        if device == "cuda":
            torch.cuda.synchronize()
        taken = time.perf_counter() - begin
        if not losses:
            losses.append(loss)
            print(
                f"{attention}, {'compiled' if compiled else 'eager'}: loss {loss:.4f}", flush=True
            )
        return [taken]

    return run


def step_of(
    model: Any, tokens: torch.Tensor, positions: torch.Tensor, compiled: bool
) -> Callable[[], float]:
    """A training step without an optimizer, which would take the same time for all."""
    run = torch.compile(model) if compiled else model

    def step() -> float:
        model.zero_grad(set_to_none=True)
        loss = run(tokens, position_ids=positions, labels=tokens, use_cache=False).loss
        loss.backward()
        return float(loss.detach())

    return step


def generate(sizes: Sizes, device: str, rounds: int) -> None:
    """Milliseconds of a new token, with the attentions of a model in turns."""
    columns = (LEFT_OUT, "bound", "maskalg", "sdpa")
    print(f"{'generate, ms a token':26} " + " ".join(f"{name:>15}" for name in columns))
    for name, kind, padded in (
        ("Llama", LlamaConfig, False),
        ("Llama, padded", LlamaConfig, True),
        ("Mistral", MistralConfig, False),
    ):
        contenders: dict[str, Contender] = {
            attention: partial(generating, attention, kind, padded, sizes, device)
            for attention in (LEFT_OUT, "maskalg", "sdpa")
        }
        found = {key: taken for key, (_, taken) in in_turns(contenders, rounds).items()}
        cells = {
            key: f"{1e3 * min(taken):.3f} ({1e3 * statistics.median(taken):.2f})"
            for key, taken in found.items()
        }
        if LEFT_OUT in found:
            kept = min(sizes.prompt, WINDOW) if kind is MistralConfig else sizes.prompt
            numbers = 2 * sizes.layers * sizes.batch * sizes.kv_heads * sizes.width // sizes.heads
            bytes_ = numbers * kept * (2 if device == "cuda" else 4)
            cells["bound"] = f"{1e3 * (1.15 * min(found[LEFT_OUT]) + bytes_ / BYTES_A_SECOND):.3f}"
        print(f"{name:26} " + " ".join(f"{cells.get(key, '-'):>15}" for key in columns), flush=True)


def generating(
    attention: str, kind: type[PretrainedConfig], padded: bool, sizes: Sizes, device: str
) -> Run:
    """`generate` of one model: seconds from a token to the next."""
    torch.manual_seed(0)
    more = {"sliding_window": WINDOW} if kind is MistralConfig else {}
    tokens = torch.randint(sizes.vocabulary, (sizes.batch, sizes.prompt), device=device)
    mask = torch.ones_like(tokens)
    if padded:
        mask[0, : sizes.prompt // 4] = 0
    model = model_of(config(kind, sizes, **more), attention, device)

    def run() -> list[float]:
        clock = Clock(device)
        model.generate(
            tokens,
            attention_mask=mask,
            min_new_tokens=sizes.new,
            max_new_tokens=sizes.new,
            do_sample=False,
            pad_token_id=0,
            stopping_criteria=StoppingCriteriaList([clock]),
        )
        return clock.between()

    return run


def in_turns(
    contenders: Mapping[str, Contender], rounds: int
) -> dict[str, tuple[list[float], list[float]]]:
    """Seconds of each contender's first two runs, and of later ones; without those that fail."""
    context = multiprocessing.get_context("spawn")
    together, turn, results = context.Barrier(len(contenders)), context.Lock(), context.Queue()
    processes = [
        context.Process(target=contend, args=(name, make, rounds, together, turn, results))
        for name, make in contenders.items()
    ]
    for process in processes:
        process.start()
    found = dict(results.get() for _ in processes)
    for process in processes:
        process.join()
    for name in contenders:
        if isinstance(found[name], str):
            print(f"{name}: {found[name]}", flush=True)
    return {name: found[name] for name in contenders if not isinstance(found[name], str)}


def contend(
    name: str, make: Contender, rounds: int, together: Any, turn: Any, results: Any
) -> None:
    """Run a contender; puts its name, and its seconds or why it failed, into `results`."""
    first: list[float] = []
    taken: list[float] = []
    problem = ""
    try:
        run = make()
        first = [*run(), *run()]
    except Exception as error:
        problem = f"{type(error).__name__}: {error}".splitlines()[0][:160]
    together.wait()
    for _ in range(rounds):
        with turn:
            if not problem:
                taken += run()
        together.wait()  # nobody has two turns in a row
    results.put((name, problem or (first, taken)))


class Clock(StoppingCriteria):
    """Notes when each token of a batch was there; never stops."""

    def __init__(self, device: str) -> None:
        self._on_gpu = device == "cuda"
        self._at: list[float] = []

    def __call__(self, input_ids: torch.Tensor, scores: Any, **_: Any) -> torch.Tensor:
        if self._on_gpu:
            torch.cuda.synchronize()
        self._at.append(time.perf_counter())
        return torch.zeros(len(input_ids), dtype=torch.bool, device=input_ids.device)

    def between(self) -> list[float]:
        """Seconds from each token to the next."""
        return [after - before for before, after in pairwise(self._at)]


def main() -> None:
    """Run what is named, or all."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("what", nargs="*", help="train, generate (both)")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--small", action="store_true", help="a tiny model on the CPU")
    parser.add_argument("--new", type=int, help="new tokens of a run of generate")
    options = parser.parse_args()
    sizes, device = (SMALL, "cpu") if options.small else (LARGE, "cuda")
    sizes = sizes._replace(new=options.new or sizes.new)
    for name, bench in (("train", train), ("generate", generate)):
        if name in (options.what or ("train", "generate")):
            bench(sizes, device, options.rounds)


if __name__ == "__main__":
    main()
