"""Small float ONNX models, and what onnxruntime's static quantizer makes of them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper
from onnxruntime.quantization import (
    CalibrationDataReader,
    QuantFormat,
    QuantType,
    quantize_static,
)

_OPSET = 17
_IR_VERSION = 9
_CALIBRATION_SAMPLES = 8


@dataclass
class OnnxWriter:
    """A model with the single input ``x``, under construction."""

    shape: Sequence[int | str]
    seed: int = 0
    opset: int = _OPSET
    nodes: list[Any] = field(default_factory=list)
    constants: list[Any] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.rng = np.random.default_rng(self.seed)

    def constant(self, data: Any) -> str:
        """A constant's name."""
        name = f"constant_{len(self.constants)}"
        self.constants.append(numpy_helper.from_array(np.asarray(data), name))
        return name

    def normal(self, *shape: int, scale: float = 0.3) -> str:
        """A random constant's name."""
        return self.constant(self.rng.normal(0, scale, shape).astype(np.float32))

    def add(self, kind: str, *inputs: str, outputs: int = 1, **attributes: Any) -> Any:
        """An operator; the name of its output, or a list of them."""
        names = [f"{kind}_{len(self.nodes)}_{i}" for i in range(outputs)]
        self.nodes.append(helper.make_node(kind, list(inputs), names, **attributes))
        return names[0] if outputs == 1 else names

    def conv(
        self, x: str, inputs: int, outputs: int, *kernel: int, group: int = 1, **attributes: Any
    ) -> str:
        """A convolution with random weights."""
        weights = self.normal(outputs, inputs // group, *kernel)
        bias = self.normal(outputs, scale=0.1)
        return self.add("Conv", x, weights, bias, group=group, **attributes)

    def save(self, path: Path, *outputs: str) -> Path:
        """Write the float model."""
        graph = helper.make_graph(
            self.nodes,
            "test",
            [helper.make_tensor_value_info("x", TensorProto.FLOAT, self.shape)],
            [helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in outputs],
            self.constants,
        )
        opsets = [helper.make_opsetid("", self.opset)]
        onnx.save(helper.make_model(graph, opset_imports=opsets, ir_version=_IR_VERSION), path)
        return path

    def quantized(
        self,
        directory: Path,
        *outputs: str,
        unsigned: bool = False,
        wide: bool = False,
        per_channel: bool = True,
        form: QuantFormat = QuantFormat.QDQ,
    ) -> Path:
        """Write the model quantized; ``wide`` has activations of 16 bits.

        onnxruntime's kernels of uint8 by int8 saturate on processors without VNNI, unless the
        weights have 7 bits. In QDQ form it computes in float32.
        """
        types = {
            (False, False): QuantType.QInt8,
            (False, True): QuantType.QUInt8,
            (True, False): QuantType.QInt16,
            (True, True): QuantType.QUInt16,
        }
        source = self.save(directory / "float.onnx", *outputs)
        target = directory / "quantized.onnx"
        quantize_static(
            source,
            target,
            _Reader([d if isinstance(d, int) else 1 for d in self.shape], self.seed),
            quant_format=form,
            per_channel=per_channel,
            activation_type=types[wide, unsigned],
            weight_type=QuantType.QInt8,
            reduce_range=unsigned and form is QuantFormat.QOperator,
            extra_options={"ActivationSymmetric": wide},
        )
        return target


class _Reader(CalibrationDataReader):
    def __init__(self, shape: Sequence[int], seed: int) -> None:
        rng = np.random.default_rng(seed)
        samples = [rng.normal(0, 1, shape).astype(np.float32) for _ in range(_CALIBRATION_SAMPLES)]
        self._samples: Iterator[Any] = iter(samples)

    def get_next(self) -> dict[str, Any] | None:
        sample = next(self._samples, None)
        return None if sample is None else {"x": sample}
