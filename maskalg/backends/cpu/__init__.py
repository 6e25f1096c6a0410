"""The CPU backend."""

import os

from ..traits import Traits


def where() -> str:
    """How this CPU computes: by kernels if there is a C++ compiler, else by torch's operations."""
    from .native.compile import compiler

    found = compiler()
    if os.environ.get("MASKALG_NATIVE") == "0":
        return "on any machine, by torch's operations, as MASKALG_NATIVE=0 asks for"
    if found is None:
        return (
            "on any machine, by torch's operations, which is slower: for compiled kernels install "
            "a C++ compiler (g++ or clang++) or name one in CXX"
        )
    return f"on any machine, by kernels that {found} compiles"


TRAITS = Traits(device="cpu", where=where)
