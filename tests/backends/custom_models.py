"""Models with custom operators, as a converter writes them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from flatbuffers import flexbuffers
from tflite_serializer import OperatorSpec
from tflite_writer import ModelWriter


def median(m: ModelWriter, x: int, window: int = 5, kind: str = "MedianFilter") -> int:
    """A custom operator whose output is like its input."""
    source = m.tensors[x]
    made = m.tensor(source.shape, source.dtype, source.scales[0], source.zero_points[0])
    options = bytes(flexbuffers.Dumps({"window": window}))
    m.operators.append(OperatorSpec(kind, [x], [made], custom_options=options))
    return made


def filtered_network(path: Path, window: int = 5, kind: str = "MedianFilter") -> Path:
    """Convolution, two filters, another convolution, and a last filter."""
    rng, m = np.random.default_rng(7), ModelWriter()

    def conv(x: int, channels: int, outputs: int) -> int:
        weights = rng.integers(-127, 128, (outputs, 3, 3, channels)).astype(np.int8)
        bias = rng.integers(-500, 500, outputs).astype(np.int32)
        return m.conv2d(x, weights, bias, weight_scale=0.01, scale=0.2, zero_point=3)

    x = conv(m.input((1, 9, 6, 3), 0.05, -7), 3, 4)
    x = median(m, median(m, x, window, kind), 3, kind)
    m.output(median(m, conv(x, 4, 5), window, kind))
    return m.save(path)
