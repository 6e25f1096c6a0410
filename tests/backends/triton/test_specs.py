"""What every kernel's spec says fits the kernel's signature."""

import importlib
import itertools
import pkgutil

import pytest

pytest.importorskip("triton", reason="needs Triton")
from maskalg.backends.triton import families
from maskalg.backends.triton.launching.spec import KernelSpec, role_of, tensor_of
from maskalg.backends.triton.trust import has_gluon


def specs():
    """Every spec of the families of kernels, by the kernel's path and the blocks it describes."""
    found = {}
    for module in pkgutil.iter_modules(families.__path__):
        for value in vars(importlib.import_module(f"{families.__name__}.{module.name}")).values():
            of_sides = value.values() if isinstance(value, dict) else [value]
            for spec in of_sides:
                if isinstance(spec, KernelSpec):
                    found[spec.path.removeprefix("maskalg_kernels."), tuple(spec.blocks)] = spec
    return found


SPECS = specs()


def test_kernels_of_every_family_are_found():
    kernels = {path for path, _ in SPECS}
    assert {"forward.forward", "decode.joined", "entries.backward_entries"} <= kernels
    assert {
        "backward.backward_keys",
        "gradient_sums.turns",
        "float8_values.float8_values",
    } <= kernels
    assert {"ragged.listed", "ragged.ragged", "ragged.ragged_joined"} <= kernels
    assert len(kernels) == 21


@pytest.mark.parametrize("spec", SPECS.values(), ids=[path for path, _ in SPECS])
def test_signature(spec):
    """Roles follow one another, as arguments are passed; blocks are of its tensors."""
    if "hopper" in spec.path and not has_gluon():
        pytest.skip("this Triton is not one the Gluon kernels were tested with")
    names, signature = spec.kernel.arg_names, spec.signature
    roles = [role_of(name) for name in names]
    assert list(dict.fromkeys(roles)) == [
        role for role in ("tensor", "number", "stride", "scalar", "constant") if role in roles
    ]
    changes = sum(one != other for one, other in itertools.pairwise(roles))
    assert changes == len(set(roles)) - 1
    assert len(signature.numbers) + 4 * len(signature.strided) == sum(
        role in ("number", "stride") for role in roles
    )
    assert set(signature.strided) <= set(signature.tensors)
    assert set(spec.blocks) <= set(signature.tensors)
    for block in spec.blocks.values():
        assert {side for side in block if isinstance(side, str)} <= set(signature.constants)
    described = {tensor_of(name) for name in names if name.endswith("_desc")}
    assert described == (set(spec.blocks) if signature.gluon else set())
