"""FULLY_CONNECTED: each row of the batch by a routine that a family brings along."""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np

from utvm_deploy.graph.model import Array
from utvm_deploy.kernels.contract.c_texts import shared_text
from utvm_deploy.kernels.contract.call import ConstantArgument, KernelCall
from utvm_deploy.kernels.contract.driver import Argument, Driver, Operand
from utvm_deploy.kernels.contract.reading import Reading
from utvm_deploy.kernels.native.layer_tables import DenseTables

#: Words of a scale: multiplier, low and high word of the offset, shift - 32.
SCALE_WORDS = 4


@dataclass(frozen=True)
class DenseRoutine(ABC):
    """A routine that computes a row of outputs, and the tables that it reads."""

    per_channel: bool  # each output has its own scale

    @property
    @abstractmethod
    def parameters(self) -> str:
        """As C declares them. ``DenseLayer.drive`` knows them by their names."""

    #: Part of the kernel's name for layers with one scale, and for those with one for each output.
    labels: ClassVar[tuple[str, str]]

    @property
    def label(self) -> str:
        """Ends the kernel's name."""
        return self.labels[self.per_channel]

    @property
    @abstractmethod
    def why(self) -> str:
        """What it does, for the report."""

    @property
    @abstractmethod
    def function(self) -> str:
        """The C function's name."""

    @property
    def unpacked_part(self) -> float:
        """What a weight of int4 takes to unpack, as a part of what that into scratch takes."""
        return 0.0

    @property
    def helpers(self) -> tuple[str, ...]:
        """C texts that the function needs."""
        return ()

    @abstractmethod
    def text(self, core: str) -> str:
        """The C text of the function, ordered for a core."""

    @abstractmethod
    def pack(self, layer: DenseTables) -> dict[str, Array]:
        """The tables by the names of the parameters; their shapes depend on the layer's alone."""

    def padded(self, inputs: int) -> int:
        """Inputs that are multiplied, zeros included."""
        return inputs

    def scratch(self, inputs: int) -> tuple[Operand, ...]:
        """Scratch: its names, sizes and types."""
        return ()


@dataclass(frozen=True)
class DenseLayer:
    """Shape parameters of a fully connected layer, its routine, and the tables of the routine."""

    batch: int
    inputs: int
    outputs: int
    routine: DenseRoutine
    tables: tuple[Operand, ...]

    @property
    def name(self) -> str:
        batch = f"_n{self.batch}" if self.batch != 1 else ""
        return f"fully_connected{batch}_{self.inputs}x{self.outputs}_{self.routine.label}"

    @property
    def why(self) -> str:
        return self.routine.why

    @property
    def scratch(self) -> tuple[Operand, ...]:
        return self.routine.scratch(self.inputs)

    @property
    def reading(self) -> Reading:
        weights = self.inputs * self.outputs * self.batch
        return Reading(rewidens=True, unpacked=int(self.routine.unpacked_part * weights))

    @property
    def parameters(self) -> tuple[Operand | str, ...]:
        source, output = self._activations
        return source, *self.tables, output

    def texts(self, core: str) -> tuple[str, ...]:
        return shared_text("utvm_scale_wide"), *self.routine.helpers, self.routine.text(core)

    def drive(self, c: Driver) -> None:
        values: dict[str, Argument] = {
            **{one.name: one.at() for one in (*self.tables, *self.scratch)},
            "inputs": self.inputs,
            "padded": self.routine.padded(self.inputs),
            "outputs": self.outputs,
            "scaling_step": SCALE_WORDS if self.routine.per_channel else 0,
        }
        names = re.findall(r"\w+(?=,|\s*$)", self.routine.parameters)
        source, output = self._activations
        with c.loop("row", self.batch) as row:
            values["vector"] = source.at(row)
            values["output"] = output.at(row)
            c.call(self.routine.function, *(values[name] for name in names))

    @property
    def _activations(self) -> tuple[Operand, Operand]:
        source = Operand("source", (self.batch, self.inputs), "int8")
        return source, Operand("output", (self.batch, self.outputs), "int8")


def dense_call(call: KernelCall, layer: DenseTables, routine: DenseRoutine) -> KernelCall:
    """The call instead of the portable one."""
    (outputs, inputs), packed = layer.weights.shape, routine.pack(layer)
    tables = tuple(Operand(name, data.shape, data.dtype.name) for name, data in packed.items())
    kernel = DenseLayer(layer.batch, inputs, outputs, routine, tables)
    constants = (ConstantArgument(name, data) for name, data in packed.items())
    source, *_, output = call.arguments
    return replace(call, kernel=kernel, arguments=(source, *constants, output))


def pack_scales(layer: DenseTables, outputs: int) -> dict[str, Array]:
    """The tables of scales and limits, with ``outputs`` scales if the layer has more than one.

    scaling  int32 [1 or output][multiplier, low and high word of the offset, shift - 32]
    limits   int32 [low, high]
    """
    scaling = np.zeros((outputs if len(layer.scales) > 1 else 1, SCALE_WORDS), np.int32)
    scaling[: len(layer.scales)] = layer.scales
    return {"scaling": scaling.reshape(-1), "limits": np.array(layer.limits, np.int32)}
