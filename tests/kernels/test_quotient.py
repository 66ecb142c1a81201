"""DIV of int32, byte for byte with the reference; and where that stops."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from kernel_harness import Compiled, call_of, check_model
from tflite_writer import ModelWriter
from typed_inputs import SHAPES, typed

from utvm_deploy.base.errors import UnsupportedOperator
from utvm_deploy.frontend.tflite import load_model

_LEAST = -(2**31)


def quotient(m: ModelWriter, x: int, y: int, fused: int = 0) -> int:
    shape = np.broadcast_shapes(m.tensors[x].shape, m.tensors[y].shape)
    return m.node("DIV", [x, y], shape, ("DivOptions", {"FusedActivationFunction": fused}))


@pytest.mark.tools
def test_quotients_broadcast(tmp_path: Path) -> None:
    m, rng = ModelWriter(), np.random.default_rng(7)
    for left, right in SHAPES:
        m.output(quotient(m, typed(m, left, "int32"), typed(m, right, "int32")))
    samples = []
    for most in (9, 2**31 - 1, 2**16):
        drawn = [rng.integers(-most, most, m.tensors[i].shape).astype(np.int32) for i in m.inputs]
        # The reference stops at 0, and crashes at the least number by -1.
        samples.append([np.where((one == 0) | (one == -1), 3, one) for one in drawn])
    assert check_model(m.save(tmp_path / "model.tflite"), samples, tmp_path) == len(SHAPES)


@pytest.mark.tools
def test_what_stops_the_reference(tmp_path: Path) -> None:
    m = ModelWriter()
    m.output(quotient(m, typed(m, (5,), "int32"), typed(m, (5,), "int32")))
    graph = load_model(m.save(tmp_path / "model.tflite"))
    (operator,), compiled = graph.operators, Compiled()
    compiled.build([call_of(graph, operator, "generic").kernel], tmp_path, "generic")
    values = {
        graph.inputs[0]: np.array([7, _LEAST, _LEAST, _LEAST, -7], np.int32),
        graph.inputs[1]: np.array([0, 0, -1, 1, -1], np.int32),
    }
    assert compiled.run(graph, operator, values).tolist() == [0, 0, _LEAST, _LEAST, 7]


def test_other_divisions_are_refused(tmp_path: Path) -> None:
    for dtype, divisor, fused, why in (
        ("int8", 1, 0, "makes small quotients -128 or 127; multiply by the inverse"),
        ("int64", 1, 0, "it makes int64 of int64 and int64; only int32"),
        ("int32", 0, 0, "constant divisor '.*' has a 0"),
        ("int32", 1, 1, "has a fused activation"),
    ):
        m = ModelWriter()
        y = m.constant(np.array([divisor], dtype))
        m.output(quotient(m, typed(m, (3,), dtype), y, fused))
        with pytest.raises(UnsupportedOperator, match=why):
            load_model(m.save(tmp_path / "model.tflite"))
