"""The backend of diffusers: dispatched calls and a tiny model, against its own attention."""

import sys

import pytest
import torch

pytest.importorskip("diffusers", reason="needs diffusers")

from diffusers.models import attention_dispatch
from diffusers.models.attention_dispatch import attention_backend, dispatch_attention_fn

import maskalg as ma
from maskalg.integrations import diffusers as ours
from maskalg.integrations import messages

MASK = ma.sliding(3) | ma.prefix(2)
ROUNDING = 64 * 2.0**-24


def close(found, wanted):
    found, wanted = found.detach(), wanted.detach()
    return (found - wanted).abs().max() <= ROUNDING * max(1.0, float(wanted.abs().max()))


def inputs(kv_heads=4):
    torch.manual_seed(0)
    return (
        torch.randn(2, 11, 4, 16, requires_grad=True),
        torch.randn(2, 11, kv_heads, 16, requires_grad=True),
        torch.randn(2, 11, kv_heads, 16, requires_grad=True),
    )


def dispatched(backend, tensors, **options):
    with attention_backend(backend):
        out = dispatch_attention_fn(*tensors, **options)
    return [out, *torch.autograd.grad(out.sin().sum(), tensors)]


PADDING = torch.arange(11) < torch.tensor([[11], [7]])
WRITTEN = MASK.to_dense(11)
ADDED = torch.where(WRITTEN, 0.5, -float("inf"))


@pytest.mark.parametrize(
    ("options", "native"),
    [
        ({}, {}),
        ({"scale": 0.3}, {"scale": 0.3}),
        ({"is_causal": True}, {"is_causal": True}),
        ({"attn_mask": WRITTEN}, {"attn_mask": WRITTEN}),
        ({"attn_mask": ADDED}, {"attn_mask": ADDED}),
        ({"attn_mask": PADDING}, {"attn_mask": PADDING}),
        ({"attn_mask": MASK}, {"attn_mask": WRITTEN}),
        ({"attention_kwargs": {"mask_expr": MASK}}, {"attn_mask": WRITTEN}),
    ],
)
def test_dispatch(options, native):
    found = dispatched("maskalg", inputs(), **options)
    for ours_, theirs in zip(found, dispatched("native", inputs(), **native), strict=True):
        assert close(ours_, theirs)


def test_grouped_heads():
    found = dispatched("maskalg", inputs(2), enable_gqa=True)
    wanted = dispatched("native", inputs(2), enable_gqa=True)
    for ours_, theirs in zip(found, wanted, strict=True):
        assert close(ours_, theirs)


def test_a_model():
    """Flux takes an expression as the mask of joint attention: text first, then the image."""
    from diffusers import FluxTransformer2DModel

    torch.manual_seed(0)
    model = FluxTransformer2DModel(
        in_channels=4,
        num_layers=1,
        num_single_layers=1,
        attention_head_dim=16,
        num_attention_heads=2,
        joint_attention_dim=16,
        pooled_projection_dim=16,
        axes_dims_rope=(4, 4, 8),
    ).eval()
    text, side = 3, 4
    image = ma.sliding_tile((side, side), tile=2, window=1).shift(q=-text, kv=-text)
    mask = (ma.q_idx < text) | (ma.kv_idx < text) | image
    given = {
        "hidden_states": torch.randn(1, side * side, 4),
        "encoder_hidden_states": torch.randn(1, text, 16),
        "pooled_projections": torch.randn(1, 16),
        "timestep": torch.tensor([0.5]),
        "img_ids": torch.zeros(side * side, 3),
        "txt_ids": torch.zeros(text, 3),
    }
    with torch.no_grad():
        written = mask.to_dense(text + side * side)
        wanted = model(**given, joint_attention_kwargs={"attention_mask": written}).sample
        everywhere = model(**given).sample
        model.set_attention_backend("maskalg")
        found = model(**given, joint_attention_kwargs={"attention_mask": mask}).sample
    assert close(found, wanted) and not close(found, everywhere)


def test_what_is_refused():
    q = inputs()
    with pytest.raises(ma.BackendError, match=r"dropout_p=0\.5"):
        dispatched("maskalg", q, dropout_p=0.5)
    with pytest.raises(ma.MaskTypeError, match="both given"):
        dispatched("maskalg", q, is_causal=True, attention_kwargs={"mask_expr": MASK})
    with pytest.raises(ma.MaskTypeError, match="got str"):
        dispatched("maskalg", q, attention_kwargs={"mask_expr": "causal"})
    with pytest.raises(ma.BackendError, match="context parallelism"):
        ours.attend(*q, _parallel_config=object())


def test_a_changed_registry_is_named(monkeypatch):
    monkeypatch.delattr(attention_dispatch, "_AttentionBackendRegistry")
    with pytest.raises(ImportError, match=r"attention_dispatch\._AttentionBackendRegistry"):
        ours.register()


@pytest.mark.parametrize("name", ["transformers", "diffusers"])
def test_what_to_install_is_said(name, monkeypatch):
    for module in [m for m in sys.modules if m.startswith(f"maskalg.integrations.{name}")]:
        monkeypatch.delitem(sys.modules, module)
    monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(ImportError, match=rf"pip install 'maskalg\[{name}\]'.*import.* failed"):
        __import__(f"maskalg.integrations.{name}")


def test_what_to_install_is_said_where_nothing_is():
    error = messages.integration_needs("no_such_package", "1.0", ImportError("none"))
    assert str(error).endswith("pip install 'maskalg[no_such_package]'.")
