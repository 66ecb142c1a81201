"""SVDF: each filter's new feature pushes out its oldest; all are weighted over time and summed."""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import chain
from typing import ClassVar

import numpy as np

from utvm_deploy.graph.attributes import Svdf
from utvm_deploy.graph.model import Graph, Operator
from utvm_deploy.kernels.contract.c_texts import shared_text
from utvm_deploy.kernels.contract.call import KernelCall, TensorArgument
from utvm_deploy.kernels.contract.driver import Operand, buffers
from utvm_deploy.kernels.contract.operands import (
    bias_of,
    constant_of,
    input_of,
    kernel_call,
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
        parameters = (
            *buffers(input="int8", features="int8", offsets="int32", times="int16"),
            *buffers(bias="int32", state="int16"),
            *_SCALARS,
            *buffers(output="int8", state_after="int16"),
        )
        sizes = (self.batch, self.inputs, self.filters, self.memory, self.rank)
        sums = Operand("sums", (self.filters,), "int32")
        return RoutineCall("utvm_svdf", parameters, sizes, (sums,))

    def texts(self, core: str) -> tuple[str, ...]:
        return (*dot_texts(core), shared_text("utvm_svdf"))


def lower_svdf(graph: Graph, operator: Operator) -> KernelCall:
    """SVDF, whose state the arena keeps."""
    assert isinstance(operator.attributes, Svdf)
    tensors = [input_of(graph, operator, index) for index in (0, 1, 2, 4)]
    batch, zero_point = tensors[0][1].shape[0], quantization_of(tensors[0][1]).zero_point
    result = graph.tensors[operator.outputs[0]]
    features, times = constant_of(graph, operator, 1), constant_of(graph, operator, 2)
    (filters, inputs), rank = features.shape, operator.attributes.rank
    # These scales are products and quotients of float32.
    source, by_features, by_times, state, made = (
        np.float32(quantization_of(one).scale) for one in (*(t for _, t in tensors), result)
    )
    scales = float(source * by_features / state), float(state * by_times / made)
    before = tensors[3][0]
    numbers = [*chain(*map(quantize_multiplier, scales)), quantization_of(result).zero_point]
    call = kernel_call(
        graph,
        operator,
        SvdfStep(batch, inputs, filters, times.shape[1], rank),
        {
            "features": features,
            "offsets": fold_input_offset(np.zeros(filters, np.int32), features, zero_point),
            "times": times,
            "bias": bias_of(graph, operator, filters // rank, 3),
            "state": TensorArgument(before),
            **dict(zip(_SCALARS, numbers, strict=True)),
        },
        macs=batch * filters * (inputs + times.shape[1]),
    )
    return replace(call, in_place=((operator.outputs[1], before),))


LOWERINGS = {"SVDF": lower_svdf}
