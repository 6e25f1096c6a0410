"""Of masks in the formats of other libraries."""

from __future__ import annotations

from .kinds import MaskValueError


def written_out(call: str, name: str, wanted: object, found: int) -> MaskValueError:
    if found != 1:
        hint = f"Pass {found}, or leave {name} out."
    elif type(wanted) is int and wanted > 1:
        hint = f"The mask tells others apart: find them with mask.blocks(…, {name}={wanted})."
    else:
        hint = f"Pass an integer >= 1, or leave {name} out."
    return MaskValueError(
        f"{call}({name}={wanted!r}): the blocks were found for {name}={found}. {hint}"
    )
