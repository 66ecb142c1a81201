"""DEPTHWISE_CONV_2D for cores with the DSP extension: rows with borders, channels by four."""

from __future__ import annotations

import textwrap
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from utvm_deploy.graph.model import Array
from utvm_deploy.kernels.call import (
    Argument,
    ConstantArgument,
    KernelCall,
    ScalarArgument,
    TensorArgument,
)
from utvm_deploy.kernels.dsp import depthwise_code as code
from utvm_deploy.kernels.dsp.conv2d import scale_text
from utvm_deploy.kernels.dsp.routine import helper
from utvm_deploy.kernels.dsp.scaling import Scaling
from utvm_deploy.kernels.dsp.tensor_ir import Operand, import_c, nest, prim_func, tensorize
from utvm_deploy.kernels.window import Window


@dataclass(frozen=True)
class DspDepthwise:
    """Shape parameters of a depthwise convolution with one output for each input channel."""

    window: Window
    channels: int
    core: str

    @property
    def name(self) -> str:
        return f"depthwise_{self.window.label}_{self.channels}_dsp"

    @property
    def pitch(self) -> int:
        """Bytes from pixel to pixel, as the inner block reads them."""
        return -(-self.channels // code.GROUP) * code.GROUP

    @property
    def is_copied(self) -> bool:
        """Whether rows are copied to scratch: they have borders, or channels to fill up."""
        return self.window.is_padded or self.pitch != self.channels

    def prim_func(self) -> Any:
        w = self.window
        rows, table, limits, sums, _ = self._operands
        image = Operand("image", (w.batch, w.height, w.width, self.channels), "int8")
        output = Operand(
            "output", (w.batch, w.output_height, w.output_width, self.channels), "int8"
        )
        parameters = [o.parameter for o in (image, table, limits)]
        body = f"{sums.allocation}\n"
        copy = ""
        if self.is_copied:
            parameters.append("border: T.int32")
            body += f"{rows.allocation}\n"
            copy = f"""\
    with T.sblock("pad"):
        vn, vy = T.axis.remap("SS", [n, y])
        T.reads(image[vn, 0:{w.height}, 0:{w.width}, 0:{self.channels}])
        T.writes({rows.region})
        T.evaluate(T.call_extern("int32", "utvm_copy_rows", T.address_of(image[vn, 0, 0, 0]),
            {rows.start}, vy * {w.strides[0]} - {w.top}, {-w.left}, {w.height}, {w.width},
            {self.channels}, {self.pitch}, {w.kernel[0]}, {w.dilations[0]}, {w.padded_width},
            border))
"""
        first = f"vy * {w.strides[0]}"
        reach = rows.shape[0]
        read = (
            rows.region
            if self.is_copied
            else f"image[vn, {first}:{first} + {reach}, 0:{w.width}, 0:{self.channels}]"
        )
        accessor = "rows[" if self.is_copied else f"image[vn, {first} + "
        body += f"""\
for n, y in T.grid({w.batch}, {w.output_height}):
{copy}    with T.sblock("row"):
        vn, vy = T.axis.remap("SS", [n, y])
        T.reads({read}, {table.region}, {limits.region})
        T.writes({sums.region}, output[vn, vy, 0:{w.output_width}, 0:{self.channels}])
{textwrap.indent(self._meaning(accessor, "vn, vy, "), " " * 8)}
"""
        return prim_func([*parameters, output.parameter], body)

    def schedule(self, sch: Any, core: str) -> str:
        w = self.window
        function = code.name_of(w.kernel)
        texts = [scale_text(), code.depthwise_text(core, w.kernel)]
        if self.is_copied:
            texts.append(helper("utvm_copy_rows"))
        import_c(sch, *texts)
        rows, table, limits, sums, output = self._operands
        reads = [rows, table, limits]
        starts = ", ".join(o.start for o in (*reads, output))
        row_step = 1 if self.is_copied else w.dilations[0]
        row_pitch = row_step * rows.shape[1] * rows.shape[2]
        numbers = (
            row_pitch, w.dilations[1] * self.pitch, w.strides[1] * self.pitch, w.output_width,
            self.channels, *w.kernel,
        )  # fmt: skip
        tensorize(
            sch,
            "row",
            reads,
            [sums, output],
            self._meaning("rows[", ""),
            f'T.call_extern("int32", "{function}", {starts}, {", ".join(map(str, numbers))})',
        )
        where = "rows with borders copied" if self.is_copied else "rows read in place"
        return f"DSP assembly, {code.GROUP} channels in registers along a row, {where}"

    @property
    def _operands(self) -> tuple[Operand, Operand, Operand, Operand, Operand]:
        w = self.window
        reach = (w.kernel[0] - 1) * w.dilations[0] + 1
        shape = (reach, w.width, self.channels)
        if self.is_copied:
            shape = (w.kernel[0], w.padded_width, self.pitch)
        words = self.pitch // code.GROUP * code.group_words(w.kernel[0] * w.kernel[1])
        return (
            Operand("rows", shape, "int8"),
            Operand("table", (words,), "int32"),
            Operand("limits", (2,), "int32"),
            Operand("sums", (w.output_width, self.channels), "int32"),
            Operand("output", (w.output_width, self.channels), "int8"),
        )

    def _meaning(self, rows: str, output: str) -> str:
        w = self.window
        taps = w.kernel[0] * w.kernel[1]
        group = f"vc // 4 * {code.group_words(taps)}"
        scale = [f"table[{group} + {2 * taps + 4 * n} + vc % 4]" for n in range(4)]
        row_step = 1 if self.is_copied else w.dilations[0]
        pixel = f"{rows}vr * {row_step}, vx * {w.strides[1]} + vk * {w.dilations[1]}, vc]"
        word = f"table[{group} + (vr * {w.kernel[1]} + vk) * 2 + vc % 2]"
        weight = f"T.shift_right(T.shift_left({word}, 16 - vc % 4 // 2 * 16), 16)"
        scaled = f'T.call_pure_extern("int32", "utvm_scale", sums[vx, vc], {", ".join(scale[1:])})'
        clamped = f'T.call_pure_extern("int32", "utvm_clamp", {scaled}, limits[0], limits[1])'
        axes = [("x", w.output_width, "S"), ("c", self.channels, "S")]
        window = [("r", w.kernel[0], "R"), ("k", w.kernel[1], "R")]
        product = f'T.cast({pixel}, "int32") * {weight}'
        return "".join(
            [
                nest("bias", axes, f"sums[vx, vc] = {scale[0]}"),
                nest("product", [*axes, *window], f"sums[vx, vc] = sums[vx, vc] + {product}"),
                nest("requantize", axes, f'output[{output}vx, vc] = T.cast({clamped}, "int8")'),
            ]
        )


def dsp_depthwise_call(
    call: KernelCall,
    window: Window,
    weights: Array,
    scaling: Scaling,
    border: int,
    limits: tuple[int, int],
    core: str,
) -> KernelCall:
    """The call instead of the generic one; ``weights`` are [rows, columns, channels]."""
    channels = weights.shape[2]
    kernel = DspDepthwise(window, channels, core)
    arguments: list[Argument] = [
        call.arguments[0],
        ConstantArgument("weights", code.pack_table(weights.reshape(-1, channels), scaling)),
        ConstantArgument("limits", np.array(limits, dtype=np.int32)),
    ]
    if kernel.is_copied:
        arguments.append(ScalarArgument("border", border))
    output = call.arguments[-1]
    assert isinstance(output, TensorArgument)
    return replace(call, kernel=kernel, arguments=(*arguments, output))
