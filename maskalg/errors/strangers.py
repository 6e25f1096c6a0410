"""Of values that stand where a mask, a bias or a score should."""

from __future__ import annotations

import inspect
import re

from .kinds import MaskAttributeError, MaskTypeError

FROM_BLOCK_MASK = (
    "ma.mask(block_mask), or where create_block_mask made it as ma.mask(block_mask.mask_mod), "
    "which is a formula"
)


def instead(what: object) -> str:
    """A correction for a value that is no expression, as sentences; empty where none is known.

    Known are None, a BlockMask of FlexAttention, tables that were not read, functions of this
    package that were not called, and other functions.
    """
    if what is None:
        return "For a mask that keeps every pair write `ma.everything`."
    if type(what).__name__ == "BlockMask":
        return f"A BlockMask enters as {FROM_BLOCK_MASK}."
    if type(what).__name__ == "TableExpression":
        return "A table is read at indices first: write ma.table(tensor)[kv_idx]."
    if not callable(what) or type(what).__name__ in ("Mask", "Bias", "Score"):
        return ""
    name = own_name(what)
    if name:
        return f"{name} was not called: write {name}({_required(what)})."
    return "A function of indices enters as ma.mask(function), one of scores as ma.score(function)."


_TENSORS = (
    "A Boolean tensor enters as ma.dense(tensor), numbers that are added as ma.dense_bias(tensor), "
    "0 and -inf as ma.dense(tensor == 0)."
)


def entering(what: object) -> str:
    """A correction for a value given for a mask, a bias or a score, as sentences."""
    if isinstance(what, bool):
        return "Write ma.everything for a mask that keeps every pair, ma.nothing for none."
    if isinstance(what, str):
        return "Write the expression itself, without quotation marks."
    if type(what).__name__ == "Index":
        return "A comparison of it is a mask, `x >= 0`; ma.bias(x) adds it to the scores."
    if isinstance(what, (list, tuple)):
        return f"Masks are joined by `&` or `|`, biases are added by `+`. {_TENSORS}"
    return instead(what) or _TENSORS


def own_name(what: object) -> str:
    """The name of a public function of this package, or of a value such as `document`."""
    function = inspect.isfunction(what)
    home = str(getattr(what if function else type(what), "__module__", ""))
    if not home.startswith("maskalg."):
        return ""
    words = re.findall("[A-Z][a-z]*", type(what).__name__)
    return getattr(what, "__name__", "") if function else "_".join(words).lower()


def _required(what: object) -> str:
    parameters = inspect.signature(what).parameters.values()  # type: ignore[arg-type]
    return ", ".join(p.name for p in parameters if p.default is p.empty) or "…"


def assigned(value: object, name: str, parameter: bool) -> MaskAttributeError:
    write = f"write `other = this.bind({name}=…)`" if parameter else "compose another"
    return MaskAttributeError(f"`{value!r}` never changes: `.{name} = …` is refused; {write}.")


def used_as_bool(what: object) -> MaskTypeError:
    return MaskTypeError(
        f"{what!r} has no truth value: it was used with `and`, `or`, `not`, `if` or a chained "
        "comparison. Write `a & b`, `a | b`, `~a`, and `(x <= q_idx) & (q_idx < y)`."
    )
