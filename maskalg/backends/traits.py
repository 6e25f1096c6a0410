"""Facts about a backend, known without importing it, and its choices for a call."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, TypeAlias


@dataclass(frozen=True)
class Traits:
    """A backend's folder has these as `TRAITS` in its `__init__.py`.

    Attributes:
        device: the type of device for which it is the default; None for a backend that is only used
            by name.
        of_torch: it consists of torch's differentiable operations, so transforms and forward-mode
            derivatives need no operator around it.
        float8: it computes with float8 inputs directly; other backends get dequantised inputs.
        wide: dequantised inputs are float64.
        pages: it reads keys and values in pages directly; other backends get a copy in order.
        where: where and how it runs, for `maskalg doctor`, or a function that says so; None for
            GPU kernels, which `doctor` inspects itself, and for backends that use others.
    """

    device: str | None = None
    of_torch: bool = False
    float8: bool = False
    wide: bool = False
    pages: bool = False
    where: str | Callable[[], str] | None = None


Bounds: TypeAlias = Literal["kernel", "spans", "bits", "host", "none"]
"""The place where runs of tiles are computed: the kernel, by "spans" alone if there are too few
tiles to label; "bits" of pairs once for a mask; or the host once a call. "none": every pair is
computed."""


@dataclass(frozen=True)
class Explained:
    """The choices of a backend for a call, under the names that `maskalg.explain` prints.

    Attributes:
        bounds: how the runs of tiles are computed.
        tables: how many tables of distances are read instead of computing the bias.
        elements: how the mask of a partial tile is looked up, if it is not computed.
    """

    tier: str
    tile: str = ""
    gradients: str = ""
    bounds: Bounds = "host"
    tables: int = 0
    elements: str = ""
    compilations: int = 0
