"""Every mask and score function of the installed package attn-gym, traced, against itself.

    python benchmarks/attn_gym_check.py

For each function: whether the traced formula gives the function's own matrix, whether the labels
of `blocks()` are those of that matrix, how many blocks the proof left to evaluation, the time to
trace, and what the proof says. Exits with an error when a row disagrees.
"""

from __future__ import annotations

import sys
import time

import torch

import maskalg as ma
from maskalg.engine.evaluate import Environment, evaluate
from maskalg.engine.normal_form import bound
from maskalg.testing import oracle
from maskalg.tracing.pointwise import pointwise

BATCH, HEADS, BLOCK = 2, 4, 16


def grid(q_len, kv_len):
    views = [(-1, 1, 1, 1), (1, -1, 1, 1), (1, 1, -1, 1), (1, 1, 1, -1)]
    sizes = (BATCH, HEADS, q_len, kv_len)
    return [torch.arange(n).view(view) for n, view in zip(sizes, views, strict=True)]


def mask_functions():
    """(name, mask_mod, q_len, kv_len)"""
    from attn_gym import masks as g
    from attn_gym.masks import document_mask, vsa
    from torch.nn.attention.flex_attention import and_masks, noop_mask

    torch.manual_seed(0)
    offsets = torch.tensor([0, 11, 40, 70, 96])
    flags = torch.rand(96) > 0.9
    intervals = torch.tensor([[0, 30], [10, 64], [40, 96]])
    parents = [-1, 0, 1, 1, 3, 3, 0]
    ancestors = g.build_tree_ancestor_matrix(parents, device="cpu")
    chosen = torch.stack([torch.randperm(6)[:2] for _ in range(BATCH * HEADS * 6)])
    chosen = chosen.view(BATCH, HEADS, 6, 2)
    sizes = torch.tensor([16, 16, 9, 16, 12, 3])
    natten = g.generate_natten(8, 8, 5, 3)
    yield "noop_mask", noop_mask, 96, 96
    yield "causal_mask", g.causal_mask, 96, 70
    yield "sliding_window", g.generate_sliding_window(20), 96, 96
    yield "prefix_lm", g.generate_prefix_lm_mask(30), 96, 96
    yield "doc (causal)", g.generate_doc_mask_mod(g.causal_mask, offsets), 96, 96
    yield "doc (prefix)", g.generate_doc_mask_mod(g.generate_prefix_lm_mask(5), offsets), 96, 96
    yield "packed causal doc", g.generate_packed_causal_doc_mask_mod(offsets), 96, 96
    yield (
        "shared_prefix",
        g.generate_shared_prefix_mask_mod(offsets, torch.tensor([0, 0, 2, 2])),
        96,
        96,
    )
    yield "dilated", g.generate_dilated_sliding_window(20, 3), 96, 96
    yield "global + sliding", g.generate_global_sliding_window(9, flags), 96, 96
    yield "batchify (causal)", g.batchify_mask_mod(g.causal_mask, 24), 96, 96
    yield "batchify (natten)", g.batchify_mask_mod(natten, 64), 128, 128
    yield "block_diffusion", g.generate_block_diffusion_mask(48, 8), 96, 96
    yield "flamingo", g.generate_vision_cross_attention_mask_mod(intervals, 20), 96, 60
    yield "jetspec tree", g.generate_jetspec_tree_causal_mask_mod(20, ancestors), 7, 27
    yield "jetspec training", g.generate_jetspec_training_mask_mod(20, 8), 64, 84
    yield "natten", natten, 64, 64
    yield "natten & causal", and_masks(natten, g.causal_mask), 64, 64
    yield "tiled natten", g.generate_tiled_natten(8, 8, 5, 3, 4, 2), 64, 64
    yield "morton natten", g.generate_morton_natten(8, 8, 5, 5), 64, 64
    yield "sta 2d", g.generate_sta_mask_mod_2d((8, 8), (4, 6), (2, 2), 10), 74, 74
    yield "sta 3d", g.generate_sta_mask_mod_3d((4, 4, 4), (2, 4, 2), (2, 2, 2), 10), 74, 74
    yield "svg spatial", g.generate_spatial_head_mask_mod(10, 4, 20, 1, False, 8), 90, 90
    yield "svg spatial, sink", g.generate_spatial_head_mask_mod(10, 4, 20, 2, True, 8), 90, 90
    yield "svg temporal", g.generate_temporal_head_mask_mod(10, 4, 20, 2), 90, 90
    yield "vsa", g.generate_vsa_mask_mod(chosen, 16), 96, 96
    yield "vsa, padded", g.generate_vsa_mask_mod(chosen, 16, sizes), 96, 96
    yield "vsa padding", vsa.generate_vsa_padding_mask_mod(sizes, 16), 96, 96
    assert document_mask


def score_functions():
    """(name, score_mod)"""
    import torch.nn.functional as F
    from attn_gym import mods as g

    torch.manual_seed(0)
    n = 32
    adjacency = torch.rand(BATCH, n, n) > 0.8
    adjacency = adjacency | adjacency.mT
    far = g.shortest_path_distances(adjacency, 3)
    types, lengths = g.shortest_path_edge_types(adjacency, torch.randint(0, 5, (BATCH, n, n)), 3)
    rope = torch.randn(BATCH, HEADS, n, 8), torch.randn(BATCH, 1, n, 8)
    yield "alibi", g.generate_alibi_bias(HEADS)
    yield "tanh_softcap", g.generate_tanh_softcap(30)
    yield "tanh_softcap, approximate", g.generate_tanh_softcap(30, approx=True)
    yield "activation (gelu)", g.generate_activation_score_mod()
    yield "activation (relu)", g.generate_activation_score_mod(F.relu)
    yield "activation (silu)", g.generate_activation_score_mod(F.silu)
    yield "graphormer spatial", g.generate_graphormer_spatial_bias(torch.randn(HEADS, 5), far)
    edge = torch.randn(HEADS, 3, 5)
    yield "graphormer edge", g.generate_graphormer_edge_bias(edge, types, lengths)
    yield "sandwich", g.generate_sandwich_bias(HEADS, n)
    yield "mla rope", g.generate_mla_rope_score_mod(*rope, num_heads=HEADS, scale=0.7)


def check_mask(name, function, q_len, kv_len):
    start = time.perf_counter()
    mask = ma.mask(function)
    took = time.perf_counter() - start
    want = pointwise(function, *grid(q_len, kv_len))
    got = mask.to_dense(q_len, kv_len, batch=BATCH, heads=HEADS)
    same = bool((got == want).all())
    found = mask.blocks(q_len, kv_len, block=BLOCK, batch=BATCH, heads=HEADS)
    labels = torch.from_numpy(oracle.labels(want.numpy(), BLOCK, BLOCK))
    sound = bool((found.labels == labels).all())
    proof = "exact" if mask.prove().exact else "open"
    open_tiles = f"{found.evaluated}/{found.labels.numel()}"
    return same and sound, [name, same, sound, open_tiles, proof, f"{took * 1e3:.1f} ms"]


def check_score(name, function):
    start = time.perf_counter()
    bias = ma.score(function)
    took = time.perf_counter() - start
    score = 3 * torch.randn(BATCH, HEADS, 32, 32)
    indices = grid(32, 32)
    want = pointwise(function, score, *indices)
    form = bound(bias)
    names = ("batch", "head", "q_idx", "kv_idx")
    env = Environment(dict(zip(names, indices, strict=True)), form.values, score)
    got = evaluate(form.structure.bias, env).expand_as(score)
    close = torch.allclose(got, want, rtol=1e-5, atol=1e-5)
    return close, [name, close, "", "", "", f"{took * 1e3:.1f} ms"]


def main() -> int:
    try:
        import attn_gym  # noqa: F401
    except ImportError:
        print("attn-gym is not installed: pip install --no-deps attn-gym==0.0.17")
        return 0
    fine = True
    line = "{:28} {:>7} {:>7} {:>10} {:>7} {:>10}"
    print(line.format("function", "matrix", "labels", "evaluated", "proof", "traced in"))
    rows = [(check_mask, case) for case in mask_functions()]
    rows += [(check_score, case) for case in score_functions()]
    for check, case in rows:
        try:
            passed, row = check(*case)
        except Exception as error:  # a row for each function, whatever it does
            passed, row = False, [case[0], type(error).__name__, "", "", "", ""]
            print(f"{case[0]}: {error}", file=sys.stderr)
        fine &= passed
        print(line.format(*[str(cell) for cell in row]))
    return 0 if fine else 1


if __name__ == "__main__":
    sys.exit(main())
