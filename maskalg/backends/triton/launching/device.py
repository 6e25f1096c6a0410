"""Kernels are launched on the current device, which need not be that of the inputs."""

from __future__ import annotations

import torch


def elsewhere(device: torch.device) -> bool:
    """Whether a GPU is not the current one, as where a model lies on several."""
    return device.type == "cuda" and device.index != torch.cuda.current_device()
