"""TRL's tree attention: its packing and its loss on trees, against every rollout by itself."""

import os
import random
from types import SimpleNamespace

import pytest
import torch

os.environ.setdefault("TRL_EXPERIMENTAL_SILENCE", "1")
pytest.importorskip("trl", reason="needs trl")

from accelerate import Accelerator
from tiny_models import tiny
from transformers import AttentionInterface
from transformers.masking_utils import AttentionMaskInterface
from trl.experimental.async_grpo import async_grpo_trainer as trainer
from trl.experimental.async_grpo import packing

import maskalg as ma
import maskalg.integrations.trl as ours

ours.register()

ROUNDING = 2.0**-14
MODELS = ("llama", "mistral", "gemma2", "gpt_oss")  # full; windows; both with soft-caps; with sinks


def rollouts(seed=0, groups=2):
    """Samples as TRL's workers give them: groups that share a prompt, some answers that fork."""
    random = torch.Generator().manual_seed(seed)

    def tokens(count):
        return torch.randint(2, 64, (count,), generator=random)

    samples = []
    for group in range(groups):
        prompt, turn = tokens(5 + group), tokens(4)
        for answer in (turn, torch.cat([turn, tokens(6)]), torch.cat([turn, tokens(3)]), tokens(7)):
            ids = torch.cat([prompt, answer])
            trained = torch.arange(len(ids)) >= len(prompt)
            trained[len(prompt) + 1] = False  # such as a result of a tool
            samples.append(
                {
                    "input_ids": ids,
                    "completion_mask": trained.long(),
                    "old_log_probs": -4 - torch.rand(len(ids), generator=random),
                    "advantage": float(torch.randn((), generator=random)),
                    "group_id": group,
                }
            )
    return samples


def batch_of(samples):
    """What TRL's collator makes of one row."""
    row = packing.TreeRow()
    for sample in samples:
        row.add(sample)
    packed = {name: entries[None] for name, entries in row.pack().items()}
    count = torch.tensor([float(packed["token_index"].numel())])
    tokens = packed["input_ids"]
    assert tokens.numel() < sum(len(sample["input_ids"]) for sample in samples)  # some are shared
    rest = {"global_n_forward_tokens": count, "mean_seq_len": count}
    return {**packed, **rest, "attention_mask": torch.ones_like(tokens), "global_n_tokens": count}


def loss_of(model, samples):
    """The loss of TRL's trainer."""
    state = SimpleNamespace(
        aux_loss_enabled=False,
        epsilon_low=0.2,
        epsilon_high=0.28,
        accelerator=Accelerator(cpu=True),
        current_gradient_accumulation_steps=1,
        _metrics={"train": trainer.defaultdict(list)},
        _step_forward_tokens=0.0,
        _step_trained_tokens=0.0,
        _step_seq_len_weighted=0.0,
        _step_samples=0.0,
        _step_forward_s=0.0,
    )
    return trainer.AsyncGRPOTrainer.compute_loss(state, model, batch_of(samples))


def flat_loss(model, samples):
    """The same by hand: each sample by itself, in a model that writes its masks out."""
    total, count = 0.0, 0
    for sample in samples:
        ids = sample["input_ids"]
        logits = model(ids[None], use_cache=False).logits[0, :-1].float()
        found = logits.log_softmax(-1).gather(1, ids[1:, None])[:, 0]
        trained = sample["completion_mask"][1:].bool()
        ratio = (found - sample["old_log_probs"][1:])[trained].exp()
        clipped = ratio.clamp(0.8, 1.28)
        gain = torch.minimum(ratio * sample["advantage"], clipped * sample["advantage"])
        total, count = total - gain.sum(), count + int(trained.sum())
    return total / count


def gradients_of(model, loss):
    model.zero_grad()
    loss.backward()
    return {n: p.grad for n, p in model.named_parameters() if p.grad is not None}


def close(found, wanted):
    return (found - wanted).abs().max() <= ROUNDING * max(1.0, float(wanted.abs().max()))


@pytest.mark.parametrize("name", MODELS)
def test_losses_and_gradients_are_those_of_flat_sequences(name):
    samples = rollouts()
    packing.register_tree_attention()  # as the trainer does when it is built
    model = tiny(name, packing.TREE_ATTENTION)
    trainer.add_fused_lm_head(model, outputs=("log_probs", "entropy"))
    loss = loss_of(model, samples)
    eager = tiny(name, "eager")
    wanted = flat_loss(eager, samples)
    assert close(loss, wanted)
    found, wanted = gradients_of(model, loss), gradients_of(eager, wanted)
    assert found.keys() == wanted.keys()
    for parameter, gradient in found.items():
        assert close(gradient, wanted[parameter]), parameter
    if name == "gpt_oss":
        assert any(found[n].abs().max() > 0 for n in found if n.endswith("sinks"))


def test_the_name_is_ours_also_after_trl_registered_its_own():
    packing.register_tree_attention()
    assert AttentionInterface()[packing.TREE_ATTENTION] is ours.attend
    assert AttentionMaskInterface()[packing.TREE_ATTENTION](batch_size=1) is None


@pytest.mark.parametrize("window", [None, 3])
def test_masks_of_random_trees(window):
    draw = random.Random(0)
    for trial in range(30):
        samples = [
            {
                "input_ids": torch.tensor([draw.randint(0, 2) for _ in range(draw.randint(1, 7))]),
                "completion_mask": torch.zeros(7),
                "group_id": 0,
                "old_log_probs": torch.zeros(7),
                "advantage": 0.0,
            }
            for _ in range(1 + trial % 5)
        ]
        row = packing.TreeRow()
        for sample in samples:
            row.add(sample)
        packed = row.pack()
        tokens = len(packed["input_ids"])
        starts, paths = packed["tree_cu_seqlens_q"], packed["tree_cu_seqlens_k"]
        wanted = torch.zeros(tokens, tokens, dtype=torch.bool)
        for segment in range(len(starts) - 1):
            path = packed["tree_kv_index"][paths[segment] : paths[segment + 1]]
            own = range(int(starts[segment]), int(starts[segment + 1]))
            for query in own:
                seen = path[: len(path) - (own.stop - 1 - query)]
                wanted[query, seen if window is None else seen[-window:]] = True
        given = (packed["tree_kv_index"], starts, paths)
        mask = ours.tree_mask(*given, tokens, window)
        assert torch.equal(mask.to_dense(tokens)[0, 0], wanted)
        assert window is not None or torch.equal(wanted.sum(1) - 1, packed["position_ids"])


def test_a_forward_pass_makes_its_mask_once(monkeypatch):
    made = []
    original = ours.tree_mask
    monkeypatch.setattr(ours, "tree_mask", lambda *a: made.append(a) or original(*a))
    model = tiny("gemma2", packing.TREE_ATTENTION)
    trainer.add_fused_lm_head(model, outputs=("log_probs", "entropy"))
    loss_of(model, rollouts(1))
    assert len(made) == 2  # with the window of some layers, and without


def test_what_is_refused():
    batch = batch_of(rollouts())
    tree = {n: batch[n][0] for n in ("tree_kv_index", "tree_cu_seqlens_q", "tree_cu_seqlens_k")}
    tree |= {"tree_max_seqlen_q": 9, "tree_max_seqlen_k": 9}
    x = torch.randn(1, 2, batch["input_ids"].numel(), 8)
    module = torch.nn.Module()
    with pytest.raises(ma.BackendError, match="dropout"):
        ours.attend(module, x, x, x, None, **tree, dropout=0.1)
    with pytest.raises(TypeError, match="novelty"):
        ours.attend(module, x, x, x, None, **tree, novelty=3)


def test_another_trl(monkeypatch):
    monkeypatch.delattr(packing, "tree_attention")
    with pytest.raises(ImportError, match="has no tree_attention"):
        ours.register()
