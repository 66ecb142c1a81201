"""An operator in its graph, as a lowering sees it, and the call that a lowering makes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias, TypeVar

import numpy as np

from utvm_deploy.base.errors import CompileError
from utvm_deploy.graph.attributes import FullyConnected
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
from utvm_deploy.kernels.contract.operands import quantization_of
from utvm_deploy.kernels.contract.packed_weights import weights_table

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

    def position(self, index: int) -> int:
        """Where a required input is in ``Graph.tensors``."""
        inputs = self.operator.inputs
        position = inputs[index] if index < len(inputs) else None
        if position is None:
            raise CompileError(f"{self.kind} of {self._label} lacks input {index}")
        return position

    def input(self, index: int) -> Tensor:
        """A required input."""
        return self.graph.tensors[self.position(index)]

    def argument(self, index: int) -> Argument:
        """The argument for a required input, which may be computed or constant."""
        data = self.input(index).data
        if data is None:
            return TensorArgument(self.position(index))
        return ConstantArgument("operand", weights_table(data, self.input(index).dtype))

    @property
    def source(self) -> Tensor:
        """The first input."""
        return self.input(0)

    @property
    def result(self) -> Tensor:
        """The only output."""
        (position,) = self.operator.outputs
        return self.graph.tensors[position]

    @property
    def ends(self) -> tuple[Quantization, Quantization]:
        """The quantizations of the first input and of the output."""
        return quantization_of(self.source), quantization_of(self.result)

    def constant(self, index: int) -> Array:
        """The data of an input that must be a constant."""
        tensor = self.input(index)
        if tensor.data is None:
            raise CompileError(
                f"{self.kind} of {self._label} takes {tensor.name} as input {index}, which is "
                "computed; only constants are supported there"
            )
        return tensor.data

    def bias(self, channels: int, index: int = 2) -> Array:
        """The bias at an input, or zeros of int32 if the operator has none."""
        inputs = self.operator.inputs
        if len(inputs) <= index or inputs[index] is None:
            return np.zeros(channels, dtype=np.int32)
        return self.constant(index)

    def scales(self, channels: int) -> list[float]:
        """Per output channel: input scale * weight scale / output scale, in double precision."""
        attributes = self.operator.attributes
        if isinstance(attributes, FullyConnected) and attributes.factors:
            return list(attributes.factors)
        source, result = (one.scale for one in self.ends)
        weights = quantization_of(self.input(1)).scales
        if len(weights) == 1:
            weights *= channels
        return [source * weight / result for weight in weights]

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
        passed = [_argument(name, value) for name, value in (parameters or {}).items()]
        outputs = self.operator.outputs
        return KernelCall(
            kernel,
            (*map(self.argument, inputs), *passed, *map(TensorArgument, outputs)),
            in_place=tuple(
                (outputs[0], self.position(i)) for i in in_place if self.input(i).data is None
            ),
            macs=macs,
        )

    @property
    def _label(self) -> str:
        """How messages name the operator: by its first output."""
        return self.graph.tensors[self.operator.outputs[0]].name


def _argument(name: str, value: Array | int | TensorArgument) -> Argument:
    if isinstance(value, TensorArgument):
        return value
    if isinstance(value, np.ndarray):
        return ConstantArgument(name, value)
    return ScalarArgument(name, value)


#: Turns an operator into the call of a kernel.
Lowering: TypeAlias = Callable[[Operation], KernelCall]
