"""Constants of a model that are infinite or no numbers, as masks of attention have them."""

from __future__ import annotations

import numpy as np
import pytest
import tvm
from tvm import relax

import utvm_deploy


@pytest.mark.tools
def test_infinite_constants_and_nan_reach_the_device() -> None:
    mask = np.array([[0.0, -np.inf, np.inf, np.nan, 1.5]], np.float32)
    x = relax.Var("x", relax.TensorType((1, 5), "float32"))
    builder = relax.BlockBuilder()
    with builder.function("main", [x]):
        with builder.dataflow():
            y = builder.emit_output(relax.op.add(x, relax.const(mask)))
        builder.emit_func_output(y)
    module: tvm.IRModule = builder.finalize()
    given = np.arange(5, dtype=np.float32).reshape(1, 5)
    with utvm_deploy.connect("host") as device:
        found = device.load(utvm_deploy.compile(module, "host"), into="ram")(given)
    np.testing.assert_array_equal(np.asarray(found), given + mask)


def test_a_convolution_with_an_activation_without_an_upper_limit_compiles_for_an_fpu() -> None:
    layout = {"data_layout": "NHWC", "kernel_layout": "HWIO"}
    weights = relax.const(np.ones((3, 3, 4, 8), np.float32))
    x = relax.Var("x", relax.TensorType((1, 8, 8, 4), "float32"))
    builder = relax.BlockBuilder()
    with builder.function("main", [x]):
        with builder.dataflow():
            y = builder.emit(relax.op.nn.conv2d(x, weights, **layout))
            y = builder.emit_output(relax.op.nn.relu(y))
        builder.emit_func_output(y)
    compiled = utvm_deploy.compile(builder.finalize(), "mps2_an500")
    assert any("__builtin_inff()" in text for text in compiled.sources.values())
