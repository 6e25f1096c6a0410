"""Claims that functions written for other libraries compute the formula.

Numbers and shapes of tensors are written into such a function, so they are known here. Indices and
entries of tensors are unknown.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from inspect import getclosurevars
from typing import Final

import torch

from ..engine.extents import Lengths
from ..engine.normal_form import Bound, Structure, bound
from ..errors.kinds import MaskalgError, MaskValueError
from ..export.flex_functions import MOST_OF_INT32, flex_function, interval_function
from ..formula import nodes
from ..formula.expression import Expression
from ..formula.meaning import BITWISE
from ..formula.nodes import Node
from ..questions.rows import key_intervals
from ..values.algebra import Mask, Score
from ..views.explore.javascript import JavaScript
from ..views.explore.payload import shown_bias
from . import terms
from .claims import Claim, judged, not_made, unread
from .given import BATCHES, HEADS, Kernel, between, given, pair, size_of
from .meaning import BATCH, HEAD, Q_LEN, SCORE, K, Meaning, NotDefined, Q, rounded
from .meaning import place as place_of
from .reading.javascript import EXACT, read_javascript
from .reading.torch_functions import read_function
from .reading.values import BOOL, FLOAT32, INT32, INT64, Number, Type
from .reals import prove_real
from .solve import Verdict, aligned, prove, settled
from .tables_of_calls import tables_of_call
from .terms import Table, Term
from .walk.tables import extents_of

_ZERO: Final = terms.number(0)
_KERNELS: Final = {
    INT64: Kernel(bits=64, short=False, checked=False),
    INT32: Kernel(bits=64, short=False, checked=False, most=MOST_OF_INT32),
}


def claims_of_export(
    expression: Expression, length: int | None, milliseconds: int
) -> Iterator[Claim]:
    """Every claim about the functions and tables that an expression becomes for other libraries."""
    yield from claims_of_function(expression, milliseconds)
    if isinstance(expression, Score):
        yield from claims_of_function(expression.mask, milliseconds)
    if isinstance(expression, (Mask, Score)):
        try:
            mask = expression if isinstance(expression, Mask) else expression.mask
            yield from claims_of_intervals(mask, length, milliseconds)
        except MaskalgError as problem:
            yield unread("function", "intervals of a call", problem)


def claims_of_function(
    expression: Expression, milliseconds: int, rendered: Callable[[str], str] = str
) -> Iterator[Claim]:
    """Claims that FlexAttention's function of an expression is its formula.

    Args:
        expression: a mask, a bias or a score, with its numbers and tensors.
        milliseconds: time limit of a claim.
        rendered: changes the function's source, for tests of the verifier.
    """
    form = bound(expression)
    structure = form.structure
    own = _Values(form)
    name, wanted = "mask_mod", structure.mask
    if expression.kind != "mask":
        name, wanted = "score_mod", structure.bias
        if structure.mask != nodes.TRUE:
            dropped = nodes.const(-float("inf"))
            wanted = Node("where", "real", (structure.mask, structure.bias, dropped))
    for index, kernel in _KERNELS.items():

        def judge(index: Type = index, kernel: Kernel = kernel) -> Verdict:
            known = [own(term) for term in [*given(structure, own.meaning, kernel), *pair()]]
            function = flex_function(expression, rendered)
            place = [Number(term, index) for term in (BATCH, HEAD, Q, K)]
            arguments = [Number(SCORE, FLOAT32)] * (name == "score_mod") + place
            found = read_function(function, arguments, own.table).term
            return _compared(known, found, own(own.meaning(wanted)), milliseconds)

        text = f"FlexAttention's {name}, indices of {index.bits} bits"
        yield judged("function", text, judge)


def claims_of_page(
    form: Bound, milliseconds: int, rendered: Callable[[str], str] = str
) -> Iterator[Claim]:
    """Claims that the page of `explore` computes the formula for an element.

    Args:
        form: an expression with its tensors. Its numbers are unknown; doubles must hold all
            integers, which `explore` checks when it makes a page, and the page for new numbers.
        milliseconds: time limit of a claim.
        rendered: changes the text of JavaScript, for tests of the verifier.
    """
    structure, values = form.structure, _Values(form)
    meaning, slots = values.meaning, {slot.index: slot for slot in structure.slots}
    known = [*given(structure, meaning, _KERNELS[INT64]), *pair()]
    for formula in (structure.mask, structure.bias):
        # `explore` refuses formulas whose integers may be larger (`payload.py`).
        for part in formula.walk():
            if part.kind == "int" and (part.args or part.op == "read"):
                most = 2**31 - 1 if part.op in BITWISE else EXACT
                known += between(-most, meaning(part), most)
                if part.op in ("add", "mod"):
                    sizes = [size_of(meaning(arg)) for arg in part.args]
                    known += between(0, terms.add(*sizes), EXACT)
    js = JavaScript()
    texts: dict[str, tuple[Node, Callable[[Node], str]]] = {"mask": (structure.mask, js)}
    if structure.bias != nodes.SCORE:
        texts["bias"] = shown_bias(structure.bias), js.number

    def judge(name: str) -> Verdict:
        formula, write = texts[name]
        found = read_javascript(rendered(write(formula)), slots, meaning)
        if found.type != (BOOL if name == "mask" else FLOAT32):
            raise NotDefined(f"a result of type {found.type}")
        return _compared(known, found.term, meaning(formula), milliseconds)

    for name in texts:
        text = f"the page, {name} of an element, where doubles hold its integers"
        yield _made(text, partial(judge, name))


def claims_of_intervals(mask: Mask, length: int | None, milliseconds: int) -> Iterator[Claim]:
    """Claims that the intervals of keys written for FlexAttention and cuDNN are those of the mask.

    For any intervals, FlexAttention's function keeps the keys in the intervals of their query. The
    intervals of one call, of `length` queries and keys or of as many as the tensors have, are
    compared with every pair.
    """
    form = bound(mask)
    extents = extents_of(form, length)
    call = (extents.q_len, extents.kv_len, extents.batch, extents.heads)
    where = f"a call of {extents.q_len} queries and {extents.kv_len} keys"
    kept = mask.to_dense(*call[:2], batch=extents.batch, heads=extents.heads)
    grid = torch.meshgrid(*map(torch.arange, (*call[2:], *call[:2])), indexing="ij")
    read_back = dict(tables_of_call(mask, extents, kept))
    text = "FlexAttention's mask_mod of intervals"
    try:
        intervals = key_intervals(mask, Lengths(*call), None)
        function = interval_function(intervals)
        yield of_intervals(form.structure, intervals, function, text, milliseconds)
        read_back[text] = lambda: function(*grid)
    except MaskValueError as problem:
        yield not_made("function", text, problem)

    def judge(read: Callable[[], torch.Tensor]) -> Verdict:
        wrong = (read() != kept).nonzero()
        if len(wrong):
            return Verdict("refuted", f"batch, head, query, key {wrong[0].tolist()}", 0.0)
        return Verdict("proved", "compared with every pair of the call", 0.0)

    for name, read in read_back.items():
        yield _made(f"{name}, {where}", partial(judge, read))


def of_intervals(
    structure: Structure,
    intervals: torch.Tensor,
    function: Callable[..., torch.Tensor],
    text: str,
    milliseconds: int,
) -> Claim:
    """The claim that a function keeps exactly the keys in the intervals of their query."""
    _, batches, heads, count, queries = intervals.shape
    place = [BATCH if batches > 1 else _ZERO, HEAD if heads > 1 else _ZERO, Q]
    at = place_of(place, list(map(terms.number, (batches, heads, queries))))
    captured = getclosurevars(function).nonlocals
    tables = {
        id(tensor): Table(f"{name} {number}", "int", *INT32.ends)
        for name in ("starts", "ends")
        for number, tensor in enumerate(captured[name])
    }
    wanted = []
    for number in range(count):
        first, end = (
            terms.entry(tables[id(captured[name][number])], at) for name in ("starts", "ends")
        )
        wanted.append((first <= K) & (end > K))
    sizes = zip((BATCHES, HEADS, Q_LEN), (batches, heads, queries), strict=True)
    known = [*given(structure, Meaning({}), _KERNELS[INT32]), *pair()]
    known += [n >= size for size, n in sizes if n > 1 or size is Q_LEN]
    arguments = [Number(term, INT32) for term in (BATCH, HEAD, Q, K)]

    def judge() -> Verdict:
        found = read_function(function, arguments, lambda tensor: tables[id(tensor)]).term
        return _compared(known, found, terms.either(*wanted), milliseconds)

    return judged("function", text, judge)


def _made(text: str, judge: Callable[[], Verdict]) -> Claim:
    """The claim about a function; "not made" if the writer refuses the expression."""
    try:
        return judged("function", text, judge)
    except MaskValueError as problem:
        return not_made("function", text, problem)


def _compared(known: Sequence[Term], found: Term, wanted: Term, milliseconds: int) -> Verdict:
    """Whether a result equals the formula: rounded alike, or else as a function of real numbers."""
    (plain,) = settled(known, [found], milliseconds)
    verdict = prove(known, terms.same(plain, aligned(wanted, plain)), milliseconds)
    if wanted.sort == "real" and verdict.outcome != "proved":
        return prove_real(known, plain, wanted, None, milliseconds=milliseconds)
    return verdict


class _Values:
    """The numbers, sizes and tables of an expression, as terms.

    Attributes:
        meaning: translates its formulas to terms.
    """

    def __init__(self, form: Bound) -> None:
        self._form = form
        self.meaning = Meaning({slot.index: tensor.dtype for slot, tensor in form.tensors()})
        self._known: dict[Term, Term] = {}
        self._tables: dict[int, Table] = {}
        for slot, value in zip(form.structure.slots, form.values, strict=True):
            if isinstance(value, torch.Tensor):
                self._tables[id(value)] = self.meaning.table(slot)
                for axis, size in enumerate(value.shape):
                    self._known[self.meaning.size(slot, axis)] = terms.number(size)
            else:
                number = self.meaning.number(slot)
                real = number.sort == "real"
                self._known[number] = (
                    terms.real(rounded(value)) if real else terms.number(int(value))
                )

    def __call__(self, term: Term) -> Term:
        """A term with these numbers and sizes put in."""
        return terms.replaced(term, self._known.get)

    def table(self, tensor: torch.Tensor) -> Table:
        """The table of a captured tensor."""
        if id(tensor) not in self._tables:
            raise NotDefined("a captured tensor that is none of the expression's")
        return self._tables[id(tensor)]
