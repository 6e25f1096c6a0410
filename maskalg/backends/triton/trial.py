"""One kernel of a call with a chosen tile, which tuning launches."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import torch
from triton.errors import TritonError

from ...codegen.hooks import hooks_of
from ...engine.extents import Extents
from ...engine.normal_form import Bound
from ...tiles.patterns import as_long, pattern_of
from ...tiles.shapes import HopperBackwardTile, HopperTile, Tile, size_of
from ...tiles.tuned.candidates import table_tiles
from ...tiles.tuned.choices import Configuration, Kernel, Key
from ..call import Call
from ..results import empty_gradients
from .arguments import sinks_of
from .families.backward import fill_gradients, fill_rows
from .families.forward import launch_forward
from .families.rows import BackwardPass, rows_of
from .plan import OfSide, Plan, backward_plan_of, documents_are_long, of_paths, plan_of
from .trust import has_gluon
from .tuned import machine_of

Run = Callable[[], tuple[torch.Tensor, ...]]


def kind_of(form: Bound, extents: Extents, kernel: Kernel, dim: int) -> tuple[str, bool]:
    """Facts that choose a kernel's tile for heads of `dim` dimensions: the pattern of rows, where
    they are long, and whether scores change."""
    gradients = kernel != "forward"
    pattern = pattern_of(form.structure, gradients=gradients)
    if not gradients and documents_are_long(form, extents, dim):
        pattern = as_long(pattern, of_paths(form.structure))
    return pattern, hooks_of(form.structure).biased


class Trial:
    """A call ready for trials of its kernels; choices stored for the device are ignored.

    The call's inputs must suit every tier: contiguous, with softmax weights and a positive scale.
    """

    def __init__(self, call: Call) -> None:
        self._call = call
        self._plan = plan_of(call, tuned=False)
        self._steps = backward_plan_of(call, self._plan, tuned=False)
        self.architecture, _ = machine_of(call.query.device)
        self._backward: BackwardPass | None = None

    def key(self, kernel: Kernel) -> Key:
        """The key by which this kernel's tile is chosen."""
        query, pattern = self._call.query, self._plan.pattern
        if kernel != "forward":
            pattern = self._steps.pattern
        biased = self._plan.hooks.biased
        size = size_of((query.shape[-1], self._call.value.shape[-1]))
        return Key(kernel, size, query.dtype.itemsize, pattern, biased)

    def table(self, kernel: Kernel) -> tuple[Configuration, ...]:
        """The tables' configurations, in the order to try them."""
        tiles = table_tiles(self.architecture, self.key(kernel))
        return tuple(tile for tile in tiles if self.serves(tile))

    def serves(self, tile: Configuration) -> bool:
        """Whether this machine can run the tile's kernels."""
        return isinstance(tile, Tile) or (self.architecture == "sm_90" and has_gluon())

    def run(self, kernel: Kernel, tile: Configuration) -> Run:
        """A function that computes with `tile`: out and lse, or dQ, or dK and dV."""
        return self._forward(tile) if kernel == "forward" else self._gradient(kernel, tile)

    def attempt(self, run: Run) -> tuple[torch.Tensor, ...] | str:
        """The function's result, or the reason of its failure.

        Raises RuntimeError if the device itself has failed.
        """
        query = self._call.query
        # New tensors reuse this memory, so elements that are not written are NaN.
        poison = [torch.full_like(query, float("nan")) for _ in range(2)]
        del poison
        result: tuple[torch.Tensor, ...] | str
        try:
            result = run()
        except (TritonError, RuntimeError) as problem:
            why = next(iter(str(problem).splitlines()), "")
            result = f"{type(problem).__name__}: {why}"
        if query.is_cuda:
            torch.cuda.synchronize(query.device)
        return result

    def _forward(self, tile: Configuration) -> Run:
        plain = (tile,) if isinstance(tile, Tile) else ()
        hopper = tile if isinstance(tile, HopperTile) else None
        plan = replace(self._plan, hopper=hopper, candidates=plain)
        return lambda: self._output(plan)

    def _output(self, plan: Plan) -> tuple[torch.Tensor, torch.Tensor]:
        query = self._call.query
        out = query.new_empty(*query.shape[:-1], self._call.value.shape[-1])
        lse = query.new_empty(query.shape[:-1], dtype=torch.float32)
        launch_forward(self._call, plan, out, lse)
        return out, lse

    def _gradient(self, kernel: Kernel, tile: Configuration) -> Run:
        plain = (tile,) if isinstance(tile, Tile) else ()
        hopper = tile if isinstance(tile, HopperBackwardTile) else None
        # The other kernel has no tile, and is not launched.
        sides = {
            of: OfSide(side.hooks, *((hopper, plain) if of == kernel else (None, ())))
            for of, side in self._steps.sides.items()
        }
        steps = replace(self._steps, sides=sides, one_pass_from=None)
        of = replace(self._backward_pass(), plan=steps)

        def run() -> tuple[torch.Tensor, ...]:
            call = self._call
            dq, dk, dv = results = empty_gradients(call.query, call.key, call.value)
            fill_gradients(of, results)
            return (dq,) if kernel == "queries" else (dk, dv)

        return run

    def _backward_pass(self) -> BackwardPass:
        """The inputs of the backward kernels, from a forward pass with the tables' tile."""
        if self._backward is None:
            call = self._call
            saved = self._output(self._plan)
            torch.manual_seed(1)
            grad_out = torch.randn_like(saved[0])
            rows = rows_of(call, saved, None, sinks_of(call))
            made = BackwardPass(call, self._steps, self._plan.tma, rows, grad_out)
            fill_rows(made)
            self._backward = made
        return self._backward
