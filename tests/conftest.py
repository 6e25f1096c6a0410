"""How the tests run: one deterministic hypothesis profile, and GPU tests only where a GPU is."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
import torch
from hypothesis import HealthCheck, settings

from maskalg.proof import stored

pytest_plugins = ["pytester"]

settings.register_profile(
    "maskalg",
    deadline=None,
    derandomize=True,
    max_examples=60,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
settings.load_profile("maskalg")

# Tests count proofs, and break what proves: nothing is read from other processes, nor left to them.
stored.enabled = False


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "gpu: needs a CUDA device")


@pytest.fixture(scope="session")
def compiled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of kernels compiled for GPUs that are not there; workers of a run share it."""
    own = tmp_path_factory.getbasetemp()
    return (own.parent if "PYTEST_XDIST_WORKER" in os.environ else own) / "compiled"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    if torch.cuda.is_available():
        return
    missing = pytest.mark.skip(reason="needs a CUDA device, torch.cuda is not available")
    for item in items:
        if "gpu" in item.keywords:
            item.add_marker(missing)
