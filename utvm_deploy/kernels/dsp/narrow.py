"""FULLY_CONNECTED of few outputs for cores with the DSP extension: all outputs at a time."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from utvm_deploy.graph.model import Array
from utvm_deploy.kernels.call import ConstantArgument, KernelCall
from utvm_deploy.kernels.dsp import narrow_code as code
from utvm_deploy.kernels.micro.source import shared_text
from utvm_deploy.kernels.micro.tensor_ir import (
    Buffers,
    Operand,
    block,
    extern,
    import_c,
    prim_func,
    pure,
    script,
    tensorize,
)


@dataclass(frozen=True)
class DspNarrowDense:
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

    def prim_func(self) -> Any:
        _, weights, bias, scaling, limits, sums, _ = self._operands
        source = Operand("source", (self.batch, self.inputs), "int8")
        output = Operand("output", (self.batch, self.outputs), "int8")

        def body(buffers: Buffers) -> None:
            with script.grid(self.batch, 1) as (n, one), script.sblock("row"):
                vn, _ = script.axis.remap("SS", [n, one])
                script.reads(
                    buffers["source"][vn, 0 : self.inputs],
                    *(o.region(buffers) for o in (weights, bias, scaling, limits)),
                )
                script.writes(sums.region(buffers), buffers["output"][vn, 0 : self.outputs])
                self._meaning(buffers, (vn,))

        parameters = [source, weights, bias, scaling, limits, output]
        return prim_func(parameters, [sums], body, helpers=[shared_text("utvm_scale_wide")])

    def schedule(self, sch: Any, core: str) -> str:
        choices = self.outputs, self.per_channel
        import_c(sch, shared_text("utvm_scale_wide"), code.narrow_text(core, *choices))
        *reads, sums, output = self._operands

        def call(buffers: Buffers) -> Any:
            return extern(
                code.name_of(*choices),
                *(o.start(buffers) for o in (*reads, output)),
                *(self.inputs, self.outputs, code.SCALING_WORDS if self.per_channel else 0),
            )

        tensorize(sch, "row", reads, [sums, output], self._meaning, call)
        return f"DSP assembly, all {self.outputs} outputs in registers"

    @property
    def _operands(self) -> tuple[Operand, ...]:
        quads = -(-self.inputs // code.QUAD)
        scales = self.outputs if self.per_channel else 1
        return (
            Operand("vector", (self.inputs,), "int8"),
            Operand("weights", (quads * code.QUAD * self.outputs,), "int8"),
            Operand("bias", (self.outputs,), "int32"),
            Operand("scaling", (scales * code.SCALING_WORDS,), "int32"),
            Operand("limits", (2,), "int32"),
            Operand("sums", (self.outputs,), "int32"),
            Operand("output", (self.outputs,), "int8"),
        )

    def _meaning(self, buffers: Buffers, row: tuple[Any, ...] = ()) -> None:
        """What one row of the batch does."""
        weights, bias, scaling, limits, sums = (
            buffers[name] for name in ("weights", "bias", "scaling", "limits", "sums")
        )
        axes = [("o", self.outputs, "S")]

        def start(o: Any) -> None:
            script.buffer_store(sums, bias[o], [o])

        def product(o: Any, i: Any) -> None:
            place = (*row, i)
            x = buffers["source"][place] if row else buffers["vector"][i]
            entry = i // code.QUAD * (code.QUAD * self.outputs) + o * code.QUAD + i % code.QUAD
            total = sums[o] + x.astype("int32") * weights[entry].astype("int32")
            script.buffer_store(sums, total, [o])

        def requantize(o: Any) -> None:
            base = o * code.SCALING_WORDS if self.per_channel else 0
            scaled = pure("utvm_scale_wide", sums[o], *(scaling[base + n] for n in range(4)))
            clamped = pure("utvm_clamp", scaled, limits[0], limits[1])
            script.buffer_store(buffers["output"], clamped.astype("int8"), [*row, o])

        block("bias", axes, start)
        block("product", [*axes, ("i", self.inputs, "R")], product)
        block("requantize", axes, requantize)


def narrow_call(
    call: KernelCall,
    batch: int,
    weights: Array,
    bias: Array,
    scaling: Array,
    limits: tuple[int, int],
) -> KernelCall:
    """The call instead of the generic one; ``scaling`` has a row, or one for each output."""
    outputs, inputs = weights.shape
    return replace(
        call,
        kernel=DspNarrowDense(batch, inputs, outputs, len(scaling) > 1),
        arguments=(
            call.arguments[0],
            ConstantArgument("weights", code.pack_weights(weights)),
            ConstantArgument("bias", bias.astype(np.int32)),
            ConstantArgument("scaling", scaling.astype(np.int32).reshape(-1)),
            ConstantArgument("limits", np.array(limits, dtype=np.int32)),
            call.arguments[-1],
        ),
    )
