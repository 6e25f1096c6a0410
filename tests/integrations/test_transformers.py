"""Models of transformers: the results and gradients of eager attention, from formulas."""

import pytest
import torch

pytest.importorskip("transformers", reason="needs transformers")

from tiny_models import pair, padding, tokens

DECODERS = ("llama", "qwen2", "mistral", "gemma2", "gemma3", "gpt_oss", "llama4")
# float32 sums in another order: each of a few hundred operations on the way rounds by 2**-24.
ROUNDING = 256 * 2.0**-24


def close(found, wanted):
    """Equal up to rounding, relative to the largest entry."""
    assert found.shape == wanted.shape
    return (found - wanted).abs().max() <= ROUNDING * max(1.0, float(wanted.abs().max()))


def outcome(model, kept, inputs):
    """Logits at the tokens that are kept, and gradients of a random combination of them."""
    model.zero_grad()
    logits = model(**inputs).logits[kept]
    generator = torch.Generator().manual_seed(2)
    (logits * torch.randn(logits.shape, generator=generator)).sum().backward()
    return logits.detach(), {n: p.grad for n, p in model.named_parameters() if p.grad is not None}


def same_outcome(name, inputs, kept):
    (logits, gradients), (wanted, wanted_gradients) = (
        outcome(model, kept.bool(), inputs) for model in pair(name)
    )
    assert close(logits, wanted)
    assert gradients.keys() == wanted_gradients.keys()
    for parameter, gradient in gradients.items():
        assert close(gradient, wanted_gradients[parameter]), parameter
    return gradients


@pytest.mark.parametrize("side", ["left", "right"])
@pytest.mark.parametrize("name", [*DECODERS, "modernbert"])
def test_padded_batches(name, side):
    kept = padding(side)
    same_outcome(name, {"input_ids": tokens(), "attention_mask": kept}, kept)


@pytest.mark.parametrize("name", DECODERS)
def test_packed_batches(name):
    """Positions that start again are other documents."""
    positions = torch.cat([torch.arange(n) for n in (4, 6, 3)])[None]
    inputs = {"input_ids": tokens(1), "position_ids": positions, "use_cache": False}
    same_outcome(name, inputs, torch.ones(1, 13))


@pytest.mark.parametrize("side", ["left", "right"])
def test_encoder_decoder(side):
    inputs = {
        "input_ids": tokens(),
        "attention_mask": padding(side),
        "decoder_input_ids": tokens(2, 7),
    }
    gradients = same_outcome("t5", inputs, torch.ones(2, 7))
    for part in ("encoder", "decoder"):
        table = f"{part}.block.0.layer.0.SelfAttention.relative_attention_bias.weight"
        assert gradients[table].abs().max() > 0


# generate() of transformers 5.17 cannot make chunked masks for a static cache, whatever computes.
GENERATE = [
    (name, cache)
    for name in (*DECODERS, "t5")
    for cache in ("dynamic", "static")
    if (name, cache) != ("llama4", "static")
]


@pytest.mark.parametrize(("name", "cache"), GENERATE)
def test_generate(name, cache):
    """Greedy tokens past the window, so that sliding caches slide."""
    found, wanted = (
        model.generate(
            tokens(2, 9),
            attention_mask=padding("left", 2, 9, 3),
            max_new_tokens=8,
            do_sample=False,
            cache_implementation=cache,
            return_dict_in_generate=True,
            output_logits=True,
        )
        for model in pair(name)
    )
    assert (found.sequences == wanted.sequences).all()
    for logits, wanted_logits in zip(found.logits, wanted.logits, strict=True):
        assert close(logits, wanted_logits)


@pytest.mark.parametrize("name", ["llama", "gemma3"])
def test_static_cache_without_padding(name):
    """The offset is a tensor that the cache itself counts up in the middle of a step."""
    import transformers

    logits = []
    for model in pair(name):
        cache = transformers.StaticCache(config=model.config, max_cache_len=16)
        parts = [tokens(1, 12)[:, :7], tokens(1, 12)[:, 7:8], tokens(1, 12)[:, 8:]]
        with torch.no_grad():
            logits.append([model(part, past_key_values=cache).logits for part in parts])
    for found, wanted in zip(*logits, strict=True):
        assert close(found, wanted)
