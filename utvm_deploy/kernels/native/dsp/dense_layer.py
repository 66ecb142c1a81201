"""FULLY_CONNECTED for cores with the DSP extension: what its kernels share, a row at a time."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass

from utvm_deploy.kernels.contract.driver import Address, Driver, Operand

#: Words of a row of scales: multiplier, low and high word of the offset, shift - 32.
SCALING_WORDS = 4


@dataclass(frozen=True)
class DenseLayer(ABC):
    """Shape parameters of a fully connected layer."""

    batch: int
    inputs: int
    outputs: int
    # A scale for each output, instead of one.
    per_channel: bool

    @property
    def name(self) -> str:
        batch = f"_n{self.batch}" if self.batch != 1 else ""
        channel = "_per_channel" if self.per_channel else ""
        return f"fully_connected{batch}_{self.inputs}x{self.outputs}{channel}_dsp"

    @property
    def scaling_step(self) -> int:
        """Words from an output's scales to the next output's."""
        return SCALING_WORDS if self.per_channel else 0

    @property
    def parameters(self) -> tuple[Operand | str, ...]:
        return self._source, *self._tables, self._output

    def drive(self, c: Driver) -> None:
        source, output = self._source, self._output
        with c.loop("row", self.batch) as row:
            self._row(c, source.at(row * self.inputs), output.at(row * self.outputs))

    @property
    @abstractmethod
    def _tables(self) -> tuple[Operand, Operand, Operand, Operand]:
        """Weights, bias, scaling and limits."""

    @abstractmethod
    def _row(self, c: Driver, source: Address, output: Address) -> None:
        """Call the routine for a row of the batch."""

    @property
    def _source(self) -> Operand:
        return Operand("source", (self.batch, self.inputs), "int8")

    @property
    def _output(self) -> Operand:
        return Operand("output", (self.batch, self.outputs), "int8")
