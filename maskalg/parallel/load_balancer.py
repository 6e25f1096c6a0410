"""A plan as a load balancer of torch's own context parallelism.

torch's class is private still (`_LoadBalancer`, torch 2.10 to 2.15), so it is imported here only.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import torch
from torch.distributed.tensor.experimental._context_parallel._load_balancer import _LoadBalancer

from ..errors import MaskValueError

if TYPE_CHECKING:
    from .planning import Plan


class PlanBalancer(_LoadBalancer):
    """The token order of a plan; rank r has its r-th part.

    Indices are on `device`, that of the tensors that torch reorders.
    """

    def __init__(self, plan: Plan, device: torch.device | str) -> None:
        self.plan = plan
        self.device = torch.device(device)

    def _generate_indices(self, restore: bool = False) -> torch.Tensor:
        order = self.plan.order()
        return (order.argsort() if restore else order).unsqueeze(0).to(self.device)


def balancer(plan: Plan, device: torch.device | str) -> PlanBalancer:
    """The load balancer of a plan whose ranks hold equally many tokens."""
    counts = [plan.count(rank) for rank in range(plan.ranks)]
    if len(np.unique(counts)) > 1:
        raise MaskValueError(
            "load_balancer: torch gives each rank the same number of tokens, the plan gives them "
            f"{counts}. Pad the sequence to a multiple of chunk * ranks, or plan with a chunk that "
            "divides it."
        )
    return PlanBalancer(plan, device)
