"""The parts into which query heads that share keys are divided, in the kernels of dK and dV."""

import pytest
import torch

pytest.importorskip("triton", reason="needs Triton")

import maskalg as ma
from maskalg import causal, sliding
from maskalg.attention import checked_call
from maskalg.backends.triton.families import backward

WINDOW = causal & sliding(1024)
SINKS = causal & (sliding(1024) | ma.prefix(4))


def prompt(tokens, answers, length):
    cu_seqlens = [0, *range(tokens, tokens + answers * length + 1, length)]
    return ma.shared_prefix.from_cu_seqlens(cu_seqlens, [-1] + [0] * answers)


def parts(mask, heads, kv_heads, q_len, kv_len=None, batch=1):
    query = torch.zeros(1, 1, 1, 128, dtype=torch.bfloat16).expand(batch, heads, q_len, 128)
    key = query[:, :1, :1].expand(batch, kv_heads, kv_len or q_len, 128)
    return backward._parts(checked_call(query, key, key, mask))


@pytest.mark.parametrize(
    "mask, heads, kv_heads, length, wanted",
    [
        # Few columns of tiles, the first of which is twice as long as the mean.
        (causal, 4, 1, 8192, 4),
        (causal, 8, 1, 8192, 4),
        (causal, 8, 1, 16384, 2),
        (causal, 8, 1, 32768, 1),
        (causal, 8, 8, 1024, 1),
        (ma.everything, 8, 1, 1024, 8),
        # Columns of a window are alike, but the first one is met by all queries.
        (WINDOW, 8, 1, 16384, 1),
        (SINKS, 8, 1, 32768, 8),
        (SINKS, 32, 8, 32768, 2),
        (SINKS, 6, 1, 32768, 6),
        # A short prompt is met by the tokens of all answers.
        (prompt(512, 32, 2048), 16, 4, 512 + 32 * 2048, 2),
        (prompt(512, 32, 2048), 8, 1, 512 + 32 * 2048, 8),
        (prompt(512, 32, 2048) & sliding(1024), 8, 1, 512 + 32 * 2048, 1),
        # Where tables decide, the number of columns does.
        (causal & ma.document(torch.arange(16384) // 5000), 8, 1, 16384, 4),
        (causal & ma.document(torch.arange(16384) // 5000), 8, 4, 16384, 1),
    ],
)
def test_parts(mask, heads, kv_heads, length, wanted):
    assert parts(mask, heads, kv_heads, length) == wanted


def test_a_batch_has_more_columns():
    assert [parts(causal, 8, 1, 8192, batch=batch) for batch in (1, 2, 4)] == [4, 2, 1]


@pytest.mark.parametrize(
    "mask, heads, kv_heads, q_len",
    [
        (WINDOW.shift(q=131072 - 2048), 8, 1, 2048),
        (WINDOW.shift(q=131072 - 512), 64, 8, 512),
        (causal, 8, 1, 1024),
    ],
)
def test_few_queries_do_not_pay_for_sums_of_all_keys(mask, heads, kv_heads, q_len):
    assert parts(mask, heads, kv_heads, q_len, 131072) == 1


def test_sums_are_at_most_four_times_as_large_as_queries_where_these_are_large(monkeypatch):
    # A part has 256 numbers of 4 bytes for each key, a query head 128 of 2 bytes.
    assert parts(SINKS, 16, 1, 65536) == 16
    few_queries = (SINKS.shift(q=49152), 16, 1, 16384, 65536)
    assert parts(*few_queries) == 4
    monkeypatch.setattr(backward, "_MOST_OF_SUMS", 1 << 31)
    assert parts(*few_queries) == 8
