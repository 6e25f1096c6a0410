"""What the tests of the operators compare: results and gradients, traced and not."""

import torch


def inputs(length=70, dim=16, lead=(2,)):
    """Query of four heads, key and value of two."""
    shapes = [(*lead, heads, length, dim) for heads in (4, 2, 2)]
    return [torch.randn(shape, requires_grad=True) for shape in shapes]


def ids_of(length, document=20):
    return torch.arange(length) // document


def with_gradients(function, tensors, *rest):
    """The outputs of a function of tensors, and the gradients of a scalar made of them."""
    found = function(*tensors, *rest)
    outputs = found if isinstance(found, tuple) else (found,)
    loss = sum(out.sin().sum() for out in outputs)
    return [*outputs, *torch.autograd.grad(loss, tensors)]


def assert_equal(found, wanted):
    """Equal to the bit: the same code computes both."""
    for got, want in zip(found, wanted, strict=True):
        assert torch.equal(got, want)


def assert_close(found, wanted):
    for got, want in zip(found, wanted, strict=True):
        assert got.dtype == want.dtype
        torch.testing.assert_close(got, want, atol=2e-6, rtol=1e-5)
