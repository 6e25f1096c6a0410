"""Mistakes at lengths, blocks and attention, and what the message says."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch.nn.attention.flex_attention import create_block_mask

import maskalg as ma
from maskalg import (
    attention,
    batch,
    causal,
    dense,
    document,
    errors,
    explain,
    head,
    implies,
    kv_idx,
    nn,
    padding,
    q_idx,
    sigmoid,
    sliding,
    table,
)
from maskalg.attention import ARGUMENTS
from maskalg.operators.inputs import checked_scale
from tests.cases.mistakes import BIAS, FLAGS, FLOATS, IDS, raises, traced

# --- lengths, blocks ------------------------------------------------------------------------------


def test_lengths() -> None:
    for call in (causal.blocks, causal.to_dense):
        raises(ValueError, lambda call=call: call(-1), "q_len must be an integer >= 0, got -1")
        raises(ValueError, lambda call=call: call(4, 2.5), "kv_len must be", "got 2.5")
        raises(ValueError, lambda call=call: call(True), "q_len must be", "got True")
        raises(ValueError, lambda call=call: call(None), "q_len must be", "got None")
        raises(ValueError, lambda call=call: call(4, batch=-2), "batch must be", "got -2")
        raises(ValueError, lambda call=call: call(4, heads="2"), "heads must be", "got '2'")


def test_lengths_of_numpy() -> None:
    four, two = np.int64(4), np.int64(2)
    assert torch.equal(causal.to_dense(four, four), causal.to_dense(4))
    for block in (two, [2, 2], (two, 2)):
        assert torch.equal(
            causal.blocks(four, block=block).labels, causal.blocks(4, block=2).labels
        )
    assert causal.segments(four, block=two).q_len == 4
    assert str(causal.cost(four)) == str(causal.cost(4))
    assert causal.rows_have_a_key(four) and causal.witness(sliding(2), four) == causal.witness(
        sliding(2), 4
    )


@pytest.mark.parametrize("block", [0, -4, 2.5, (4,), (4, 4, 4), (4, 0), "4", None, True])
def test_block_sizes(block: Any) -> None:
    says = "block must be an integer >= 1 or a pair (block_q, block_kv) of them, got "
    raises(ValueError, lambda: causal.blocks(8, block=block), says + repr(block))


def test_tables_that_do_not_fit() -> None:
    says = ("ids of shape [4] has 4 entries along dimension 0", "reads 6", "at least 6 entries")
    raises(ValueError, lambda: document(IDS).to_dense(6), *says)
    raises(ValueError, lambda: document(IDS).blocks(6), *says)
    raises(ValueError, lambda: document(IDS).blocks(2, 6), "(q_len 2, kv_len 6)", "reads 6")
    raises(ValueError, lambda: document(IDS).shift(q=3).blocks(2), "reads 5", "shift less")
    before = "ids would be read at q_idx + q_shift = -2, before its first entry"
    raises(ValueError, lambda: document(IDS).shift(q=-2).blocks(2), before, "shift less far back")
    square = dense(torch.ones(4, 4, dtype=torch.bool))
    raises(ValueError, lambda: square.blocks(4, 5), "dense of shape [4, 4]", "dimension 1")
    lengths = padding(torch.tensor([1, 2, 3]))
    says = ("lengths of shape [3]", "stands for batch, but batch is 2", "Pass 2 entries, or 1")
    raises(ValueError, lambda: lengths.blocks(4, batch=2), *says)
    by_head = dense(torch.ones(3, 4, 4, dtype=torch.bool))
    raises(ValueError, lambda: by_head.blocks(4, heads=2), "stands for head, but head is 2")
    raises(ValueError, lambda: by_head.blocks(4, heads=2), "each batch entry is tensor[:, None].")
    says = "A query is [batch, heads, length, head_dim]."
    wide = torch.zeros(1, 8, 4, 16)
    raises(ValueError, lambda: attention(wide, wide, wide, BIAS), "but head is 8", says)


def test_computed_positions_that_stay_inside_are_read() -> None:
    # q - q % 2 is never negative, though its two terms on their own could reach -1.
    entries = table(IDS, "ids")
    mask = entries[q_idx - q_idx % 2] == entries[kv_idx]
    assert mask.to_dense(4)[0, 0, 3].tolist() == [False, False, True, True]


def test_heads_and_batch_entries_that_nothing_tells() -> None:
    says = ("depends on `head`", "pass heads=")
    raises(ValueError, lambda: (head >= q_idx).blocks(4), *says)
    raises(ValueError, lambda: (head >= q_idx).to_dense(4), *says)
    assert (head >= q_idx).to_dense(4, heads=2).shape[1] == 2
    says = ("depends on `batch`", "pass batch=")
    raises(ValueError, lambda: (batch >= q_idx).blocks(4), *says)
    raises(ValueError, lambda: (batch >= q_idx).rows_have_a_key(4), *says)
    raises(ValueError, lambda: implies(batch >= q_idx, causal, 4), *says)
    assert (batch >= q_idx).to_dense(4, batch=2).shape[0] == 2


# --- attention ------------------------------------------------------------------------------------


def inputs(*shapes: tuple[int, ...], dtype: torch.dtype = torch.float32) -> list[torch.Tensor]:
    return [torch.zeros(shape, dtype=dtype) for shape in shapes]


SHAPES = ((2, 4, 3, 8), (2, 2, 5, 8), (2, 2, 5, 6))
Q, K, V = inputs(*SHAPES)


def call(*tensors: Any, score: Any = None, **options: Any) -> Callable[[], object]:
    given = tensors or (Q, K, V)
    return lambda: attention(*given, score, **{"backend": "reference", **options})


def test_attention_tensors() -> None:
    says = "attention: key must be a torch.Tensor, got list. Write torch.as_tensor(…) of"
    raises(TypeError, call(Q, [1.0], V), says)
    says = "Cumulative lengths go to document.from_cu_seqlens(tensor)."
    raises(ValueError, call(score=ma.document(torch.tensor([0, 2]))), says)
    says = "got Mask. Write attention(query, key, value, mask): it comes fourth."
    raises(TypeError, call(causal, Q, K), says)
    says = "value must have shape [batch, heads, length, head_dim], got [2, 5, 6]"
    raises(ValueError, call(Q, K, V[:, 0]), says, "Write value[None] for one sequence")
    raises(ValueError, call(Q[0, 0], K, V), "Write query[None, None] for one head of one sequence")
    says = "torch.float64, torch.float32", "Write key.to(query.dtype)"
    raises(TypeError, call(Q.double(), K, V), "share one dtype", *says)
    raises(TypeError, call(Q, K.to("meta"), V), "share one device", "cpu, meta, cpu")
    raises(TypeError, call(Q.int(), K.int(), V.int()), "float16, bfloat16, float32", "torch.int32")


ELSEWHERE: dict[str, tuple[object, str]] = {
    "is_causal": (True, "no argument is_causal=True: write attention(query, key, value, causal)."),
    "attn_mask": (FLAGS, "attn_mask: the fourth argument is ma.dense(tensor) for Booleans"),
    "enable_gqa": (True, "enable_gqa=True: leave it out, grouped heads"),
    "mask": (causal, "mask: the mask is the fourth argument"),
    "block_mask": (causal, "ma.mask(block_mask.mask_mod)"),
    "score_mod": (lambda *args: args[0], "ma.score(score_mod)"),
    "window_size": ((-1, 0), "ma.window(left, right) in the mask, None where -1 stood; FlashAtt"),
    "softmax_scale": (0.5, "softmax_scale: write scale=…"),
    "causal": (True, "causal=True: write attention(query, key, value, causal); FlashAttention"),
    "scael": (0.5, "no argument scael: it takes query, key, value, score, scale"),
}


def test_entries_that_int64_does_not_hold() -> None:
    large = torch.tensor([2**63 + 5, 1], dtype=torch.uint64)
    raises(TypeError, lambda: table(large, "t"), "t is a tensor of dtype torch.uint64", "t.long()")
    raises(TypeError, lambda: document(IDS).bind(ids=large), "torch.uint64", "ids.long()")
    raises(TypeError, lambda: table(IDS.to(torch.float8_e5m2), "t"), "Write t.float().")


def test_expressions_without_entries() -> None:
    q = torch.randn(1, 1, 4, 8)
    mask = causal & document(torch.zeros(4, dtype=torch.long, device="meta"))
    raises(ValueError, lambda: attention(q, q, q, mask), "ids lives on meta", "anew on cpu")
    raises(ValueError, lambda: mask.to("cpu"), "lives on meta", "anew on cpu")


def test_formulas_too_deep_for_python() -> None:
    q, mask = torch.randn(1, 1, 4, 8), causal
    for j in range(400):
        mask = ma.where(head == j, sliding(j + 1), mask)
    for name, ask in {
        "attention": lambda: attention(q, q, q, mask),
        "to_dense": lambda: mask.to_dense(4),
        "blocks": lambda: mask.blocks(4),
    }.items():
        raises(ValueError, ask, f"{name}: operations of the formula", "table(kept)[kv_idx]")


def test_transforms_that_do_not_read_entries() -> None:
    class Model(torch.nn.Module):
        def forward(self, q: torch.Tensor) -> Any:
            return attention(q, q, q, causal)

    raises(TypeError, lambda: torch.fx.symbolic_trace(Model()), "query is a Proxy", "torch.export")
    q, lengths = torch.randn(1, 1, 4, 8), torch.tensor([[1, 3], [2, 2]])

    def each(lengths: torch.Tensor) -> Any:
        return attention(q, q, q, causal & document.from_lengths(lengths))

    def change(q: torch.Tensor, lengths: torch.Tensor) -> Any:
        return attention(q, q, q, causal & document.from_lengths(lengths)).sum()

    def tree(cu_seqlens: torch.Tensor) -> Any:
        return attention(q, q, q, ma.shared_prefix.from_cu_seqlens(cu_seqlens, [-1, 0]))

    says = "within torch.vmap", "total="
    raises(ValueError, lambda: torch.vmap(each)(lengths), "document", *says)
    changes = torch.vmap(torch.func.grad(change), in_dims=(None, 0))
    raises(ValueError, lambda: changes(q, lengths), "document", *says)
    starts = torch.tensor([[0, 1, 4], [0, 2, 4]])
    raises(ValueError, lambda: torch.vmap(tree)(starts), "shared_prefix", *says)


@pytest.mark.parametrize("name", ELSEWHERE)
def test_names_of_other_functions(name: str) -> None:
    value, says = ELSEWHERE[name]
    raises(TypeError, call(**{name: value}), f"attention has no argument {name}", says)


def test_explain_answers_as_attention_does() -> None:
    for name, (value, says) in ELSEWHERE.items():
        wrong = {name: value}
        says = says.removeprefix("no argument ")
        raises(TypeError, lambda wrong=wrong: explain(Q, K, V, **wrong), "explain has no", says)
    says = "explain takes query, key", "2 more were given"
    raises(TypeError, lambda: explain(Q, K, V, None, 0.0, True), *says)
    raises(errors.BackendError, lambda: explain(Q, K, V, dropout_p=0.5), "dropout")
    raises(TypeError, lambda: explain([1.0], K, V), "query must be a torch.Tensor, got list")
    assert explain(Q, K, V, causal, return_lse=True, dropout_p=0.0).backend == "cpu"


def test_more_arguments() -> None:
    says = "by position, and 2 more were given", "instead of is_causal=True, write attention(query"
    raises(TypeError, lambda: attention(Q, K, V, None, 0.0, True), *says)
    several = "no argument attn_mask=None: leave it out; is_causal=False: leave it out."
    raises(TypeError, call(attn_mask=None, is_causal=False), several)


def test_what_attention_takes_is_what_is_said() -> None:
    taken = inspect.signature(attention).parameters
    assert tuple(name for name in taken if name not in ("more", "named")) == ARGUMENTS


def test_modules_are_not_made_of_sizes() -> None:
    says = "it takes a score, such as causal", "torch.nn.Linear of your own"
    raises(TypeError, lambda: nn.Attention(64, 8), "ma.nn.Attention(64, 8): ", *says)
    raises(TypeError, lambda: nn.Attention(64), "ma.nn.Attention(64): ", *says)
    raises(TypeError, lambda: nn.Attention(embed_dim=64), "embed_dim=64", *says)


def test_scores_that_are_none() -> None:
    raises(
        TypeError, call(score=traced), "got function. A function of indices", "ma.mask(function)"
    )
    raises(TypeError, call(score=sliding), "sliding was not called: write sliding(window).")
    blocks = create_block_mask(traced, None, None, 8, 8, device="cpu")
    raises(TypeError, call(score=blocks), "got BlockMask", "ma.mask(block_mask.mask_mod)")
    raises(TypeError, call(score=FLAGS), "got Tensor. A Boolean tensor enters as ma.dense(tensor)")
    module = nn.Attention(causal)
    raises(TypeError, lambda: module(Q, K, V, document), "document was not called")


FITS: dict[str, tuple[int, tuple[int, ...], str]] = {
    "batch": (1, (3, 2, 5, 8), "the batch sizes differ (write one"),
    "value heads": (2, (2, 4, 5, 6), "key and value have different numbers of heads"),
    "groups": (0, (2, 3, 3, 8), "3 query heads are no multiple of 2 key-value heads"),
    "no heads": (1, (2, 0, 5, 8), "the key has no heads (write at least one)"),
    "lengths": (2, (2, 2, 4, 6), "key and value have different lengths"),
    "head dimension": (1, (2, 2, 5, 7), "query and key have different head dimensions"),
}


@pytest.mark.parametrize("name", FITS)
def test_attention_shapes_that_do_not_fit(name: str) -> None:
    position, shape, says = FITS[name]
    shapes = [*SHAPES]
    shapes[position] = shape
    got = f"got query {list(shapes[0])}, key {list(shapes[1])}, value {list(shapes[2])}"
    raises(ValueError, call(*inputs(*shapes)), f"attention: {says}", got)


def test_attention_score() -> None:
    raises(TypeError, call(score=3), "a mask, a bias or `mask + bias`, got int")
    raises(TypeError, call(score=IDS > 0), "got Tensor", "ma.dense(tensor)")
    raises(TypeError, call(score=FLOATS), "0 and -inf as ma.dense(tensor == 0)")
    raises(TypeError, call(score=[causal, BIAS]), "got list. Masks are joined by `&`")
    raises(TypeError, call(score="causal"), "got str. Write the expression itself")
    raises(TypeError, call(score=True), "got bool. Write ma.everything")
    raises(TypeError, call(score=q_idx), "got Index.", "`x >= 0`; ma.bias(x) adds it")
    raises(TypeError, call(score=table(IDS)), "got TableExpression", "ma.table(tensor)[kv_idx]")
    raises(TypeError, call(score=lambda b, h, q, k: q >= k), "got function", "ma.mask(function)")
    raises(TypeError, call(score=q_idx), "got Index")


def test_attention_options() -> None:
    raises(TypeError, call(weight=torch.softmax), "weight must be a weight function", "ma.softmax")
    raises(TypeError, call(weight=sigmoid), "sigmoid was not called: write sigmoid(…).")
    raises(ValueError, call(backend="cuda"), "backend='cuda'", "cpu, reference, triton")
    on_meta = [tensor.to("meta") for tensor in (Q, K, V)]
    for backend in (None, "cpu"):
        raises(RuntimeError, call(*on_meta, backend=backend), "no values", "FakeTensorMode")
    raises(ValueError, call(Q[..., :0], K[..., :0], V), "head dimension", "is 0", "[2, 4, 3, 0]")


def test_scale() -> None:
    learned = torch.tensor(0.3, requires_grad=True)
    says = "requires a gradient", "query * scale"
    raises(TypeError, call(scale=learned), "shape [] on cpu", *says)
    raises(TypeError, call(scale=torch.rand(4)), "scale must be a number", "shape [4]", "query * s")
    raises(TypeError, call(scale=torch.tensor(0.3, device="meta")), "on meta", "query * scale")
    for wrong in (True, "1", [1], 1j):
        raises(TypeError, call(scale=wrong), f"scale must be a number, got {wrong!r} of type")
    for wrong in (float("nan"), float("inf"), np.float32("nan"), torch.tensor(float("nan"))):
        raises(ValueError, call(scale=wrong), "scale must be finite, got")
    for scale in (2, np.float32(2), np.float64(2), torch.tensor(2.0), torch.tensor([2.0])):
        assert repr(checked_scale(scale)) == "2.0"


def test_attention_expressions_that_do_not_fit() -> None:
    ids = torch.zeros(5, dtype=torch.int64)
    raises(ValueError, call(score=document(IDS)), "ids of shape [4]", "(q_len 3, kv_len 5) reads 5")
    raises(ValueError, call(score=document(ids.to("meta"))), "ids lives on meta, query on cpu",
           "anew on cpu")  # fmt: skip
    raises(ValueError, call(score=causal + BIAS), "slopes of shape [2]", "head is 4")
    raises(ValueError, call(score=padding(torch.tensor([1, 2, 3]))), "batch is 2")
    rows = document(torch.zeros(3, 5, dtype=torch.int64))
    raises(ValueError, call(score=rows), "ids of shape [3, 5]", "batch is 2")
    # What fits is not checked again, another length is.
    mask = document(ids)
    call(score=mask)()
    longer = inputs((2, 4, 3, 8), (2, 2, 7, 8), (2, 2, 7, 6))
    raises(ValueError, call(*longer, score=mask), "reads 7")


def test_errors_are_builtin_kinds_and_ours() -> None:
    assert issubclass(errors.MaskTypeError, TypeError)
    assert issubclass(errors.MaskValueError, ValueError)
    assert issubclass(errors.BackendError, RuntimeError)
    for kind in (errors.MaskTypeError, errors.MaskValueError, errors.BackendError):
        assert issubclass(kind, errors.MaskalgError)


def test_arguments_that_a_method_does_not_have() -> None:
    """Counts for choices and choices for counts, misspelt names, expressions that are called."""
    counts = "`batch` and `heads` are counts in every call; entry=… and head=… choose"
    raises(TypeError, lambda: causal.show(16, heads=2), "unexpected keyword", counts)
    raises(TypeError, lambda: causal.plot(16, batch=2), counts)
    raises(TypeError, lambda: causal.blocks(16, head=1), "say how many there are", ".labels[entry")
    raises(TypeError, lambda: causal.to_dense(16, entry=1), "say how many there are")
    raises(TypeError, lambda: causal.blocks(16, blok=8), "Did you mean block?")
    raises(TypeError, lambda: causal.to_dense(), "It takes q_len, kv_len=…")
    raises(ValueError, lambda: causal.show(16, entry=2), "is the same for every batch entry")
    raises(ValueError, lambda: causal.show(16, head=1), "is the same for every head")
    raises(TypeError, lambda: causal(), "`causal(…)`: an expression is a value")
    raises(TypeError, lambda: causal[0], "`causal[…]`: an expression has no entries", ".to_dense(")
    raises(TypeError, lambda: causal.__setitem__(0, 1), "`causal[…]`: an expression has no entries")
    raises(TypeError, lambda: len(causal), "`len(causal)`: an expression is a formula", ".to_dense")
    raises(TypeError, lambda: len(ma.q_idx), "`len(q_idx)`: an index expression is a number")
    for call, says in (
        (lambda: ma.sliding(2, 3), "sliding() takes 1 positional argument but 2 were given. It"),
        (lambda: ma.sliding(windw=3), "'windw'. It takes window. Did you mean window?"),
        (lambda: ma.alibi(), "alibi() missing 1 required positional argument: 'slopes'. It takes"),
        (lambda: ma.document(), "document() missing 1 required positional argument: 'ids'. It"),
        (lambda: ma.document.from_lengths(), "document.from_lengths() missing 1 required"),
    ):
        raises(TypeError, call, says)
    raises(
        TypeError, lambda: ma.q_idx[0], "an index expression is a number", "`table(tensor)[q_idx]`"
    )
    raises(TypeError, lambda: ma.mask(causal), "mask")


def test_a_type_error_within_a_method_stays_what_it_is() -> None:
    from maskalg.errors import told

    @told
    def method(self: object, number: int) -> int:
        return number + "text"  # type: ignore[operator]

    with pytest.raises(TypeError, match="unsupported operand"):
        method(None, 3)
    raises(ma.MaskTypeError, lambda: method(None, 3, 4), "It takes number.")


def test_inputs_of_other_kinds() -> None:
    q = torch.randn(1, 2, 8, 8)
    raises(TypeError, lambda: ma.attention(q.to_sparse(), q, q), "sparse_coo", "query.to_dense()")
    raises(TypeError, lambda: ma.attention(q, q.to(torch.int8), q), "* scale", "ma.to_float8")
    raises(TypeError, lambda: ma.attention(q, q.half(), q), "Write key.to(query.dtype), value")
