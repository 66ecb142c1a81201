"""SVDF: each filter's new feature pushes out its oldest; all are weighted over time and summed."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from utvm_deploy.graph.attributes import Svdf
from utvm_deploy.graph.model import Graph, Operator
from utvm_deploy.kernels.contract.c_texts import shared_text
from utvm_deploy.kernels.contract.call import (
    ConstantArgument,
    KernelCall,
    ScalarArgument,
    TensorArgument,
)
from utvm_deploy.kernels.contract.driver import Operand
from utvm_deploy.kernels.contract.operands import (
    bias_of_position,
    constant_of,
    input_of,
    operand_of,
    quantization_of,
)
from utvm_deploy.kernels.contract.requantization import fold_input_offset, quantize_multiplier
from utvm_deploy.kernels.contract.routine_call import RoutineCall, RoutineKernel
from utvm_deploy.kernels.native.routines.dot import ROWS, dot_texts

_SCALARS = (
    "feature_multiplier", "feature_shift",
    "output_multiplier", "output_shift", "output_zero_point",
)  # fmt: skip


@dataclass(frozen=True)
class SvdfStep(RoutineKernel):
    """One step in time; the state may be written where it is read."""

    batch: int
    inputs: int
    filters: int
    memory: int
    rank: int

    @property
    def name(self) -> str:
        return f"svdf_{self.batch}x{self.inputs}_f{self.filters}_m{self.memory}_r{self.rank}"

    why: ClassVar[str] = f"C, {ROWS} filters' products at a time"

    @property
    def routine(self) -> RoutineCall:
        units, filters = self.filters // self.rank, self.filters
        states = (self.batch * filters * self.memory,)
        parameters = (
            Operand("input", (self.batch * self.inputs,), "int8"),
            Operand("features", (filters * self.inputs,), "int8"),
            Operand("offsets", (filters,), "int32"),
            Operand("times", (filters * self.memory,), "int16"),
            Operand("bias", (units,), "int32"),
            Operand("state", states, "int16"),
            *_SCALARS,
            Operand("output", (self.batch * units,), "int8"),
            Operand("state_after", states, "int16"),
        )
        sizes = (self.batch, self.inputs, filters, self.memory, self.rank)
        return RoutineCall("utvm_svdf", parameters, sizes, (Operand("sums", (filters,), "int32"),))

    def texts(self, core: str) -> tuple[str, ...]:
        return (*dot_texts(core), shared_text("utvm_svdf"))


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
    none, zero_point = np.zeros(filters, np.int32), quantization_of(source).zero_point
    return KernelCall(
        SvdfStep(source.shape[0], inputs, filters, times.shape[1], rank),
        (
            operand_of(position, source),
            ConstantArgument("features", features),
            ConstantArgument("offsets", fold_input_offset(none, features, zero_point)),
            ConstantArgument("times", times),
            ConstantArgument("bias", bias_of_position(graph, operator, filters // rank, 3)),
            TensorArgument(before),
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


LOWERINGS = {"SVDF": lower_svdf}
