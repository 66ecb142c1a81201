"""An operator in its graph, as a lowering sees it, and the call that a lowering makes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias, TypeVar

import numpy as np

from utvm_deploy.graph.model import Array, Graph, Operator, Quantization, Tensor
from utvm_deploy.graph.shapes import attributes_of
from utvm_deploy.kernels.contract.call import (
    AnyKernel,
    Argument,
    ConstantArgument,
    KernelCall,
    ScalarArgument,
    TensorArgument,
)
from utvm_deploy.kernels.contract.operands import (
    bias_of,
    constant_of,
    effective_scales,
    ends_of,
    input_of,
    operand_of,
    output_of,
    quantization_of,
)

_A = TypeVar("_A")
#: What a kernel takes between its inputs and its outputs, in this order: tables in flash, int32
#: values, and further activations.
Parameters: TypeAlias = Mapping[str, Array | int | TensorArgument]


@dataclass(frozen=True)
class Operation:
    """An operator and the graph that has its tensors."""

    graph: Graph
    operator: Operator

    @property
    def kind(self) -> str:
        """TFLite's name of the operator."""
        return self.operator.kind

    def attributes(self, expected: type[_A]) -> _A:
        """The operator's attributes, which must be of this class."""
        return attributes_of(self.operator, expected)

    def input(self, index: int) -> Tensor:
        """A required input."""
        return input_of(self.graph, self.operator, index)[1]

    @property
    def source(self) -> Tensor:
        """The first input."""
        return self.input(0)

    @property
    def result(self) -> Tensor:
        """The only output."""
        return output_of(self.graph, self.operator)[1]

    @property
    def ends(self) -> tuple[Quantization, Quantization]:
        """The quantizations of the first input and of the output."""
        return ends_of(self.graph, self.operator)

    def constant(self, index: int) -> Array:
        """The data of an input that must be a constant."""
        return constant_of(self.graph, self.operator, index)

    def bias(self, channels: int) -> Array:
        """The int32 bias of an operator with weights; zeros if it has none."""
        return bias_of(self.graph, self.operator, channels)

    def scales(self, channels: int) -> list[float]:
        """Per output channel: input scale * weight scale / output scale, in double precision."""
        return effective_scales(self.graph, self.operator, channels)

    def output_parameters(self, clamp: tuple[int, int]) -> dict[str, int]:
        """The last parameters of most kernels: the output's zero point and its limits."""
        zero_point = quantization_of(self.result).zero_point
        return {"output_zero_point": zero_point, "low": clamp[0], "high": clamp[1]}

    def call(
        self,
        kernel: AnyKernel,
        parameters: Parameters | None = None,
        *,
        inputs: Sequence[int] = (0,),
        in_place: Iterable[int] = (),
        macs: int = 0,
    ) -> KernelCall:
        """The call with the inputs number ``inputs``, then ``parameters``, then the outputs.

        The first output may lie exactly on the inputs number ``in_place``, if they are not
        constants.
        """
        given = {i: input_of(self.graph, self.operator, i) for i in inputs}
        passed = [_argument(name, value) for name, value in (parameters or {}).items()]
        outputs = self.operator.outputs
        return KernelCall(
            kernel,
            (
                *(operand_of(*one) for one in given.values()),
                *passed,
                *map(TensorArgument, outputs),
            ),
            in_place=tuple((outputs[0], given[i][0]) for i in in_place if given[i][1].data is None),
            macs=macs,
        )


def _argument(name: str, value: Array | int | TensorArgument) -> Argument:
    if isinstance(value, TensorArgument):
        return value
    if isinstance(value, np.ndarray):
        return ConstantArgument(name, value)
    return ScalarArgument(name, value)


#: Turns an operator into the call of a kernel.
Lowering: TypeAlias = Callable[[Operation], KernelCall]
