"""Models of transformers: the results and gradients of eager attention, from formulas."""

import copy
import re

import pytest
import torch

pytest.importorskip("transformers", reason="needs transformers")

import transformers as hf
from tiny_models import SMALL, padding, pair, tokens
from torch._dynamo.testing import CompileCounterWithBackend
from torch.utils._python_dispatch import TorchDispatchMode

import maskalg as ma
from maskalg.engine import normal_form
from maskalg.formula.derived import documents_in
from maskalg.integrations.transformers import attend, layers, make_mask, model_mask
from maskalg.schedule.tile_runs import FULL

DECODERS = ("llama", "qwen2", "mistral", "gemma2", "gemma3", "gpt_oss", "llama4")
# float32 sums in another order: each of a few hundred operations on the way rounds by 2**-24.
ROUNDING = 256 * 2.0**-24


def close(found, wanted):
    """Equal up to rounding, relative to the largest entry."""
    assert found.shape == wanted.shape
    found, wanted = found.detach(), wanted.detach()
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


def test_a_loss_reads_the_last_token_of_left_padding():
    """It predicts the first token of its row, unless the label of that is -100."""
    kept = padding("left")
    inputs = {"input_ids": tokens(), "attention_mask": kept}
    labels = tokens().masked_fill(kept == 0, -100)
    found, wanted = (model(**inputs, labels=labels).loss for model in pair("llama"))
    assert not close(found, wanted)
    labels[torch.arange(2), kept.argmax(1)] = -100
    found, wanted = (model(**inputs, labels=labels).loss for model in pair("llama"))
    assert close(found, wanted)


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


@pytest.mark.parametrize("kind", ["causal", "sliding_window_causal", "chunked_causal"])
def test_masks_of_packed_rows_are_proved_as_those_of_one_document(kind):
    """Chunks count from the start of each document; all else from places in the row."""
    from transformers import masking_utils

    model = pair({"chunked_causal": "llama4"}.get(kind, "mistral"))
    rows = [torch.cat([torch.arange(n) for n in lengths]) for lengths in ((7, 12, 4), (23,))]
    make = getattr(masking_utils, f"create_{kind}_mask")
    given = torch.zeros(2, 23, 32), None, None, torch.stack(rows)
    built, written = (make(each.config, *given) for each in model)
    assert (built.score.to_dense(23, 23, batch=2) == (written == 0)).all()
    if kind != "chunked_causal":
        assert built.score.prove().exact
        assert "position_ids" not in built.score.parameters


def test_masks_of_packed_rows_without_a_function_of_transformers(monkeypatch):
    from transformers import masking_utils

    from maskalg.integrations.transformers import packed

    documents = masking_utils.packed_sequence_mask_function(torch.tensor([[0, 0, 1]]))
    both = masking_utils.and_masks(documents, masking_utils.causal_mask_function)
    with monkeypatch.context() as patched:
        patched.delattr(masking_utils, "or_masks")
        packed._known.cache_clear()
        assert packed.by_place(both) is both
    packed._known.cache_clear()


# generate() before 5.23 cannot make chunked masks for a static cache, whatever computes.
CHUNKED = tuple(map(int, hf.__version__.split(".")[:2])) >= (5, 23)
GENERATE = [
    (name, cache)
    for name in (*DECODERS, "t5")
    for cache in ("dynamic", "static")
    if CHUNKED or (name, cache) != ("llama4", "static")
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


def test_generate_compiles_the_steps_of_a_static_cache():
    """As it does on a GPU: windows and sinks, in graphs without breaks."""
    from torch._dynamo.utils import counters
    from transformers.generation.configuration_utils import CompileConfig

    how = CompileConfig(backend="eager", fullgraph=True, mode=None)
    how._compile_all_devices = True
    given = {"attention_mask": padding("left", 2, 9, 3), "max_new_tokens": 8, "do_sample": False}
    model, eager = pair("gpt_oss")
    torch._dynamo.reset()
    counters.clear()
    found = model.generate(tokens(2, 9), **given, cache_implementation="static", compile_config=how)
    assert 0 < counters["stats"]["unique_graphs"] <= 2
    assert torch.equal(found, eager.generate(tokens(2, 9), **given))


@pytest.mark.parametrize("name", ["llama", "gemma3", "llama4"])
def test_static_cache_without_padding(name):
    """The offset is a tensor that the cache itself counts up in the middle of a step."""
    logits = []
    for model in pair(name):
        cache = hf.StaticCache(config=model.config, max_cache_len=16)
        parts = [tokens(1, 12)[:, :7], tokens(1, 12)[:, 7:8], tokens(1, 12)[:, 8:]]
        with torch.no_grad():
            logits.append([model(part, past_key_values=cache).logits for part in parts])
    for found, wanted in zip(*logits, strict=True):
        assert close(found, wanted)


# --- masks ---------------------------------------------------------------------------------------


def composed():
    """Functions as transformers composes them, and one that a user adds."""
    from transformers import masking_utils as utils

    ids = torch.tensor([[0] * 5 + [1] * 6 + [2] * 5, [0] * 9 + [1] * 7])
    images = torch.tensor([[-1] * 3 + [0] * 4 + [-1] * 2 + [1] * 7, [-1] * 16])
    padded = torch.tensor([3, 0])

    def every_third(b, h, q, k):
        return (q - k) % 3 == 0

    return {
        "causal": utils.causal_mask_function,
        "bidirectional": utils.bidirectional_mask_function,
        "sliding": utils.sliding_window_causal_mask_function(4),
        "sliding both ways": utils.sliding_window_bidirectional_mask_function(4),
        "chunked": utils.chunked_causal_mask_function(4, padded),
        "packed": utils.and_masks(
            utils.sliding_window_causal_mask_function(4), utils.packed_sequence_mask_function(ids)
        ),
        "images": utils.or_masks(utils.causal_mask_function, utils.blockwise_overlay(images)),
        "own": utils.or_masks(utils.sliding_window_causal_mask_function(3), every_third),
    }


@pytest.mark.parametrize("name", list(composed()))
def test_composed_functions_become_formulas(name):
    """The matrix that transformers writes out, from a formula with an exact proof."""
    from transformers.masking_utils import sdpa_mask

    kept = padding("left", 2, 16, 3).bool()
    sizes = {"batch_size": 2, "mask_function": composed()[name], "attention_mask": kept}
    for q, k in (
        (slice(0, 16), slice(0, 16)),
        (slice(7, 9), slice(2, 14)),
        (slice(9, 10), slice(0, 16)),
    ):
        lengths = {"q_length": q.stop - q.start, "kv_length": k.stop - k.start}
        given = {**sizes, **lengths, "q_offset": q.start, "kv_offset": k.start}
        built = make_mask(**given)
        wanted = sdpa_mask(**given, allow_is_causal_skip=False)
        assert built.shape == tuple(wanted.shape) == (2, 1, *lengths.values())
        assert (built.score.to_dense(*lengths.values(), batch=2) == wanted).all()
        moved = make_mask(**{**given, "q_offset": torch.tensor(q.start)})
        assert (moved.score.to_dense(*lengths.values(), batch=2) == wanted).all()
        assert built.score.prove().exact
        assert not any(node.op == "opaque" for node in built.score.mask_node.walk())


def packed_step(model, lengths):
    positions = torch.cat([torch.arange(n) for n in lengths])[None]
    ids = tokens(1, sum(lengths))
    model.zero_grad()
    model(input_ids=ids, position_ids=positions, use_cache=False, labels=ids).loss.backward()


@pytest.mark.parametrize("name", ["llama", "gemma3"])
def test_a_new_step_traces_and_proves_nothing(name, monkeypatch):
    """Documents of other lengths, in a row of another length."""
    from transformers import masking_utils

    import maskalg.engine.dense
    from maskalg.proof.proof import proofs_made
    from maskalg.tracing import trace

    model = pair(name)[0]
    packed_step(model, (4, 6, 3))
    proofs, structures = proofs_made(), len(normal_form._STRUCTURES)

    def refuse(*args, **options):
        raise AssertionError("the second step repeats work of the first")

    monkeypatch.setattr(trace, "_attempt", refuse)
    monkeypatch.setattr(maskalg.engine.dense, "to_dense", refuse)
    monkeypatch.setattr(masking_utils, "sdpa_mask", refuse)
    packed_step(model, (7, 2, 5, 1))
    assert proofs_made() == proofs and len(normal_form._STRUCTURES) == structures


class Reads(TorchDispatchMode):
    """Refuses to read a value back from the device."""

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        assert function is not torch.ops.aten._local_scalar_dense.default
        return function(*args, **(kwargs or {}))


@pytest.mark.parametrize("name", list(composed()))
def test_a_new_step_reads_nothing_from_the_device(name):
    kept = padding("left", 2, 16, 3)
    for _ in range(2):
        function, offset = composed()[name], torch.tensor(2)
        with Reads():
            make_mask(2, 14, 16, offset, 0, mask_function=function, attention_mask=kept)


def test_errors_are_those_of_the_function_of_the_model():
    def chosen(b, h, q_idx, kv_idx):
        return q_idx >= undefined  # noqa: F821

    def three(b, q_idx, kv_idx):
        return q_idx >= kv_idx

    kept = torch.ones(1, 8)
    for function, told in (
        (chosen, "^chosen could not be traced: NameError"),
        (three, r"three takes \(b, q_idx, kv_idx\)"),
        (lambda b, h, q_idx, kv_idx: q_idx + 0.5, "returns a value of kind real"),
    ):
        for _ in range(2):
            with pytest.raises(ma.MaskTypeError, match=told):
                make_mask(1, 4, 8, 4, 1, mask_function=function, attention_mask=kept)
    for _ in range(3):
        make_mask(1, 4, 8, 3, attention_mask=kept)
        with pytest.raises(ma.MaskTypeError, match=r"shift\(q=…\)"):
            make_mask(1, 4, 8, 3.0, attention_mask=kept)


def test_functions_that_are_traced_in_each_step():
    class Window:
        width = 3

        def __call__(self, b, h, q_idx, kv_idx):
            return (q_idx >= kv_idx) & (q_idx - kv_idx < self.width)

    kept = padding("left", 2, 8, 3)
    for width in (3, 5, 2):
        Window.width = width
        mask = make_mask(2, 4, 8, 4, mask_function=Window(), attention_mask=kept).score
        wanted = (ma.causal & ma.sliding(width)).shift(q=4) & ma.padding.from_mask(kept)
        assert torch.equal(mask.to_dense(4, 8, batch=2), wanted.to_dense(4, 8, batch=2))


def test_layers_share_one_mask(monkeypatch):
    from transformers import AttentionInterface, AttentionMaskInterface

    built, received = [], []

    def counting(**options):
        built.append(make_mask(**options))
        return built[-1]

    def receiving(module, query, key, value, attention_mask, **options):
        received.append(attention_mask)
        return attend(module, query, key, value, attention_mask, **options)

    monkeypatch.setitem(AttentionMaskInterface._global_mapping, "maskalg", counting)
    monkeypatch.setitem(AttentionInterface._global_mapping, "maskalg", receiving)
    pair("llama")[0](tokens())
    assert len(built) == 1 and len(received) == 2
    assert all(mask is built[0] for mask in received)


# --- masks of one's own --------------------------------------------------------------------------


@pytest.mark.parametrize("kind", [torch.bool, torch.float32])
def test_masks_written_out(kind):
    kept = torch.rand(2, 1, 13, 13, generator=torch.Generator().manual_seed(3)) > 0.4
    kept |= torch.eye(13, dtype=torch.bool)
    added = torch.where(kept, 0.25 * torch.rand(kept.shape), torch.finfo(torch.float32).min)
    given = kept if kind == torch.bool else added
    model, eager = pair("llama")
    found = model(tokens(), attention_mask=given).logits
    if kind == torch.bool:
        added = torch.where(kept, 0.0, torch.finfo(torch.float32).min)
    assert close(found, eager(tokens(), attention_mask=added).logits)


@pytest.mark.parametrize("lowest", [torch.finfo(torch.float32).min, -float("inf")])
def test_a_row_masked_with_the_lowest_number_keeps_nothing(lowest):
    mask = torch.zeros(1, 1, 4, 4)
    mask[..., 1, :] = lowest
    out, _ = call(layer(), mask)
    assert (out[:, 1] == 0).all() and (out[:, 0] != 0).all()


def test_an_expression_as_the_mask_of_a_model():
    mask = ma.causal & (ma.sliding(3) | ma.prefix(2))
    model, eager = pair("llama")
    found = model(tokens(), attention_mask=model_mask(mask, 2, 13)).logits
    added = torch.where(mask.to_dense(13), 0.0, torch.finfo(torch.float32).min)
    assert close(found, eager(tokens(), attention_mask=added).logits)
    biased = mask + ma.alibi(torch.tensor([0.5, 0.25, 0.125, 0.0625]))
    assert not close(found, model(tokens(), attention_mask=model_mask(biased, 2, 13)).logits)


def test_a_mask_for_each_kind_of_layer():
    model, eager = pair("gemma3")
    masks = {"full_attention": ma.causal, "sliding_attention": ma.causal & ma.sliding(5)}
    given = {layer: model_mask(mask, 2, 13) for layer, mask in masks.items()}
    assert close(model(tokens(), attention_mask=given).logits, eager(tokens()).logits)


def built(model_class, config, implementation):
    """A model with weights that tell the layers apart."""
    torch.manual_seed(0)
    model = model_class._from_config(copy.deepcopy(config), attn_implementation=implementation)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.2 * torch.randn(parameter.shape))
    return model.eval()


VISION = {
    "hidden_size": 32,
    "intermediate_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "patch_size": 8,
}


@pytest.mark.parametrize("missing", [0, 4])
@pytest.mark.parametrize("shared", [True, False])
def test_a_model_adds_its_bias_to_the_mask(shared, missing):
    """As BEiT does; the bias becomes one of the formula, and its table receives a gradient."""
    kind = "use_shared_relative_position_bias" if shared else "use_relative_position_bias"
    config = hf.BeitConfig(**VISION, image_size=32, **{kind: True})
    pixels = torch.randn(2, 3, 32, 32, generator=torch.Generator().manual_seed(3))
    inputs = {"pixel_values": pixels, "attention_mask": padding("right", 2, 17, missing)}
    found = []
    for implementation in ("maskalg", "eager"):
        model = built(hf.BeitModel, config, implementation)
        out = model(**inputs).last_hidden_state[inputs["attention_mask"].bool()]
        (out * torch.randn(out.shape, generator=torch.Generator().manual_seed(2))).sum().backward()
        table = next(p for n, p in model.named_parameters() if "position_bias_table" in n)
        found.append((out, table.grad))
    for ours, wanted in zip(*found, strict=True):
        assert wanted.abs().max() > 0 and close(ours, wanted)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_a_mask_of_one_query_is_written_out(dtype):
    """SigLIP 2 repeats that of its pooling head, which is not attention of transformers."""
    config = hf.Siglip2VisionConfig(**VISION, num_patches=16)
    inputs = {
        "pixel_values": torch.randn(2, 16, 192, generator=torch.Generator().manual_seed(3)),
        "pixel_attention_mask": padding("right", 2, 16),
        "spatial_shapes": torch.tensor([[3, 4], [4, 4]]),
    }
    inputs["pixel_values"] = inputs["pixel_values"].to(dtype)
    found, wanted = (
        built(hf.Siglip2VisionModel, config, implementation).to(dtype)(**inputs).pooler_output
        for implementation in ("maskalg", "eager")
    )
    assert close(found, wanted)
    mask = make_mask(2, 1, 13, attention_mask=padding("left"), q_offset=12, dtype=dtype)
    lowest = torch.finfo(dtype).min
    assert (mask[:, 0, 0] == (1 - padding("left")).to(dtype) * lowest).all()
    assert mask.dtype == dtype
    biased = model_mask(ma.everything + ma.dense_bias(torch.ones(1, 4)), 2, 1, 4)
    assert (biased.reshape(2, 4) == 1).all()


def test_a_mask_is_written_out_where_and_as_transformers_wants_it():
    """Masks without tensors, too; nothing can be read on this device."""
    for mask in (make_mask(2, 1, 6, 5, device="meta"), make_mask(2, 1, 6, 5).to("meta")):
        assert mask[:, 0].device.type == "meta" and mask.for_queries(3).written == mask.written
    one = model_mask(ma.causal, 1, 1, 4)
    for found in (one.to("cpu", torch.float16), one.to(dtype=torch.float16)):
        assert isinstance(found, torch.Tensor) and found.dtype == torch.float16


def test_a_bias_is_added_in_a_whole_graph():
    mask, q = model_mask(ma.causal, 1, 4), torch.randn(1, 2, 4, 8)

    def add(q, bias):
        return attend(layer(), q, q, q, bias + mask)[0] + attend(layer(), q, q, q, mask + bias)[0]

    bias = torch.randn(2, 4, 4)
    torch._dynamo.reset()
    found = torch.compile(add, fullgraph=True, backend="aot_eager")(q, bias)
    assert close(found, add(q, bias))
    assert close(found, 2 * ma.attention(q, q, q, ma.causal + ma.dense_bias(bias)).transpose(1, 2))


def test_a_mask_of_one_query_is_broadcast():
    """As BridgeTower and LightGlue make it, for all queries of an encoder."""
    from transformers.masking_utils import bidirectional_mask_function

    kept = padding("left", 1, 4, 1)
    mask = make_mask(1, 1, 4, mask_function=bidirectional_mask_function, attention_mask=kept)
    whole = make_mask(1, 4, 4, mask_function=bidirectional_mask_function, attention_mask=kept)
    q = torch.randn(1, 2, 4, 8)
    found, wanted = (attend(layer(), q, q, q, each)[0] for each in (mask, whole))
    assert close(found, wanted)
    assert mask.for_queries(4) is mask.for_queries(4) and mask.for_queries(1) is mask


def test_padding_by_bounds():
    """Real tokens that lie together are found by two bounds, others in the attention mask."""
    drawn = torch.rand(120, 1, 9, generator=torch.Generator().manual_seed(0)) < 0.6
    drawn[:40, :, :4], drawn[40:80, :, 5:] = False, False
    left = torch.arange(9) >= torch.arange(10)[:, None, None]
    for kept in (*drawn, *left, *left.flip(-1), left[3:5, 0]):
        mask = make_mask(len(kept), 9, 9, attention_mask=kept).score
        wanted = torch.ones(9, 9).tril().bool() & kept[:, None]
        assert (mask.to_dense(9, batch=len(kept))[:, 0] == wanted).all()
    assert make_mask(2, 1, 0, attention_mask=torch.ones(2, 0)).score.to_dense(1, 0).numel() == 0
    kept = torch.arange(1024) >= torch.tensor([[300], [0], [1024]])
    step = make_mask(3, 1, 1024, 1023, attention_mask=kept).score
    for row, (dropped, cut) in enumerate(((4, 1), (0, 0), (16, 0))):
        runs = step.segments(1, 1024, block=(64, 64)).row(row, 0, 0)
        assert sum(run.end - run.first for run in runs) == 16 - dropped
        assert sum(run.end - run.first for run in runs if run.label == FULL) == 16 - dropped - cut
    told = str(step.prove())
    assert "first_real[batch] <= k <= min(past_real[batch] - 1, q1 + q_shift)\n" in told
    assert "past_real[batch] <= k, where ~padding_mask[batch, kv_idx]\n" in told


def test_keys_of_masks_are_concatenated():
    from transformers.masking_utils import bidirectional_mask_function

    def steps(before, offset=0):
        own = make_mask(2, 3, before, offset, attention_mask=padding("left", 2, before, 2))
        kept = padding("right", 2, 6, 3)
        other = make_mask(2, 3, 6, mask_function=bidirectional_mask_function, attention_mask=kept)
        return own, other

    for parts in (steps(3), steps(5, torch.tensor(2)), [*steps(4, 1), steps(3)[1]]):
        joined = torch.cat(parts, dim=-1)
        wanted = torch.cat([p.score.to_dense(3, p.shape[3], batch=2) for p in parts], dim=-1)
        assert joined.shape == (2, 1, 3, wanted.shape[3])
        assert (joined.score.to_dense(3, wanted.shape[3], batch=2) == wanted).all()
        assert joined.score.prove().exact
    own, other = steps(3)
    named = torch.concat(tensors=(own, make_mask(2, 3, 0), other), dim=3)
    assert named.shape[3] == own.shape[3] + 6 and named.score == torch.cat([own, other], -1).score
    with pytest.raises(ma.MaskTypeError, match=r"torch\.cat\(…, attention_mask"):
        torch.cat([own, other], dim=-1, out=torch.zeros(1))
    biased = own + torch.zeros(3, 3)
    for refused in ([own, wanted], [biased, other], [own, make_mask(2, 4, 6)]):
        with pytest.raises(ma.MaskTypeError, match=r"torch\.cat\(…, attention_mask"):
            torch.cat(refused, dim=-1)
    with pytest.raises(ma.MaskTypeError, match=r"torch\.cat\(…, attention_mask"):
        torch.cat([own, other])


@pytest.mark.parametrize("together", [list, tuple])
def test_keys_of_masks_are_concatenated_in_a_compiled_function(together):
    """In a whole graph, if they are a list: torch looks for masks in lists only (torch 2.13)."""

    def joined(keys, masks):
        kept = torch.cat(together(masks), dim=-1)
        return attend(layer(), keys[:, :, :3], keys, keys, kept)[0]

    torch._dynamo.reset()
    counter = CompileCounterWithBackend("aot_eager")
    compiled = torch.compile(joined, fullgraph=together is list, backend=counter)
    for window in (1, 2, 3, 4):
        masks = model_mask(ma.causal, 1, 3), model_mask(ma.sliding(window), 1, 3, 5)
        keys = torch.randn(1, 2, 8, 8)
        assert close(compiled(keys, masks), joined(keys, masks))
        assert counter.frame_count == min(window, 2)  # once more as the window varies


@pytest.mark.parametrize("cache", ["dynamic", "static"])
def test_attention_to_own_keys_and_those_of_an_encoder(cache):
    """At once, as T5Gemma 2 computes it; new lengths are no new formula."""
    layers = {**SMALL, "head_dim": 8, "sliding_window": 5}
    layers["layer_types"] = ["sliding_attention", "full_attention"]
    config = hf.T5Gemma2Config(
        encoder={"text_config": layers, "vision_config": {**VISION, "image_size": 32}},
        decoder=layers,
        vocab_size=64,
        image_token_index=63,
        decoder_start_token_id=1,
    )
    found, wanted = (
        built(hf.T5Gemma2ForConditionalGeneration, config, each) for each in ("maskalg", "eager")
    )
    given = {"input_ids": tokens().clamp(max=60), "attention_mask": padding("left")}
    given |= {"cache_implementation": cache, "do_sample": False, "eos_token_id": None}
    outs, structures = [], []
    for model, length in ((found, 7), (found, 10), (wanted, 10)):  # past the window
        out = model.generate(
            **given, max_new_tokens=length, return_dict_in_generate=True, output_logits=True
        )
        outs.append(out.logits)
        structures.append(len(normal_form._STRUCTURES))
    assert structures[0] == structures[1]
    for ours, theirs in zip(*outs[1:], strict=True):
        assert close(ours, theirs)


def test_cumulative_lengths_keep_documents_apart():
    """As the collator for flash attention gives them; without a need to leave the cache out."""
    cumulative = torch.tensor([0, 4, 10, 13], dtype=torch.int32)
    positions = torch.cat([torch.arange(n) for n in (4, 6, 3)])[None]
    model, eager = pair("llama")
    found = model(
        tokens(1), position_ids=positions, cu_seq_lens_q=cumulative, cu_seq_lens_k=cumulative
    ).logits
    assert close(found, eager(tokens(1), position_ids=positions, use_cache=False).logits)
    with pytest.raises(ma.MaskValueError, match="packed into one row, got a batch of 2"):
        model(tokens(2), cu_seq_lens_q=cumulative, cu_seq_lens_k=cumulative)
    with pytest.raises(ma.MaskValueError, match="cu_seq_lens_q is given beside no mask"):
        call(layer(), cu_seq_lens_q=cumulative)
    mask = model_mask(ma.causal, 1, 13)
    within = mask.within(cumulative, cumulative)
    assert within is mask.within(cumulative, cumulative)
    # Ids of one packing, not of two: how many documents there are is known without the device.
    assert [documents_in(ids).number for ids in within.parameters.values()] == [3]
    other = mask.within(cumulative, cumulative.clone())
    assert len(other.parameters) == 2 and torch.equal(other.to_dense(13), within.to_dense(13))


def test_a_kept_mask_follows_its_cumulative_lengths():
    """One buffer may be written to for each batch."""
    mask = model_mask(ma.causal, 1, 12)
    at = torch.tensor([0, 5, 12], dtype=torch.int32)
    before = mask.within(at, at)
    assert mask.within(at, at) is before
    at.copy_(torch.tensor([0, 8, 12]))
    kept = mask.within(at, at).to_dense(12, 12)
    assert torch.equal(kept, model_mask(ma.causal, 1, 12).within(at, at).to_dense(12, 12))
    assert not torch.equal(kept, before.to_dense(12, 12))


# --- what is refused -----------------------------------------------------------------------------


def layer(causal=False, training=False):
    module = torch.nn.Module()
    module.is_causal = causal
    return module.train(training)


def call(module, mask=None, **options):
    q = torch.randn(1, 2, 4, 8)
    return attend(module, q, q, q, mask, **options)


def test_dropout_in_training_is_refused():
    config = hf.LlamaConfig(**SMALL, attention_dropout=0.1)
    model = hf.LlamaForCausalLM._from_config(config, attn_implementation="maskalg")
    with pytest.raises(ma.BackendError, match=r"dropout 0\.1.*attention_dropout = 0\.0"):
        model.train()(tokens())
    model.eval()(tokens())


def test_dropout_is_called_as_its_configuration_calls_it():
    module = layer(training=True)
    module.config = hf.BertConfig(attention_probs_dropout_prob=0.2)
    with pytest.raises(
        ma.BackendError, match=r"from_pretrained\(name, attention_probs_dropout_prob=0\.0\), call"
    ):
        call(module, dropout=0.2)
    del module.config
    with pytest.raises(ma.BackendError, match=r"attention_dropout = 0\.0, or .*attn_pdrop = 0\.0"):
        call(module, dropout=0.2)


def test_masks_without_lengths_are_refused():
    with pytest.raises(ma.MaskTypeError, match=r"is causal, and a model.*model_mask\(mask, batch"):
        call(layer(), ma.causal)
    with pytest.raises(ma.MaskalgError, match=r"model_mask\(mask, batch, q_len\)"):
        pair("llama")[0](tokens(), attention_mask=ma.causal)


def test_attention_weights_are_refused():
    with pytest.raises(ma.BackendError, match=r'output_attentions=True.*"eager"'):
        pair("llama")[0](tokens(), output_attentions=True)
    small = {"vocab_size": 64, "n_embd": 16, "n_layer": 1, "n_head": 2}
    for given, told in (({}, {"output_attentions": True}), ({"output_attentions": True}, {})):
        config = hf.GPT2Config(**small, **given)
        model = hf.GPT2LMHeadModel._from_config(config, attn_implementation="maskalg").eval()
        if given or hasattr(layers.output_capturing, "_active_collector"):
            with pytest.raises(ma.BackendError, match="output_attentions=True"):
                model(tokens(), **told)
        assert model(tokens(), output_attentions=False).logits.isfinite().all()


@pytest.mark.parametrize("name", ["head_mask", "block_indices", "tau"])
def test_unknown_arguments_are_refused(name):
    with pytest.raises(ma.MaskTypeError, match=rf"{name}=a tensor of shape \[2\].*eager"):
        call(layer(), **{name: torch.ones(2)})
    call(layer(), **{name: None}, position_ids=torch.arange(4))
    call(layer(), cache=hf.DynamicCache(), past_key_values=hf.DynamicCache())
    call(layer(), max_new_tokens=8, do_sample=False)  # Kosmos-2 hands on what generate is given
    with pytest.raises(ma.MaskTypeError, match=f"{name}=3 to the mask"):
        make_mask(1, 4, 4, **{name: 3})


def test_a_causal_layer_without_a_mask_is_refused():
    with pytest.raises(ma.MaskValueError, match="causal layer was called with attention_mask=None"):
        call(layer(causal=True))
    call(layer(causal=True), is_causal=False)
    call(layer())


def test_masks_that_do_not_fit_are_refused():
    with pytest.raises(ma.MaskValueError, match=r"built for \[1, 1, 4, 5\].*q_len 4, kv_len 4"):
        call(layer(), model_mask(ma.causal, 1, 4, 5))
    with pytest.raises(ma.MaskValueError, match=r"got \[4, 4\]"):
        call(layer(), torch.ones(4, 4, dtype=torch.bool))
    with pytest.raises(ma.MaskValueError, match=r"got \[1, 4, 4\]"):
        make_mask(1, 4, 4, attention_mask=torch.ones(1, 4, 4))


def test_a_model_mask_is_no_tensor():
    mask = model_mask(ma.causal, 1, 4)
    assert repr(mask) == "ModelMask(causal, shape=[1, 1, 4, 4])"
    assert mask.to("cpu", non_blocking=True).score == ma.causal
    for compute in (
        lambda: mask[:, :, :, :2],
        lambda: mask + 1.0,
        lambda: 1.0 + mask,
        lambda: mask + torch.ones(4),
        lambda: mask + torch.ones(2, 3, 4),
        lambda: mask + torch.ones(3, 1, 4, 4),
        lambda: mask + torch.ones(4, 4, dtype=torch.bool),
        lambda: torch.softmax(torch.randn(1, 2, 4, 4) + mask, dim=-1),
        lambda: mask.to(torch.bool),
        lambda: torch.cat([torch.ones(1, 1, 4, 2), mask], dim=-1),
    ):
        with pytest.raises(ma.MaskTypeError, match="a formula here, not a tensor"):
            compute()
    with pytest.raises(AttributeError, match=r"\(attention_mask\.dtype\), .* formula here.*eager"):
        _ = mask.dtype
    assert copy.deepcopy(mask).shape == mask.shape


def test_a_mask_of_integers_is_refused():
    config = hf.LlamaConfig(**SMALL)
    model = hf.LlamaForCausalLM._from_config(config, attn_implementation="maskalg")
    mask = torch.ones(1, 1, 6, 6).tril().long()
    with pytest.raises(ma.MaskTypeError, match=r"attention_mask: .* got torch.int64"):
        model(torch.arange(1, 7)[None], attention_mask=mask)


ONES = torch.ones(1, 4)
COMPUTED = {
    "… - attention_mask": lambda mask: 1.0 - mask,
    "attention_mask - …": lambda mask: mask - ONES,
    "… * attention_mask": lambda mask: ONES * mask,
    "attention_mask + …": lambda mask: mask + 1.0,
    "-attention_mask": lambda mask: -mask,
    "abs(attention_mask)": lambda mask: abs(mask),
    "attention_mask == …": lambda mask: mask == 0,
    "attention_mask < …": lambda mask: mask < 0,
    "… @ attention_mask": lambda mask: ONES[:, :1].expand(4, mask.shape[2]) @ mask,
    "torch.where(…, attention_mask, …)": lambda mask: torch.where(ONES > 0, mask, ONES),
    "torch.cat(…, attention_mask, …)": lambda mask: torch.cat([mask[:, :, :1], mask], -2),
}


@pytest.mark.parametrize("shown", COMPUTED)
def test_arithmetic_is_that_of_a_written_out_mask_of_one_query(shown):
    compute = COMPUTED[shown]
    one = make_mask(1, 1, 4, 2)
    written = torch.tensor([0.0, 0.0, 0.0, torch.finfo(torch.float32).min]).expand(1, 1, 1, 4)
    torch.testing.assert_close(compute(one), compute(written), rtol=0, atol=0)
    used = "attention_mask[…]" if "cat" in shown else shown
    with pytest.raises(ma.MaskTypeError, match=re.escape(f"({used}), which is a formula here")):
        compute(model_mask(ma.causal, 1, 4))


def test_operators_of_masks_leave_foreign_types_to_python():
    one, four = make_mask(1, 1, 4, 3), model_mask(ma.causal, 1, 4)
    assert four in [one, four] and four != None  # noqa: E711
    assert len({one, four, one}) == 2
    with pytest.raises(TypeError, match="unsupported operand"):
        one - "a"
    torch._dynamo.reset()
    found = torch.compile(lambda mask: 1.0 - mask, fullgraph=True, backend="eager")(one)
    assert (found == 1).all()


def test_a_boolean_mask_is_written_out_as_sdpa_takes_it():
    mask = make_mask(2, 1, 13, 11, attention_mask=padding("left"), dtype=torch.bool)
    kept = padding("left").bool() & (torch.arange(13) < 12)
    for found in (mask[:, 0, 0], ~(~mask)[:, 0, 0], (mask & True)[:, 0, 0]):
        assert found.dtype == torch.bool and (found == kept).all()
    with pytest.raises(ma.MaskTypeError, match=r"dtype torch\.bool and holds a bias.*float32"):
        (mask + torch.ones(1, 13))[0]
    with pytest.raises(ma.MaskTypeError, match=r"dtype=torch\.int64\): .* or in torch\.bool"):
        make_mask(2, 1, 13, dtype=torch.int64)


TABLES = {
    "falcon": (
        hf.FalconModel,
        hf.FalconConfig(hidden_size=32, num_hidden_layers=1, num_attention_heads=4),
        "sdpa",
    ),
    "gpt_neo": (
        hf.GPTNeoModel,
        hf.GPTNeoConfig(hidden_size=32, num_layers=1, attention_types=[[["global"], 1]]),
        "eager",
    ),
}


@pytest.mark.parametrize("name", list(TABLES))
def test_a_table_of_attention_layers_is_named(name):
    """Whether the name is an argument or in the configuration, however often."""
    model_class, config, instead = TABLES[name]
    config = copy.deepcopy(config)
    config._attn_implementation = "maskalg"
    says = rf'"maskalg": the model .*{name.upper()}_ATTENTION_CLASSES.*"{instead}"\. If'
    for make in (model_class, model_class, model_class._from_config):
        with pytest.raises(ma.BackendError, match=says):
            make(config)
    config._attn_implementation = instead
    model = model_class(config)
    assert model.config._attn_implementation == instead
    assert model.get_correct_attn_implementation(requested_attention=instead) == instead


def test_a_model_beside_a_table_is_built():
    """The image encoder of GIT takes any attention, its text model does not."""
    config = hf.GitVisionConfig(**VISION, image_size=32)
    pixels = torch.randn(2, 3, 32, 32)
    found, wanted = (
        built(hf.GitVisionModel, config, implementation)(pixels).last_hidden_state
        for implementation in ("maskalg", "eager")
    )
    assert close(found, wanted)
    text = hf.GitConfig(vision_config=config.to_dict(), num_hidden_layers=1)
    with pytest.raises(ma.BackendError, match="GIT_SELF_ATTENTION_CLASSES"):
        hf.GitModel._from_config(text, attn_implementation="maskalg")


def test_both_interfaces_have_one_name():
    from transformers import AttentionInterface, AttentionMaskInterface

    assert AttentionInterface()["maskalg"] is attend
    assert AttentionMaskInterface()["maskalg"] is make_mask


# --- in compiled models --------------------------------------------------------------------------


def test_a_whole_graph_is_told_to_take_the_mask():
    torch._dynamo.reset()
    model, _ = pair("llama")
    with pytest.raises(torch._dynamo.exc.Unsupported, match=r"attention_mask=model_mask\(mask, "):
        torch.compile(model, backend="eager", fullgraph=True)(tokens())


def test_a_model_is_exported_with_its_own_masks():
    model, eager = pair("gemma3")
    length = torch.export.Dim("length", min=2, max=64)
    inputs = {"input_ids": tokens(), "attention_mask": padding("left")}
    shapes = {name: {1: length} for name in inputs}
    program = torch.export.export(
        model, (), {**inputs, "use_cache": False}, strict=False,
        dynamic_shapes={**shapes, "use_cache": None},
    )  # fmt: skip
    kept = padding("left", 2, 21, 7)
    inputs = {"input_ids": tokens(2, 21), "attention_mask": kept, "use_cache": False}
    found, wanted = program.module()(**inputs).logits, eager(**inputs).logits
    assert close(found[kept.bool()], wanted[kept.bool()])


def test_a_compiled_model_takes_the_mask():
    from torch._dynamo.utils import counters

    torch._dynamo.reset()
    counters.clear()
    model, eager = pair("llama")
    compiled = torch.compile(model, backend="eager", fullgraph=True)
    for side in ("left", "right"):
        kept = padding(side)
        found = compiled(tokens(), attention_mask=make_mask(2, 13, 13, attention_mask=kept)).logits
        positions = torch.arange(13)[None]
        wanted = eager(tokens(), attention_mask=kept, position_ids=positions).logits
        assert close(found[kept.bool()], wanted[kept.bool()])
    assert counters["stats"]["unique_graphs"] == 1


def test_packed_rows_beside_a_cache_are_told_of(recwarn):
    """Transformers looks for documents only without a cache: they would see each other."""
    model, _ = pair("llama")
    positions = torch.cat([torch.arange(n) for n in (4, 6, 3)])[None]
    packed = {"input_ids": tokens(1), "position_ids": positions}
    model(**packed, use_cache=False)
    model(input_ids=tokens(1))
    padded = torch.tensor([[0] * 3 + [1] * 10])
    model(**packed, attention_mask=padded)
    assert not [w for w in recwarn.list if "documents" in str(w.message)]
    with pytest.warns(UserWarning, match=r"documents attend to each other.*use_cache=False"):
        model(**packed)
