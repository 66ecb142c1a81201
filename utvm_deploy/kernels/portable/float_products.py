"""Products of float32 with weights: FULLY_CONNECTED.

The order of additions is that of LiteRT's reference kernels: one sum that begins with 0, in the
order of the weights, then the bias. So results have equal bits.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from utvm_deploy.graph.attributes import FullyConnected, Limits
from utvm_deploy.kernels.contract.call import KernelCall
from utvm_deploy.kernels.contract.lazy_tvm import te
from utvm_deploy.kernels.contract.operation import Lowering, Operation
from utvm_deploy.kernels.portable.float_values import limited, limits_label
from utvm_deploy.kernels.portable.skeletons import DefaultLoops


@dataclass(frozen=True)
class FloatDense(DefaultLoops):
    """FULLY_CONNECTED; a row of weights for each output."""

    batch: int
    depth: int
    outputs: int
    limits: Limits

    @property
    def name(self) -> str:
        label = limits_label(self.limits)
        return f"dense_float_{self.batch}x{self.depth}_{self.outputs}{label}"

    def prim_func(self) -> Any:
        x = te.placeholder((self.batch, self.depth), "float32", "input")
        weights = te.placeholder((self.outputs, self.depth), "float32", "weights")
        bias = te.placeholder((self.outputs,), "float32", "bias")
        k = te.reduce_axis((0, self.depth), "k")
        sums = te.compute(
            (self.batch, self.outputs), lambda i, o: te.sum(x[i, k] * weights[o, k], k), "sums"
        )
        output = te.compute(
            (self.batch, self.outputs),
            lambda i, o: limited(sums[i, o] + bias[o], self.limits),
            "output",
        )
        return te.create_prim_func([x, weights, bias, output])


def lower_dense(op: Operation) -> KernelCall:
    """FULLY_CONNECTED."""
    outputs, depth = op.input(1).shape
    batch = int(np.prod(op.result.shape)) // outputs
    kernel = FloatDense(batch, depth, outputs, op.attributes(FullyConnected).limits)
    parameters = {"weights": op.constant(1), "bias": float_bias(op, outputs)}
    return op.call(kernel, parameters, macs=batch * outputs * depth)


def float_bias(op: Operation, channels: int, index: int = 2) -> Any:
    """The bias at an input, or zeros, which the reference adds, too."""
    inputs = op.operator.inputs
    if len(inputs) <= index or inputs[index] is None:
        return np.zeros(channels, dtype=np.float32)
    return op.constant(index)


FLOAT_LOWERINGS: Mapping[str, Lowering] = {"FULLY_CONNECTED": lower_dense}
