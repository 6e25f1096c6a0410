"""Tensors of torch's default device, which code that computes on the CPU must not meet."""

import pytest
import torch

import maskalg as ma
from maskalg import alibi, causal, document, sliding

IDS = torch.arange(70) // 13
QUESTIONS = {
    "blocks": lambda: (causal & sliding(17) & document(IDS)).blocks(70, block=16).labels,
    "cost": lambda: document.from_lengths(torch.tensor([30, 40], device="cpu")).cost(70).kept,
    "segments": lambda: (causal & document(IDS)).segments(70, block=16).first,
    "to_dense": lambda: (causal & document(IDS)).to_dense(70),
    "witness": lambda: (causal & document(IDS)).witness(causal, 70),
    "to_cudnn": lambda: (causal & document(IDS)).to_cudnn(70).to_dense(),
}


@pytest.mark.parametrize("question", QUESTIONS)
def test_questions(question):
    wanted = QUESTIONS[question]()
    with torch.device("meta"):
        found = QUESTIONS[question]()
    assert torch.equal(found, wanted) if isinstance(wanted, torch.Tensor) else found == wanted


def test_pictures(capsys):
    with torch.device("meta"):
        (causal & document(IDS)).show(70)
    found = capsys.readouterr().out
    (causal & document(IDS)).show(70)
    assert found == capsys.readouterr().out


@pytest.mark.parametrize("learned", [False, True])
def test_attention(learned):
    inputs = [torch.randn(1, 2, 70, 8, requires_grad=True) for _ in range(3)]
    slopes = torch.tensor([0.5, 0.25], requires_grad=learned)
    wanted = inputs + ([slopes] if learned else [])

    def gradients():
        out = ma.attention(*inputs, causal & document(IDS) & ma.dilated(2) + alibi(slopes))
        return torch.autograd.grad(out.sum(), wanted)

    with torch.device("meta"):
        found = gradients()
    assert all(map(torch.equal, found, gradients()))
