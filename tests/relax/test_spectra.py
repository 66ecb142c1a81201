"""Fourier transforms of ONNX and PyTorch become fast ones, within the bound of the manual."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from host_model import HostModel
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper

import utvm_deploy
from utvm_deploy.base.errors import ModelError
from utvm_deploy.frontend.relax.torch_spectra import without_complex
from utvm_deploy.graph.signals.fft_plan import Transform, transform_of
from utvm_deploy.oracle.signals.transforms import irfft, rfft

torch = pytest.importorskip("torch")
RNG = np.random.default_rng(91)
Array = NDArray[Any]
#: Half of the distance between float32 numbers at 1.
UNIT = 2.0**-24


def error(made: Array, exact: Array) -> float:
    """The length of the difference, as a part of that of the exact values."""
    return float(np.linalg.norm(made - exact) / np.linalg.norm(exact))


def pairs(values: Array) -> Array:
    return np.stack([values.real, values.imag], axis=-1)


@pytest.mark.parametrize("length", [4, 6, 10, 60, 250, 400, 512, 1024, 1536, 4096])
def test_error_of_fast_transforms(length: int) -> None:
    bound = 8 * np.log2(length) * UNIT
    x = RNG.standard_normal((4, length)).astype(np.float32)
    exact = np.fft.rfft(x.astype(np.float64))
    made = rfft(x, length).reshape(4, -1, 2)
    assert error(made, pairs(exact)) <= bound
    spectrum = pairs(exact).astype(np.float32)
    spectrum[:, [0, -1], 1] = 0
    back = np.fft.irfft(spectrum[..., 0].astype(np.float64) + 1j * spectrum[..., 1])
    assert error(irfft(spectrum.reshape(4, -1), length), back) <= bound


@pytest.mark.parametrize(
    "transform", [Transform(60, 60), Transform(60, 41), Transform(60, 60, True)]
)
def test_matrices_are_recognized(transform: Transform) -> None:
    matrix = transform.matrix()
    assert transform_of(matrix) == transform
    other = matrix.copy()
    other[1, 1] += 1e-4
    assert transform_of(other) is None


@pytest.mark.parametrize("length", [7, 22, 2])
def test_other_lengths_stay_products(length: int) -> None:
    assert transform_of(Transform(length, length).matrix()) is None
    x = RNG.standard_normal(length)
    exact = pairs(np.fft.rfft(x)).reshape(-1)
    np.testing.assert_allclose(x @ Transform(length, length).matrix(), exact, atol=1e-5)


def saved(
    path: Path,
    nodes: Sequence[onnx.NodeProto],
    shapes: Mapping[str, Sequence[int]],
    constants: Mapping[str, Any],
    version: int,
) -> onnx.ModelProto:
    """A model; the names of inputs begin with x, those of outputs with y."""
    ends = [helper.make_tensor_value_info(n, TensorProto.FLOAT, one) for n, one in shapes.items()]
    made = [numpy_helper.from_array(np.asarray(data), name) for name, data in constants.items()]
    inputs, outputs = ([one for one in ends if one.name[0] == first] for first in "xy")
    graph = helper.make_graph(nodes, "some", inputs, outputs, made)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", version)], ir_version=9)
    onnx.save(model, path)
    return model


def real(x: Array) -> Array:
    return pairs(np.fft.rfft(x[..., 0], axis=1))


def whole(x: Array) -> Array:
    return pairs(np.fft.fft(x[..., 0] + 1j * x[..., 1], axis=1))


def inverse(x: Array) -> Array:
    return pairs(np.fft.ifft(x[..., 0] + 1j * x[..., 1], axis=1))


def to_reals(x: Array) -> Array:
    return np.fft.irfft(x[..., 0] + 1j * x[..., 1], axis=1)[..., None]


#: The shape of the input, attributes, and what NumPy makes. Half of 14 is 7: that is a product.
TRANSFORMS = (
    ((2, 24, 1), {"onesided": 1}, real),
    ((2, 12, 5, 2), {}, whole),
    ((2, 12, 2), {"inverse": 1}, inverse),
    ((2, 13, 2), {"inverse": 1, "onesided": 1}, to_reals),
    ((1, 14, 2), {}, whole),
)


@pytest.mark.tools
@pytest.mark.filterwarnings("ignore")
def test_dft(tmp_path: Path) -> None:
    nodes, shapes, samples = [], {}, []
    for number, (shape, given, expected) in enumerate(TRANSFORMS):
        ends = [f"x{number}", "", "axis"], [f"y{number}"]
        nodes.append(helper.make_node("DFT", *ends, **given))
        samples.append(RNG.standard_normal(shape).astype(np.float32))
        shapes |= {f"x{number}": shape, f"y{number}": expected(samples[-1]).shape}
    saved(tmp_path / "dft.onnx", nodes, shapes, {"axis": np.int64(1)}, 20)
    compiled = utvm_deploy.compile(tmp_path / "dft.onnx", "host")
    fast = [one.kind for one in compiled.layers if one.kind.startswith("Signal")]
    assert sorted(fast) == ["SignalIrfft"] + ["SignalRfft"] * 5
    made = HostModel(compiled, tmp_path).run(samples)
    for got, x, (_, _, expected) in zip(made, samples, TRANSFORMS, strict=True):
        exact = expected(x.astype(np.float64))
        assert error(got.reshape(exact.shape), exact) < 1e-6


def mel_model(path: Path) -> onnx.ModelProto:
    """The logarithms of a mel spectrum of frames of 64 samples, each 20 samples later."""
    nodes = [
        helper.make_node("HannWindow", ["size"], ["window"]),
        helper.make_node("STFT", ["x", "step", "window", "size"], ["s"], onesided=1),
        helper.make_node("Mul", ["s", "s"], ["squares"]),
        helper.make_node("ReduceSum", ["squares", "last"], ["power"], keepdims=0),
        helper.make_node("MelWeightMatrix", ["mels", "size", "rate", "low", "high"], ["filters"]),
        helper.make_node("MatMul", ["power", "filters"], ["mel"]),
        helper.make_node("Add", ["mel", "least"], ["some"]),
        helper.make_node("Log", ["some"], ["y"]),
    ]
    constants = {
        **dict(
            zip(("size", "step", "mels", "rate"), map(np.int64, (64, 20, 6, 8000)), strict=True)
        ),
        **dict(zip(("least", "low", "high"), map(np.float32, (1e-6, 100, 3900)), strict=True)),
        "last": np.array([-1]),
    }
    return saved(path, nodes, {"x": (2, 224), "y": (2, 9, 6)}, constants, 17)


@pytest.mark.tools
@pytest.mark.filterwarnings("ignore")
def test_log_mel_of_frames_is_three_layers(tmp_path: Path) -> None:
    model = mel_model(tmp_path / "mel.onnx")
    x = RNG.standard_normal((2, 224)).astype(np.float32)
    session = onnxruntime.InferenceSession(model.SerializeToString())
    (expected,) = session.run(None, {"x": x})
    compiled = utvm_deploy.compile(tmp_path / "mel.onnx", "host")
    kinds = [one.kind for one in compiled.layers]
    assert kinds == ["SignalSpectrogram", "FULLY_CONNECTED", "CALL_TIR"]
    (made,) = HostModel(compiled, tmp_path).run([x])
    np.testing.assert_allclose(made.reshape(expected.shape), expected, atol=1e-4)


class Spectra(torch.nn.Module):  # type: ignore[misc, name-defined]
    """What torchaudio's Spectrogram, MelSpectrogram and MFCC export, and a filter of a spectrum."""

    def __init__(self) -> None:
        super().__init__()
        window = torch.hann_window(48)
        filters, cosines = torch.rand(33, 10), torch.rand(10, 5)
        for name, data in (("window", window), ("filters", filters), ("cosines", cosines)):
            self.register_buffer(name, data)

    def forward(self, x: Any) -> Any:
        flat = x.reshape(-1, x.shape[-1])
        numbers = torch.stft(flat, 64, 20, 48, window=self.window, return_complex=True)
        numbers = numbers.reshape(x.shape[:-1] + numbers.shape[-2:])
        power = numbers.abs().pow(2.0)
        mel = torch.matmul(power.transpose(-1, -2), self.filters).transpose(-1, -2)
        loud = 10 * torch.log10(torch.clamp(mel, min=1e-10))
        loud = torch.max(loud, loud.amax(dim=(-2, -1), keepdim=True) - 80.0)
        coefficients = torch.matmul(loud.transpose(-1, -2), self.cosines).transpose(-1, -2)
        one = torch.fft.rfft(x, norm="ortho")
        gains = torch.sigmoid(one.abs() - 1)
        cleaned = torch.fft.irfft(one * gains, norm="ortho")
        sums = torch.view_as_real(one * one.conj() + one / 2)
        return power, coefficients, cleaned, sums, one.real + one.imag


@pytest.mark.tools
@pytest.mark.filterwarnings("ignore")
def test_programs_of_pytorch(tmp_path: Path) -> None:
    module, x = Spectra().eval(), torch.tensor(RNG.standard_normal((2, 240)).astype(np.float32))
    compiled = utvm_deploy.compile(module, "host", inputs=(x,))
    kinds = [one.kind for one in compiled.layers]
    assert {one: kinds.count(one) for one in kinds if one.startswith("Signal")} == {
        "SignalIrfft": 1,
        "SignalRfft": 1,
        "SignalSpectrogram": 1,
    }
    for got, expected in zip(
        HostModel(compiled, tmp_path).run([x.numpy()]), module(x), strict=True
    ):
        assert error(got.reshape(expected.shape), expected.numpy()) < 2e-6


@pytest.mark.parametrize(
    ("function", "said"),
    [
        (lambda x: torch.fft.rfft(x), "an output of the program is complex"),
        (lambda x: torch.fft.rfft(x).angle(), "angle.default of complex numbers"),
        (lambda x: torch.fft.fft(x).abs(), "_fft_.* of complex numbers"),
    ],
)
@pytest.mark.filterwarnings("ignore")
def test_complex_numbers_that_are_refused(function: Any, said: str) -> None:
    class Some(torch.nn.Module):  # type: ignore[misc, name-defined]
        def forward(self, x: Any) -> Any:
            return function(x)

    with pytest.raises(ModelError, match=said):
        without_complex(torch.export.export(Some(), (torch.zeros(2, 16),)))
