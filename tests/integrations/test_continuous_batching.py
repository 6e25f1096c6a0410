"""Continuous batching of transformers: the tokens of each request alone, with eager attention."""

import copy
import sys
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch

pytest.importorskip("transformers", reason="needs transformers")

import transformers as hf
from tiny_models import ALTERNATING, tiny
from transformers.generation.configuration_utils import CompileConfig

import maskalg as ma
from maskalg.engine import normal_form
from maskalg.engine.pages import Pages
from maskalg.integrations.transformers import (
    admission,
    attend_continuous,
    continuous,
    masks,
    use_mask,
)
from maskalg.proof.proof import proofs_made
from maskalg.tracing import trace

BEFORE_5_24 = tuple(map(int, hf.__version__.split(".")[:2])) < (5, 24)
MASKS_UNREAD = pytest.mark.skipif(
    BEFORE_5_24,
    reason="until 5.24 transformers composes masks in each step that no layer reads",
)
DECODERS = ("llama", "qwen2", "mistral", "gemma2", "gemma3", "gpt_oss")
GREEDY = hf.GenerationConfig(
    max_new_tokens=10, do_sample=False, eos_token_id=-1, pad_token_id=0, output_logits=True,
    return_dict_in_generate=True,
)  # fmt: skip
# Blocks of 4, chunks of 16 tokens and windows of 5: prompts are cut, and rings go round.
SMALL_POOL = {"page_size": 4, "num_blocks": 30, "max_batch_tokens": 16, "return_logprobs": True}


def prompts(lengths=(9, 3, 14, 6, 21)):
    torch.manual_seed(1)
    return [torch.randint(3, 64, (n,)).tolist() for n in lengths]


def alone(model, prompt):
    """Tokens of a request and their log-probabilities."""
    out = model.generate(torch.tensor([prompt]), generation_config=GREEDY)
    tokens = out.sequences[0, len(prompt) :]
    logits = torch.cat(out.logits).log_softmax(-1)
    return tokens.tolist(), logits.gather(1, tokens[:, None])[:, 0]


def batched(model, given, **how):
    """The same of requests in one pool."""
    how = hf.ContinuousBatchingConfig(**{**SMALL_POOL, **how})
    found = model.generate_batch(
        given, generation_config=GREEDY, continuous_batching_config=how, progress_bar=False
    )
    assert not any(out.error for out in found.values())
    in_order = sorted(found.values(), key=lambda out: int(out.request_id.split("_")[-1]))
    return [(out.generated_tokens, torch.tensor(out.logprobs)) for out in in_order]


def check(model, eager, given, **how):
    found = batched(model, given, **how)
    assert len(found) == len(given)
    for (tokens, logprobs), prompt in zip(found, given, strict=True):
        wanted, wanted_logprobs = alone(eager, prompt)
        assert tokens == wanted
        torch.testing.assert_close(logprobs, wanted_logprobs, atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize("name", DECODERS)
def test_tokens_are_those_of_a_request_alone(name):
    """Prompts together, prompts beside steps, chunks of prompts, steps alone."""
    check(tiny(name, "maskalg"), tiny(name, "eager"), prompts())


@pytest.mark.skipif(
    BEFORE_5_24,
    reason="until 5.24 transformers caches other values, for attention of its own too",
)
def test_values_that_a_model_changes_behind_its_cache():
    """Attention reads halves of all cached values, and the cache keeps the values as they were."""
    check(tiny("diffllama", "maskalg"), tiny("diffllama", "eager"), prompts())


@pytest.mark.parametrize("name", ["eager", "sdpa"])
def test_attention_of_transformers_takes_part_as_before(name):
    admission.admit("maskalg")  # the second time, which changes nothing
    switch = hf.ContinuousBatchingManager.switch_to_cb_friendly_attn
    admission.admit("maskalg")
    assert hf.ContinuousBatchingManager.switch_to_cb_friendly_attn is switch
    check(tiny("llama", name), tiny("llama", "eager"), prompts())
    model = tiny("llama", "flex_attention")
    with pytest.raises(ValueError, match="not supported for continuous batching"):
        model.generate_batch(prompts(), generation_config=GREEDY, progress_bar=False)


def test_a_method_that_is_not_there_is_left_out():
    class Manager:
        pass

    admission._wrap(Manager, "switch_to_cb_friendly_attn", admission._unchecked, "maskalg")
    assert not hasattr(Manager, "switch_to_cb_friendly_attn")


def test_blocks_of_a_shared_prefix():
    start = prompts((13,))[0]
    given = [start + end for end in prompts((2, 5, 9))]
    model, eager = tiny("llama", "maskalg"), tiny("llama", "eager")
    check(model, eager, given, max_batch_tokens=32, allow_block_sharing=True)


def test_a_pool_too_small_for_all_requests():
    """Requests wait, or give up their blocks and begin again."""
    model, eager = tiny("gemma3", "maskalg"), tiny("gemma3", "eager")
    check(model, eager, prompts(), num_blocks=14)


@MASKS_UNREAD
def test_compiled():
    """One graph without breaks for windows, sinks and whole layers."""
    how = CompileConfig(backend="eager", fullgraph=True, mode=None, dynamic=True)
    padded = {"q_padding_interval_size": 8, "kv_padding_interval_size": 32}
    model, eager = tiny("gpt_oss", "maskalg"), tiny("gpt_oss", "eager")
    torch._dynamo.reset()
    check(model, eager, prompts(), varlen_compile_config=how, **padded)


def deep(name, implementation):
    """Four layers, two of each kind where a model has two."""
    config = copy.deepcopy(tiny(name, implementation).config)
    config.num_hidden_layers = 4
    if getattr(config, "layer_types", None):
        config.layer_types = ALTERNATING * 2
    return hf.AutoModelForCausalLM.from_config(config, attn_implementation=implementation).eval()


@pytest.fixture
def counted(monkeypatch):
    """How often masks are composed and bound, and pages made."""
    counts = dict.fromkeys(("step", "made", "bound", "pages", "mask"), 0)

    def count(owner, name, key):
        wrapped = getattr(owner, name)

        def counting(*args, **options):
            counts[key] += 1
            return wrapped(*args, **options)

        monkeypatch.setattr(owner, name, counting)

    count(continuous, "_made", "made")
    count(masks, "_built", "mask")
    count(normal_form, "_bound", "bound")
    count(Pages, "__post_init__", "pages")
    return counts


@MASKS_UNREAD
@pytest.mark.parametrize("name, kinds", [("llama", 1), ("gemma2", 2), ("gpt_oss", 2)])
def test_layers_of_a_step_share_their_mask(name, kinds, counted, monkeypatch):
    """Each kind of layer has one mask and one table of pages a step, and nothing is proved anew."""
    model = deep(name, "maskalg")
    batched(model, prompts())
    proofs, structures = proofs_made(), len(normal_form._STRUCTURES)

    def refuse(*args, **options):
        raise AssertionError("a step traced a function")

    def step(module, args, options):
        counted["step"] += 1

    monkeypatch.setattr(trace, "_attempt", refuse)
    model.register_forward_pre_hook(step, with_kwargs=True)
    counted.update(dict.fromkeys(counted, 0))
    batched(model, prompts((8, 4, 15, 5, 20)))
    steps = counted["step"]
    assert steps > 10 and counted["mask"] == 0
    assert counted["made"] == counted["bound"] == kinds * steps
    assert 0 < counted["pages"] <= kinds * steps
    assert proofs_made() == proofs and len(normal_form._STRUCTURES) == structures


@pytest.mark.parametrize("cache", ["dynamic", "static"])
@pytest.mark.parametrize("name, kinds", [("llama", 1), ("gemma2", 2), ("gpt_oss", 2)])
def test_layers_of_generate_share_their_mask(name, kinds, cache, counted):
    """Masks that were traced before have a normal form, but for those with a soft-cap (gemma2) and
    those of a static cache after its first step, whose offset is a tensor."""
    model = deep(name, "maskalg")
    how = {"generation_config": GREEDY, "cache_implementation": cache, "disable_compile": True}
    for _ in range(2):  # the second time, formulas that were traced become normal forms
        model.generate(torch.tensor(prompts((9, 9))), **how)
    proofs = proofs_made()
    counted.update(dict.fromkeys(counted, 0))
    model.generate(torch.tensor(prompts((9, 9))), **how)
    steps = GREEDY.max_new_tokens
    bound = kinds * steps if name == "gemma2" else steps - 1 if cache == "static" else 0
    assert (counted["mask"], counted["bound"]) == (kinds * steps, bound)
    assert proofs_made() == proofs


# --- masks of one's own --------------------------------------------------------------------------


def by_hand(model, mask, ids, count):
    """Tokens of a model that is given the whole dense mask in every step."""
    for _ in range(count):
        dense = mask.to_dense(ids.shape[1])
        added = torch.where(dense, 0.0, torch.finfo(torch.float32).min)
        given = {"full_attention": added, "sliding_attention": added}
        kinds = getattr(model.config, "layer_types", None)
        out = model(ids, attention_mask=given if kinds else added, use_cache=False).logits
        ids = torch.cat([ids, out[:, -1:].argmax(-1)], dim=1)
    return ids


@pytest.mark.parametrize("cache", ["dynamic", "static"])
def test_generate_with_a_mask_of_ones_own(cache):
    mask = ma.causal & (ma.sliding(4) | ma.prefix(2))
    model, eager = tiny("llama", "maskalg"), tiny("llama", "eager")
    ids = torch.tensor(prompts((9, 9)))
    how = {"generation_config": GREEDY, "cache_implementation": cache}
    plain = model.generate(ids, **how).sequences
    with use_mask(model, mask):
        found = model.generate(ids, **how).sequences
        with use_mask(model, ma.causal):
            assert torch.equal(model.generate(ids, **how).sequences, plain)
        assert torch.equal(model.generate(ids, **how).sequences, found)
    assert torch.equal(found, by_hand(eager, mask, ids, GREEDY.max_new_tokens))
    assert torch.equal(model.generate(ids, **how).sequences, plain)
    assert not torch.equal(plain, found)


def test_a_mask_of_ones_own_and_padding():
    """Positions are those of the row; a score has its bias too."""
    model, eager = tiny("llama", "maskalg"), tiny("llama", "eager")
    short = prompts((6,))[0]
    padded = torch.tensor([[0] * 3 + short, prompts((9,))[0]])
    kept = torch.tensor([[0] * 3 + [1] * 6, [1] * 9])
    score = ma.causal & ma.sliding(4)
    with use_mask(model, score):
        found = model.generate(padded, attention_mask=kept, generation_config=GREEDY).sequences
    alone = by_hand(eager, score, torch.tensor([short]), GREEDY.max_new_tokens)
    assert torch.equal(found[0, 9:], alone[0, 6:])


def test_a_mask_of_ones_own_reaches_copies_of_the_configuration():
    """The encoder and the decoder of T5 have one each."""
    model = tiny("t5", "maskalg")
    ids = torch.tensor(prompts((9, 9)))
    plain = model(input_ids=ids, decoder_input_ids=ids).logits
    with use_mask(model, ma.causal & ma.sliding(1)):
        assert not torch.allclose(model(input_ids=ids, decoder_input_ids=ids).logits, plain)
    assert torch.equal(model(input_ids=ids, decoder_input_ids=ids).logits, plain)


def test_blocks_with_masks_of_ones_own_may_end_in_any_order():
    """As those of two threads may."""
    model, ids = tiny("llama", "maskalg"), torch.tensor(prompts((9,)))
    plain = model(ids).logits
    first, second = (use_mask(model, ma.causal & ma.sliding(n)) for n in (2, 3))
    first.__enter__()
    of_first = model(ids).logits
    second.__enter__()
    of_second = model(ids).logits
    first.__exit__(None, None, None)
    assert torch.equal(model(ids).logits, of_second)
    second.__exit__(None, None, None)
    assert torch.equal(model(ids).logits, plain)
    assert not torch.allclose(of_first, of_second) and not masks._OWN


def test_threads_leave_no_mask_of_ones_own():
    model = tiny("llama", "maskalg")

    def entered():
        for _ in range(2000):
            with use_mask(model, ma.causal):
                assert masks.own_mask(model.config) is ma.causal

    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    try:
        with ThreadPoolExecutor(4) as threads:
            for done in [threads.submit(entered) for _ in range(4)]:
                done.result()
    finally:
        sys.setswitchinterval(before)
    assert not masks._OWN


def test_a_mask_of_ones_own_needs_our_attention():
    """In the layers of text: those of images may have another."""
    with (
        pytest.raises(ma.MaskValueError, match=r"attention by 'eager'.*set_attn_implementation"),
        use_mask(tiny("llama", "eager"), ma.causal),
    ):
        pass


def test_a_mask_of_ones_own_needs_all_keys():
    model = tiny("gemma3", "maskalg")
    mask = ma.causal & ma.sliding(8)
    ids = torch.tensor(prompts((9,)))
    with (
        use_mask(model, mask),
        pytest.raises(ma.MaskValueError, match=r"dropped keys 0 to .*Dynam"),
    ):
        model.generate(ids, generation_config=GREEDY)
    with use_mask(model, mask):
        whole = hf.DynamicCache()
        found = model.generate(ids, generation_config=GREEDY, past_key_values=whole).sequences
    wanted = by_hand(tiny("gemma3", "eager"), mask, ids, GREEDY.max_new_tokens)
    assert torch.equal(found, wanted)


# --- what is refused -----------------------------------------------------------------------------


def test_masks_in_continuous_batching_are_refused():
    layer = torch.nn.Module()
    layer.config = tiny("llama", "maskalg").config
    q, lengths = torch.zeros(1, 2, 4, 8), torch.tensor([0, 4])
    how = {"cu_seq_lens_q": lengths, "cu_seq_lens_k": {"full_attention": lengths}}
    with pytest.raises(ma.MaskValueError, match="without its cache"):
        attend_continuous(layer, q, q, q, None, **how)
    model = torch.nn.Module()
    model.config = layer.config
    with use_mask(model, ma.causal), pytest.raises(ma.MaskValueError, match="cuts prompts into"):
        attend_continuous(layer, q, q, q, None, **how)
    with pytest.raises(ma.MaskTypeError, match=r"`mask \+ bias`, got int"), use_mask(model, 3):
        pass
