"""Of masks in the formats of other libraries."""

from __future__ import annotations

from .kinds import MaskValueError


def written_out(call: str, name: str, wanted: object, found: int) -> MaskValueError:
    fitting = "an integer >= 1" if found == 1 else f"{found}"
    return MaskValueError(
        f"{call}({name}={wanted!r}): the blocks were found for {name}={found}. "
        f"Pass {fitting}, or leave {name} out."
    )
