"""FULLY_CONNECTED: each row of the batch by a routine that a family brings along."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np

from utvm_deploy.graph.model import Array
from utvm_deploy.kernels.contract.c_texts import shared_text
from utvm_deploy.kernels.contract.call import ConstantArgument, KernelCall
from utvm_deploy.kernels.contract.driver import Argument, Driver, Operand
from utvm_deploy.kernels.native.layer_tables import DenseTables

#: Words of a scale: multiplier, low and high word of the offset, shift - 32.
SCALE_WORDS = 4


@dataclass(frozen=True)
class DenseRoutine(ABC):
    """A routine that computes a row of outputs, and the tables that it reads.

    Each routine has its own layout of weights and bias. The other tables, unless a subclass
    changes them:
        scaling  int32 [1 or output][multiplier, low and high word of the offset, shift - 32]
        limits   int32 [low, high]
    """

    per_channel: bool  # each output has a scale

    #: C declarations. ``DenseLayer`` knows by their names what the routine is called with.
    parameters: ClassVar[tuple[str, ...]]

    @property
    @abstractmethod
    def label(self) -> str:
        """Part of the kernel's name."""

    @property
    @abstractmethod
    def why(self) -> str:
        """What it does, for the report."""

    @property
    @abstractmethod
    def function(self) -> str:
        """The C function's name."""

    @abstractmethod
    def text(self, core: str) -> str:
        """The C text of the function, ordered for a core."""

    @abstractmethod
    def padded(self, inputs: int) -> int:
        """Inputs that there are weights for."""

    def filled(self, outputs: int) -> int:
        """Outputs that the bias and the scaling have entries for."""
        return outputs

    def weights_bytes(self, inputs: int, outputs: int) -> int:
        """The size of the packed weights."""
        return self.padded(inputs) * outputs

    def scratch(self, inputs: int) -> tuple[Operand, ...]:
        """Scratch: its names, sizes and types."""
        return ()

    def tables(self, inputs: int, outputs: int) -> tuple[Operand, ...]:
        """The constant arguments of the kernel."""
        filled = self.filled(outputs)
        return (
            Operand("weights", (self.weights_bytes(inputs, outputs),), "int8"),
            Operand("bias", (filled,), "int32"),
            Operand("scaling", ((filled if self.per_channel else 1) * SCALE_WORDS,), "int32"),
            Operand("limits", (2,), "int32"),
        )

    def pack(self, layer: DenseTables) -> tuple[Array, ...]:
        """What ``tables`` hold for a layer."""
        filled = self.filled(layer.bias.size) if self.per_channel else 1
        scaling = np.zeros((filled, SCALE_WORDS), np.int32)
        scaling[: len(layer.scales)] = layer.scales
        limits = np.array(layer.limits, np.int32)
        weights, bias = self.pack_weights(layer.weights), self.pack_bias(layer.bias)
        return weights, bias, scaling.reshape(-1), limits

    @abstractmethod
    def pack_weights(self, weights: Array) -> Array:
        """[outputs, inputs] -> the routine's layout."""

    def pack_bias(self, bias: Array) -> Array:
        """[outputs] -> the routine's layout."""
        return bias.astype(np.int32)


@dataclass(frozen=True)
class DenseLayer:
    """Shape parameters of a fully connected layer, and the routine that computes it."""

    batch: int
    inputs: int
    outputs: int
    routine: DenseRoutine

    @property
    def name(self) -> str:
        batch = f"_n{self.batch}" if self.batch != 1 else ""
        return f"fully_connected{batch}_{self.inputs}x{self.outputs}_{self.routine.label}"

    @property
    def why(self) -> str:
        return self.routine.why

    @property
    def tables(self) -> tuple[Operand, ...]:
        """The constant arguments."""
        return self.routine.tables(self.inputs, self.outputs)

    @property
    def scratch(self) -> tuple[Operand, ...]:
        return self.routine.scratch(self.inputs)

    @property
    def parameters(self) -> tuple[Operand | str, ...]:
        return self._source, *self.tables, self._output

    def texts(self, core: str) -> tuple[str, ...]:
        return shared_text("utvm_scale_wide"), self.routine.text(core)

    def drive(self, c: Driver) -> None:
        values: dict[str, Argument] = {
            **{one.name: one.at() for one in (*self.tables, *self.scratch)},
            "inputs": self.inputs,
            "padded": self.routine.padded(self.inputs),
            "outputs": self.outputs,
            "scaling_step": SCALE_WORDS if self.routine.per_channel else 0,
        }
        with c.loop("row", self.batch) as row:
            values["vector"] = self._source.at(row * self.inputs)
            values["output"] = self._output.at(row * self.outputs)
            names = (one.split()[-1].lstrip("*") for one in self.routine.parameters)
            c.call(self.routine.function, *(values[name] for name in names))

    @property
    def _source(self) -> Operand:
        return Operand("source", (self.batch, self.inputs), "int8")

    @property
    def _output(self) -> Operand:
        return Operand("output", (self.batch, self.outputs), "int8")


def dense_call(call: KernelCall, layer: DenseTables, routine: DenseRoutine) -> KernelCall:
    """The call instead of the portable one."""
    outputs, inputs = layer.weights.shape
    kernel = DenseLayer(layer.batch, inputs, outputs, routine)
    packed = zip(kernel.tables, routine.pack(layer), strict=True)
    constants = (ConstantArgument(operand.name, data) for operand, data in packed)
    source, *_, output = call.arguments
    return replace(call, kernel=kernel, arguments=(source, *constants, output))
