"""FULLY_CONNECTED for cores with the DSP extension: what its kernels share, a row at a time."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any, ClassVar

from utvm_deploy.kernels.contract.c_texts import shared_text
from utvm_deploy.kernels.portable.tensor_ir import Buffers, Operand, block, prim_func, pure, script

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

    #: What rows are computed in, beside the output.
    _temporaries: ClassVar[tuple[str, ...]] = ("sums",)

    @property
    def name(self) -> str:
        batch = f"_n{self.batch}" if self.batch != 1 else ""
        channel = "_per_channel" if self.per_channel else ""
        return f"fully_connected{batch}_{self.inputs}x{self.outputs}{channel}_dsp"

    @property
    def scaling_step(self) -> int:
        """Words from an output's scales to the next output's."""
        return SCALING_WORDS if self.per_channel else 0

    def prim_func(self) -> Any:
        operands = {one.name: one for one in self._operands}
        tables = [operands[name] for name in ("weights", "bias", "scaling", "limits")]
        temporaries = [operands[name] for name in self._temporaries]
        source = Operand("source", (self.batch, self.inputs), "int8")
        output = Operand("output", (self.batch, self.outputs), "int8")

        def body(buffers: Buffers) -> None:
            with script.grid(self.batch, 1) as (n, one), script.sblock("row"):
                vn, _ = script.axis.remap("SS", [n, one])
                script.reads(
                    buffers["source"][vn, 0 : self.inputs], *(o.region(buffers) for o in tables)
                )
                script.writes(
                    *(o.region(buffers) for o in temporaries),
                    buffers["output"][vn, 0 : self.outputs],
                )
                self._meaning(buffers, (vn,))

        parameters = [source, *tables, output]
        return prim_func(parameters, temporaries, body, helpers=[shared_text("utvm_scale_wide")])

    @property
    @abstractmethod
    def _operands(self) -> tuple[Operand, ...]:
        """A row of the input, "vector"; tables; temporaries; a row of the output."""

    @abstractmethod
    def _meaning(self, buffers: Buffers, row: tuple[Any, ...] = ()) -> None:
        """What one row of the batch does."""

    def _requantize(self, buffers: Buffers, row: tuple[Any, ...]) -> None:
        """The last block of a row: outputs from sums."""
        sums, scaling, limits = (buffers[name] for name in ("sums", "scaling", "limits"))

        def requantize(o: Any) -> None:
            numbers = (scaling[o * self.scaling_step + n] for n in range(SCALING_WORDS))
            clamped = pure(
                "utvm_clamp", pure("utvm_scale_wide", sums[o], *numbers), limits[0], limits[1]
            )
            script.buffer_store(buffers["output"], clamped.astype("int8"), [*row, o])

        block("requantize", [("o", self.outputs, "S")], requantize)
