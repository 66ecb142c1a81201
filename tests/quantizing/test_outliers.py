"""One huge sample rules an SQNR over all samples; the warning names it."""

from __future__ import annotations

import logging

import numpy as np
import pytest

import utvm_deploy
from utvm_deploy.base.errors import DataError, ModelError, UsageError
from utvm_deploy.quality.quantizing.sqnr import outlier

RNG = np.random.default_rng(3)


def test_the_sample_that_rules_an_sqnr() -> None:
    real = RNG.normal(size=(40, 5))
    made = np.round(real * 8) / 8
    assert outlier(real, made) is None and outlier(real, real) is None
    real[7] *= 1e6
    found = outlier(real, np.where(np.abs(real) > 1e3, real, 0.0))
    assert found == (7, 0.0)


@pytest.mark.tools
def test_warnings_of_a_ruined_module(caplog: pytest.LogCaptureFixture) -> None:
    torch = pytest.importorskip("torch")
    torch.manual_seed(0)
    net = torch.nn.Sequential(torch.nn.Linear(16, 8), torch.nn.ReLU(), torch.nn.Linear(8, 4)).eval()
    samples = torch.tensor(RNG.normal(size=(40, 16)), dtype=torch.float32)
    samples[0, 0] = 1e6
    with caplog.at_level(logging.WARNING, logger="utvm_deploy"):
        made = utvm_deploy.quantize(net, samples, equalize="no")
    (told,) = made.warnings
    assert "compared sample 0 (inputs up to 1e+06)" in told and "leave outliers out" in told
    ours = [one for one in caplog.records if one.name.startswith("utvm_deploy")]
    assert [one.getMessage() for one in ours] == [told]
    assert repr(made).endswith("(1 warning)>") and ", SQNR" in repr(made)


@pytest.mark.tools
def test_what_quantize_says_of_wrong_arguments() -> None:
    torch = pytest.importorskip("torch")
    net = torch.nn.Sequential(torch.nn.Linear(16, 8), torch.nn.Flatten(), torch.nn.Linear(96, 4))
    with pytest.raises(ModelError, match=r"has the shape \(12, 16\).*such as \(1, 12, 16\)"):
        utvm_deploy.quantize(net, [np.zeros((12, 16), np.float32)] * 4)
    with pytest.raises(DataError, match=r"there are no data nothere\.npz"):
        utvm_deploy.quantize(net, "nothere.npz")
    with pytest.raises(ModelError, match="cannot read the model"):
        utvm_deploy.quantize("nothere.onnx", "nothere.npz")
    with pytest.raises(UsageError, match="int8, int16x8, int4, mixed"):
        utvm_deploy.quantize("nothere.tflite", "nothere.npz", scheme="int3")
    with pytest.raises(UsageError, match="there is no keyword 'inputz'; did you mean 'inputs'"):
        utvm_deploy.estimate(net, "host", inputz=1)  # type: ignore[call-arg]
