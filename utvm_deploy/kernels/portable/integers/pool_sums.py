"""POOL_SUMS and POOL_AVERAGES: an average over an image whose rows come in strips."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from utvm_deploy.graph.attributes import PoolAverages
from utvm_deploy.kernels.contract.c_texts import shared_text
from utvm_deploy.kernels.contract.call import KernelCall
from utvm_deploy.kernels.contract.driver import Driver, Operand
from utvm_deploy.kernels.contract.operation import Operation

_TEXTS = tuple(map(shared_text, ("utvm_word", "utvm_byte_sums", "utvm_pool_sums")))


@dataclass(frozen=True)
class PoolSum:
    """``sums[c] = before[c] + sum of x[p, c]``, of int8 pixels; the first rows have no before."""

    pixels: int
    channels: int
    is_first: bool

    scratch: ClassVar[tuple[Operand, ...]] = ()
    why: ClassVar[str] = "C, sums of bytes by words"

    @property
    def name(self) -> str:
        first = "first_" if self.is_first else ""
        return f"{first}pool_sums_{self.pixels}_{self.channels}"

    @property
    def parameters(self) -> tuple[Operand | str, ...]:
        source, before, sums = self._operands
        return (source, sums) if self.is_first else (source, before, sums)

    def texts(self, core: str) -> tuple[str, ...]:
        return _TEXTS

    def drive(self, c: Driver) -> None:
        source, before, sums = (one.at() for one in self._operands)
        if self.is_first:
            c.call("utvm_sum_block", source, self.pixels, self.channels, self.channels, sums)
        else:
            c.call("utvm_pool_sums", source, before, sums, self.pixels, self.channels)

    @property
    def _operands(self) -> tuple[Operand, Operand, Operand]:
        source = Operand("source", (self.pixels, self.channels), "int8")
        before, sums = (Operand(name, (self.channels,), "int32") for name in ("before", "sums"))
        return source, before, sums


@dataclass(frozen=True)
class PoolAverage:
    """The int8 average of each channel, from its sum; rounded half away from zero, and clamped."""

    channels: int
    count: int

    scratch: ClassVar[tuple[Operand, ...]] = ()
    why: ClassVar[str] = "C, one channel at a time"

    @property
    def name(self) -> str:
        return f"pool_averages_{self.count}_{self.channels}"

    @property
    def parameters(self) -> tuple[Operand | str, ...]:
        return self._sums, "low", "high", self._output

    def texts(self, core: str) -> tuple[str, ...]:
        return _TEXTS

    def drive(self, c: Driver) -> None:
        places = self._sums.at(), self._output.at()
        c.call("utvm_pool_averages", *places, self.count, "low", "high", self.channels)

    @property
    def _sums(self) -> Operand:
        return Operand("sums", (self.channels,), "int32")

    @property
    def _output(self) -> Operand:
        return Operand("output", (self.channels,), "int8")


def lower_pool_sums(op: Operation) -> KernelCall:
    """POOL_SUMS: pixels are added to the sums so far, which are the second input, if any."""
    *_, height, width, channels = op.source.shape
    inputs = range(len(op.operator.inputs))
    kernel = PoolSum(height * width, channels, is_first=len(inputs) == 1)
    return op.call(kernel, inputs=inputs, in_place=inputs[1:])


def lower_pool_averages(op: Operation) -> KernelCall:
    """POOL_AVERAGES of the sums of all pixels."""
    a = op.attributes(PoolAverages)
    low, high = a.clamp
    kernel = PoolAverage(op.source.shape[-1], a.count)
    return op.call(kernel, {"low": low, "high": high})


LOWERINGS = {"POOL_AVERAGES": lower_pool_averages, "POOL_SUMS": lower_pool_sums}
