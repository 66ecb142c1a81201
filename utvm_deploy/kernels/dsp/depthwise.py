"""DEPTHWISE_CONV_2D for cores with the DSP extension: rows with borders, channels by four."""

from __future__ import annotations

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
from utvm_deploy.kernels.dsp.code import helper
from utvm_deploy.kernels.micro.scaling import Scaling
from utvm_deploy.kernels.micro.source import shared_text
from utvm_deploy.kernels.micro.tensor_ir import (
    Buffers,
    Operand,
    block,
    extern,
    half_of,
    import_c,
    prim_func,
    pure,
    script,
    tensorize,
)
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

        def copy(buffers: Buffers, n: Any, y: Any) -> None:
            with script.sblock("pad"):
                vn, vy = script.axis.remap("SS", [n, y])
                whole = (vn, *(slice(0, extent) for extent in image.shape[1:]))
                script.reads(buffers["image"][whole])
                script.writes(rows.region(buffers))
                start = script.address_of(buffers["image"][vn, 0, 0, 0])
                numbers = (
                    *(vy * w.strides[0] - w.top, -w.left, w.height, w.width, self.channels),
                    *(self.pitch, w.kernel[0], w.dilations[0], w.padded_width),
                )
                call = extern(
                    "utvm_copy_rows", start, rows.start(buffers), *numbers, buffers["border"]
                )
                script.evaluate(call)

        def body(buffers: Buffers) -> None:
            with script.grid(w.batch, w.output_height) as (n, y):
                if self.is_copied:
                    copy(buffers, n, y)
                with script.sblock("row"):
                    vn, vy = script.axis.remap("SS", [n, y])
                    first = vy * w.strides[0]
                    read = (
                        rows.region(buffers)
                        if self.is_copied
                        else buffers["image"][
                            vn, first : first + rows.shape[0], 0 : w.width, 0 : self.channels
                        ]
                    )
                    script.reads(read, table.region(buffers), limits.region(buffers))
                    script.writes(
                        sums.region(buffers),
                        buffers["output"][vn, vy, 0 : w.output_width, 0 : self.channels],
                    )
                    source = (vn, first) if not self.is_copied else None
                    self._meaning(buffers, (vn, vy), source)

        border = ["border"] if self.is_copied else []
        copied = [rows] if self.is_copied else []
        return prim_func(
            [image, table, limits, *border, output],
            [sums, *copied],
            body,
            helpers=[shared_text("utvm_scale"), helper("utvm_copy_rows")],
        )

    def schedule(self, sch: Any, core: str) -> str:
        w = self.window
        function = code.name_of(w.kernel)
        texts = [shared_text("utvm_scale"), code.depthwise_text(core, w.kernel)]
        if self.is_copied:
            texts.append(helper("utvm_copy_rows"))
        import_c(sch, *texts)
        rows, table, limits, sums, output = self._operands
        reads = [rows, table, limits]
        row_step = 1 if self.is_copied else w.dilations[0]
        row_pitch = row_step * rows.shape[1] * rows.shape[2]
        numbers = (
            row_pitch, w.dilations[1] * self.pitch, w.strides[1] * self.pitch, w.output_width,
            self.channels, *w.kernel,
        )  # fmt: skip

        def call(buffers: Buffers) -> Any:
            return extern(function, *(o.start(buffers) for o in (*reads, output)), *numbers)

        tensorize(sch, "row", reads, [sums, output], self._meaning, call)
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

    def _meaning(
        self, buffers: Buffers, row: tuple[Any, ...] = (), source: tuple[Any, Any] | None = None
    ) -> None:
        """What a row does; ``source``: image and row that its window reads in place."""
        w = self.window
        taps = w.kernel[0] * w.kernel[1]
        table, limits, sums = (buffers[name] for name in ("table", "limits", "sums"))
        row_step = 1 if self.is_copied else w.dilations[0]
        axes = [("x", w.output_width, "S"), ("c", self.channels, "S")]
        window = [("r", w.kernel[0], "R"), ("k", w.kernel[1], "R")]

        def scale(number: int, c: Any) -> Any:
            return table[c // 4 * code.group_words(taps) + (2 * taps + 4 * number) + c % 4]

        def bias(x: Any, c: Any) -> None:
            script.buffer_store(sums, scale(0, c), [x, c])

        def product(x: Any, c: Any, r: Any, k: Any) -> None:
            column = x * w.strides[1] + k * w.dilations[1]
            if source is None:
                pixel = buffers["rows"][r * row_step, column, c]
            else:
                pixel = buffers["image"][source[0], source[1] + r * row_step, column, c]
            word = table[c // 4 * code.group_words(taps) + (r * w.kernel[1] + k) * 2 + c % 2]
            weight = half_of(word, c % 4 // 2)
            script.buffer_store(sums, sums[x, c] + pixel.astype("int32") * weight, [x, c])

        def requantize(x: Any, c: Any) -> None:
            scaled = pure("utvm_scale", sums[x, c], *(scale(number, c) for number in (1, 2, 3)))
            clamped = pure("utvm_clamp", scaled, limits[0], limits[1])
            script.buffer_store(buffers["output"], clamped.astype("int8"), [*row, x, c])

        block("bias", axes, bias)
        block("product", [*axes, *window], product)
        block("requantize", axes, requantize)


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
