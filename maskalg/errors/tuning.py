"""Of `maskalg tune`."""

from __future__ import annotations

from .kinds import BackendError


def tune_needs_gpu() -> BackendError:
    return BackendError(
        "no GPU was found (torch.cuda.is_available() is False), and tiles are measured where they "
        "are used. `maskalg tune --forget` works without one; `maskalg doctor` says what is here."
    )


def tune_needs_triton(problem: object) -> BackendError:
    return BackendError(
        f"Triton does not import ({problem}), and it compiles what is measured: pip install triton "
        "(Linux)."
    )


def no_tile_runs(key: object, why: dict[str, str]) -> BackendError:
    each = "; ".join(f"{tile}: {reason}" for tile, reason in why.items())
    return BackendError(
        f"no tile of the table runs here for {key} ({each}). Leave that out: see --cases, --dim, "
        "--dtype, --forward and --backward."
    )


def tuned_cannot_be_stored(path: object, problem: object) -> BackendError:
    return BackendError(
        f"{path} cannot be written ({problem}), so nothing would be kept. Set XDG_CACHE_HOME to a "
        "folder that can, or look without keeping: --dry-run."
    )
