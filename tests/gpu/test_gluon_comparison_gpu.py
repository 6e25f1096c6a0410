"""The comparison that decides on an unknown Triton finds the Gluon kernels to agree."""

import pytest
import torch

pytestmark = pytest.mark.gpu


def test_the_kernels_agree(capsys, monkeypatch):
    from maskalg.backends.triton import trust
    from maskalg.bench import gluon

    if torch.cuda.get_device_capability() != (9, 0):
        pytest.skip("needs a Hopper GPU")
    monkeypatch.setenv(trust.SWITCH, "1")  # put back behind the program, which sets it
    assert gluon.main(torch.cuda.current_device()) == 0
    print(capsys.readouterr().out)
    trust.verdict.cache_clear()
