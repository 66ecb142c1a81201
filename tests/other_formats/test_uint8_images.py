"""Models that take pixels of uint8 and normalize them by themselves, as exporters write them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import utvm_deploy
from utvm_deploy.base.errors import ModelError
from utvm_deploy.frontend.formats import converted
from utvm_deploy.oracle.program import Program

torch: Any = pytest.importorskip("torch", reason="PyTorch is not installed")
onnxruntime = pytest.importorskip("onnxruntime", reason="onnxruntime is not installed")

pytestmark = pytest.mark.tools

MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
SHAPES = {"nchw": (1, 3, 16, 16), "nhwc": (1, 16, 16, 3)}


class _Net(torch.nn.Module):
    """A classifier of bytes whose channels are first or last."""

    def __init__(self, order: str) -> None:
        super().__init__()
        self.order = order
        self.register_buffer("mean", torch.tensor(MEAN).view(1, 3, 1, 1))
        self.register_buffer("std", torch.tensor(STD).view(1, 3, 1, 1))
        self.convolution = torch.nn.Conv2d(3, 8, 3, 2, 1)

    def forward(self, pixels: Any) -> Any:
        if self.order == "nhwc":
            pixels = pixels.permute(0, 3, 1, 2)
        real = (pixels.float() / 255 - self.mean) / self.std
        return torch.relu(self.convolution(real)).mean((2, 3))


def _samples(order: str, count: int = 4) -> Sequence[np.ndarray]:
    rng = np.random.default_rng(6)
    return [rng.integers(0, 256, SHAPES[order]).astype(np.uint8) for _ in range(count)]


def _quantized(order: str, path: Path) -> Path:
    """What torch.onnx.export and onnxruntime's quantize_static write."""
    from onnxruntime import quantization

    torch.manual_seed(0)
    example = torch.zeros(SHAPES[order], dtype=torch.uint8)
    torch.onnx.export(
        _Net(order).eval(), (example,), path, input_names=["image"], dynamo=False, opset_version=17
    )

    class Reader(quantization.CalibrationDataReader):
        def __init__(self) -> None:
            self.rest = iter([{"image": one} for one in _samples(order)])

        def get_next(self) -> dict[str, np.ndarray] | None:
            return next(self.rest, None)

    made = path.with_name(f"{order}.onnx")
    int8 = quantization.QuantType.QInt8
    # Without VNNI, onnxruntime's products of 8 bits saturate.
    quantization.quantize_static(
        path, made, Reader(), activation_type=int8, weight_type=int8, reduce_range=True
    )
    return made


@pytest.mark.parametrize("order", SHAPES)
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_pixels_become_a_table(order: str, tmp_path: Path) -> None:
    path = _quantized(order, tmp_path / "float.onnx")
    compiled = utvm_deploy.compile(path, "host", allow_float=True)
    kinds = [layer.kind for layer in compiled.layers]
    assert "LOOKUP" in kinds and not {"CAST", "SUB", "DIV"} & set(kinds)
    assert utvm_deploy.verify(path, "host", samples=2).ok
    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    data = converted(path)
    assert data is not None
    program = Program(data)
    for sample in _samples(order):
        (wanted,) = session.run(None, {"image": sample})
        made = program.one([sample])[program.outputs[0]]
        np.testing.assert_allclose(made, wanted, atol=0.02)


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_a_camera_in_front_of_pixels(tmp_path: Path) -> None:
    path = _quantized("nchw", tmp_path / "float.onnx")
    for words in ("uint8", "rgb565 20x18 crop bilinear"):
        assert utvm_deploy.verify(path, "host", samples=1, image_input=words).ok, words
    with pytest.raises(ModelError, match="takes pixels as they are, and the model does the rest"):
        utvm_deploy.inspect(path, image_input="uint8 mean=0.5")
    with pytest.raises(
        ModelError, match=r"float model that becomes no \.tflite.* --input does not"
    ):
        utvm_deploy.inspect(tmp_path / "float.onnx", image_input="uint8")
