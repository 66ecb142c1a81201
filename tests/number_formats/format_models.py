"""Small models of float32, and the example of a format with arithmetic."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from float_writer import FloatWriter
from tvm import relax

EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "number_formats" / "posit16.py"
RNG = np.random.default_rng(22)
#: Of the weights of a Relax module.
SHAPES = ((8, 3, 3, 3), (8, 1, 3, 3), (288, 32), (4, 8))


def drawn(*shape: int) -> np.ndarray:
    return RNG.normal(size=shape).astype(np.float32)


def network(path: Path) -> Path:
    """Products of all kinds, and a table that is added."""
    m = FloatWriter()
    x = m.input((1, 6, 6, 3))
    y = m.conv2d(x, drawn(8, 3, 3, 3), drawn(8), activation="RELU")
    y = m.depthwise_conv2d(y, drawn(1, 3, 3, 8), drawn(8))
    y = m.fully_connected(m.reshape(y, (1, 288)), drawn(10, 288), drawn(10))
    m.output(m.add(m.reshape(y, (2, 5)), m.constant(drawn(2, 5))))
    return m.save(path)


def module(weights: Sequence[np.ndarray]) -> Any:
    """A Relax module with weights of ``SHAPES``; the last ones belong to a function of TVM's."""
    first, second, third, fourth = (relax.const(one) for one in weights)
    x = relax.Var("x", relax.TensorType((1, 3, 8, 8), "float32"))
    builder = relax.BlockBuilder()
    with builder.function("main", [x]):
        with builder.dataflow():
            y = builder.emit(relax.op.nn.relu(relax.op.nn.conv2d(x, first, padding=(1, 1))))
            y = builder.emit(relax.op.nn.conv2d(y, second, groups=8))
            y = builder.emit(relax.op.matmul(relax.op.reshape(y, (1, 288)), third))
            y = builder.emit(relax.op.multiply(relax.op.reshape(y, (4, 8)), fourth))
            y = builder.emit_output(relax.op.tanh(y))
        builder.emit_func_output(y)
    return builder.get()
