"""SVDF: each filter's new feature pushes out its oldest; all are weighted over time and summed."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from tvm import te, tirx

from utvm_deploy.graph.attributes import Svdf
from utvm_deploy.graph.model import Graph, Operator
from utvm_deploy.kernels.call import ConstantArgument, KernelCall, ScalarArgument, TensorArgument
from utvm_deploy.kernels.operands import (
    bias_of_position,
    constant_of,
    input_of,
    operand_of,
    quantization_of,
)
from utvm_deploy.kernels.quantize import (
    add_wrapping,
    clamped,
    quantize_multiplier,
    requantize,
)

_FEATURE = ("input_zero_point", "feature_multiplier", "feature_shift")
_OUTPUT = ("output_multiplier", "output_shift", "output_zero_point")


@dataclass(frozen=True)
class SvdfStep:
    """One step in time; the state may be written where it is read."""

    batch: int
    inputs: int
    filters: int
    memory: int
    rank: int

    @property
    def name(self) -> str:
        return f"svdf_{self.batch}x{self.inputs}_f{self.filters}_m{self.memory}_r{self.rank}"

    def prim_func(self) -> Any:
        units = self.filters // self.rank
        source = te.placeholder((self.batch, self.inputs), "int8", "input")
        features = te.placeholder((self.filters, self.inputs), "int8", "features")
        times = te.placeholder((self.filters, self.memory), "int16", "times")
        bias = te.placeholder((units,), "int32", "bias")
        shape = (self.batch, self.filters, self.memory)
        before = te.placeholder(shape, "int16", "state")
        scalars = {name: te.var(name, "int32") for name in (*_FEATURE, *_OUTPUT)}
        zero_point, feature_multiplier, feature_shift = (scalars[name] for name in _FEATURE)
        output_multiplier, output_shift, output_zero_point = (scalars[name] for name in _OUTPUT)
        k = te.reduce_axis((0, self.inputs), "k")
        products = te.compute(
            shape[:2],
            lambda b, f: te.sum(
                (source[b, k].astype("int32") - zero_point) * features[f, k].astype("int32"), k
            ),
            name="products",
        )
        last = self.memory - 1

        def next_state(b: Any, f: Any, m: Any) -> Any:
            newest = clamped(
                requantize(products[b, f], feature_multiplier, feature_shift),
                -32768,
                32767,
                "int16",
            )
            if last == 0:
                return newest
            return tirx.if_then_else(m < last, before[b, f, m + 1], newest)

        after = te.compute(shape, next_state, name="state_after")
        r = te.reduce_axis((0, self.rank), "r")
        m = te.reduce_axis((0, self.memory), "m")
        sums = te.compute(
            (self.batch, units),
            lambda b, u: te.sum(
                after[b, u * self.rank + r, m].astype("int32")
                * times[u * self.rank + r, m].astype("int32"),
                axis=[r, m],
            ),
            name="sums",
        )
        output = te.compute(
            (self.batch, units),
            lambda b, u: clamped(
                requantize(add_wrapping(sums[b, u], bias[u]), output_multiplier, output_shift)
                + output_zero_point,
                -128,
                127,
                "int8",
            ),
            name="requantize",
        )
        operands = [source, features, times, bias, before]
        return te.create_prim_func([*operands, *scalars.values(), output, after])

    def schedule(self, sch: Any, core: str) -> str:
        for name in ("products", "sums"):
            block = sch.get_sblock(name)
            sch.decompose_reduction(block, sch.get_loops(block)[2])
        return "generic C, one element at a time"


def lower_svdf(graph: Graph, operator: Operator) -> KernelCall:
    """SVDF, whose state the arena keeps."""
    assert isinstance(operator.attributes, Svdf)
    position, source = input_of(graph, operator, 0)
    features, times = constant_of(graph, operator, 1), constant_of(graph, operator, 2)
    before, state = input_of(graph, operator, 4)
    output, after = operator.outputs
    result = graph.tensors[output]
    filters, inputs = features.shape
    # These scales are products and quotients of float32.
    x, by_features, by_times, kept, made = (
        np.float32(quantization_of(tensor).scale)
        for tensor in (
            source,
            input_of(graph, operator, 1)[1],
            input_of(graph, operator, 2)[1],
            state,
            result,
        )
    )
    feature_multiplier, feature_shift = quantize_multiplier(float(x * by_features / kept))
    output_multiplier, output_shift = quantize_multiplier(float(kept * by_times / made))
    rank = operator.attributes.rank
    return KernelCall(
        SvdfStep(source.shape[0], inputs, filters, times.shape[1], rank),
        (
            operand_of(position, source),
            ConstantArgument("features", features),
            ConstantArgument("times", times),
            ConstantArgument("bias", bias_of_position(graph, operator, filters // rank, 3)),
            TensorArgument(before),
            ScalarArgument("input_zero_point", quantization_of(source).zero_point),
            ScalarArgument("feature_multiplier", feature_multiplier),
            ScalarArgument("feature_shift", feature_shift),
            ScalarArgument("output_multiplier", output_multiplier),
            ScalarArgument("output_shift", output_shift),
            ScalarArgument("output_zero_point", quantization_of(result).zero_point),
            TensorArgument(output),
            TensorArgument(after),
        ),
        in_place=((after, before),),
        macs=source.shape[0] * filters * (inputs + times.shape[1]),
    )
