"""Tiny models of transformers, randomly initialised, in pairs with the same weights."""

import copy
from functools import cache

import torch
import transformers as hf

import maskalg.integrations.transformers

SMALL = {
    "vocab_size": 64,
    "hidden_size": 32,
    "intermediate_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 64,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": None,
}
WINDOW = 5
ALTERNATING = ["sliding_attention", "full_attention"]
EXPERTS = {"num_local_experts": 2, "num_experts_per_tok": 1}


def _configs():
    return {
        "llama": (hf.LlamaForCausalLM, hf.LlamaConfig(**SMALL)),
        "qwen2": (
            hf.Qwen2ForCausalLM,
            hf.Qwen2Config(**{**SMALL, "num_key_value_heads": 1}),
        ),
        "mistral": (
            hf.MistralForCausalLM,
            hf.MistralConfig(**SMALL, sliding_window=WINDOW, head_dim=8),
        ),
        "gemma2": (
            hf.Gemma2ForCausalLM,
            hf.Gemma2Config(
                **SMALL,
                head_dim=8,
                query_pre_attn_scalar=8,
                sliding_window=WINDOW,
                attn_logit_softcapping=2.0,
                layer_types=ALTERNATING,
            ),
        ),
        "gemma3": (
            hf.Gemma3ForCausalLM,
            hf.Gemma3TextConfig(
                **SMALL,
                head_dim=8,
                query_pre_attn_scalar=8,
                sliding_window=WINDOW,
                layer_types=ALTERNATING,
            ),
        ),
        "gpt_oss": (
            hf.GptOssForCausalLM,
            hf.GptOssConfig(
                **SMALL,
                **EXPERTS,
                head_dim=8,
                sliding_window=WINDOW,
                layer_types=ALTERNATING,
            ),
        ),
        "diffllama": (hf.DiffLlamaForCausalLM, hf.DiffLlamaConfig(**SMALL)),
        "llama4": (
            hf.Llama4ForCausalLM,
            hf.Llama4TextConfig(
                **SMALL,
                **EXPERTS,
                head_dim=8,
                intermediate_size_mlp=32,
                attention_chunk_size=WINDOW,
                layer_types=["chunked_attention", "full_attention"],
            ),
        ),
        "modernbert": (
            hf.ModernBertForMaskedLM,
            hf.ModernBertConfig(
                **{key: value for key, value in SMALL.items() if key != "num_key_value_heads"},
                local_attention=2 * WINDOW,
                global_attn_every_n_layers=2,
                cls_token_id=1,
                sep_token_id=2,
            ),
        ),
        "t5": (
            hf.T5ForConditionalGeneration,
            hf.T5Config(
                vocab_size=64,
                d_model=32,
                d_kv=8,
                d_ff=32,
                num_layers=2,
                num_heads=4,
                relative_attention_num_buckets=8,
                relative_attention_max_distance=16,
                dropout_rate=0.0,
                decoder_start_token_id=0,
            ),
        ),
    }


def tiny(name, implementation):
    """A model with this attention; the weights are those of its name."""
    model_class, config = _configs()[name]
    torch.manual_seed(0)
    # Sub-configurations are copied as a model is made, so the name is given then.
    model = model_class._from_config(copy.deepcopy(config), attn_implementation=implementation)
    with torch.no_grad():
        for parameter_name, parameter in model.named_parameters():
            if parameter.ndim > 1:
                torch.nn.init.normal_(parameter, std=0.3)
            elif "sinks" in parameter_name:
                torch.nn.init.normal_(parameter)
    return model.eval()


@cache
def pair(name):
    """A model that computes with maskalg, and one with the same weights that writes masks out."""
    return tiny(name, "maskalg"), tiny(name, "eager")


def tokens(batch=2, length=13):
    torch.manual_seed(1)
    return torch.randint(3, 64, (batch, length))


def padding(side, batch=2, length=13, missing=4):
    kept = torch.ones(batch, length, dtype=torch.long)
    kept[0, :missing] = 0
    return kept if side == "left" else kept.flip(1)


assert maskalg.integrations.transformers.NAME == "maskalg"
