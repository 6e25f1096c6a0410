"""Runs of `verify_*.py` over processes, kept in a file of one line of JSON each, to be resumed."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from multiprocessing import get_context
from pathlib import Path
from typing import Any


def results(
    work: Callable[..., dict[str, Any]], jobs: Sequence[Sequence[Any]], processes: int, kept: str
) -> Iterator[dict[str, Any]]:
    """What `work` gives for each job, as it is done; what the file `kept` has is not done again."""
    path = Path(kept) if kept else None
    wanted = {json.dumps(job): job for job in jobs}
    if path is not None and path.exists():
        for line in path.read_text().splitlines():
            job, found = json.loads(line)
            if wanted.pop(json.dumps(job), None) is not None:
                yield found
    with ProcessPoolExecutor(processes, get_context("spawn")) as pool:
        waiting = {pool.submit(work, *job): job for job in wanted.values()}
        for done in as_completed(waiting):
            if path is not None:
                with path.open("a") as file:
                    file.write(json.dumps([waiting[done], done.result()]) + "\n")
            yield done.result()
