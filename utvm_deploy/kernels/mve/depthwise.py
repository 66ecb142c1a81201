"""DEPTHWISE_CONV_2D for cores with Helium: rows with borders, channels by eight."""

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
from utvm_deploy.kernels.dsp.tensor_ir import (
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
from utvm_deploy.kernels.gathered import shared_text
from utvm_deploy.kernels.mve import depthwise_code as code
from utvm_deploy.kernels.mve.gemm import has_left_shift
from utvm_deploy.kernels.window import Window


@dataclass(frozen=True)
class MveDepthwise:
    """Shape parameters of a depthwise convolution with one output for each input channel."""

    window: Window
    channels: int
    has_gaps: bool  # every other slot of the weights is a zero
    has_left: bool  # a channel's scale needs a left shift

    @property
    def name(self) -> str:
        flags = ("_gaps" if self.has_gaps else "") + ("_left" if self.has_left else "")
        return f"depthwise_{self.window.label}_{self.channels}_mve{flags}"

    @property
    def pitch(self) -> int:
        """Bytes from pixel to pixel, as the inner block reads them."""
        return -(-self.channels // code.GROUP) * code.GROUP

    @property
    def is_copied(self) -> bool:
        """Whether rows are copied to scratch: they have borders, or channels to fill up."""
        return self.window.is_padded or self.pitch != self.channels

    @property
    def offsets(self) -> Array:
        """Where the taps lie in the rows."""
        w = self.window
        row_step = 1 if self.is_copied else w.dilations[0]
        row_pitch = row_step * self._operands[0].shape[1] * self.pitch
        return code.pack_offsets(w.kernel, row_pitch, w.dilations[1] * self.pitch, self.has_gaps)

    def prim_func(self) -> Any:
        w = self.window
        rows, *tables, sums, _ = self._operands
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
                    "utvm_rows_copy", start, rows.start(buffers), *numbers, buffers["border"]
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
                    script.reads(read, *(one.region(buffers) for one in tables))
                    script.writes(
                        sums.region(buffers),
                        buffers["output"][vn, vy, 0 : w.output_width, 0 : self.channels],
                    )
                    source = (vn, first) if not self.is_copied else None
                    self._meaning(buffers, (vn, vy), source)

        border = ["border"] if self.is_copied else []
        copied = [rows] if self.is_copied else []
        return prim_func([image, *tables, *border, output], [sums, *copied], body)

    def schedule(self, sch: Any, core: str) -> str:
        w = self.window
        texts = [code.depthwise_text(self.has_left)]
        if self.is_copied:
            texts += [shared_text("utvm_bytes"), shared_text("utvm_rows")]
        import_c(sch, *texts)
        rows, *tables, sums, output = self._operands
        reads = [rows, *tables]
        slots = code.slots_of(w.kernel[0] * w.kernel[1], self.has_gaps)
        numbers = (w.strides[1] * self.pitch, w.output_width, self.channels, slots)

        def call(buffers: Buffers) -> Any:
            starts = (one.start(buffers) for one in (*reads, output))
            return extern(code.name_of(self.has_left), *starts, *numbers)

        tensorize(sch, "row", reads, [sums, output], self._meaning, call)
        where = "rows with borders copied" if self.is_copied else "rows read in place"
        return f"Helium assembly, 2 pixels x {code.GROUP} channels in registers, {where}"

    @property
    def _operands(self) -> tuple[Operand, Operand, Operand, Operand, Operand, Operand, Operand]:
        """Rows, weights, scaling, offsets, limits, sums, output."""
        w = self.window
        reach = (w.kernel[0] - 1) * w.dilations[0] + 1
        shape = (reach, w.width, self.channels)
        if self.is_copied:
            shape = (w.kernel[0], w.padded_width, self.pitch)
        groups = self.pitch // code.GROUP
        slots = code.slots_of(w.kernel[0] * w.kernel[1], self.has_gaps)
        return (
            Operand("rows", shape, "int8"),
            Operand("weights", (groups * slots * code.GROUP,), "int8"),
            Operand("scaling", (groups * code.scaling_words(self.has_left),), "int32"),
            Operand("offsets", (slots,), "int32"),
            Operand("limits", (3,), "int32"),
            Operand("sums", (w.output_width, self.channels), "int32"),
            Operand("output", (w.output_width, self.channels), "int8"),
        )

    def _meaning(
        self, buffers: Buffers, row: tuple[Any, ...] = (), source: tuple[Any, Any] | None = None
    ) -> None:
        """What a row does; ``source``: image and row that its window reads in place."""
        w = self.window
        weights, scaling, limits, sums = (
            buffers[name] for name in ("weights", "scaling", "limits", "sums")
        )
        slots = code.slots_of(w.kernel[0] * w.kernel[1], self.has_gaps)
        spread = 2 if self.has_gaps else 1
        words = code.scaling_words(self.has_left)
        row_step = 1 if self.is_copied else w.dilations[0]
        axes = [("x", w.output_width, "S"), ("c", self.channels, "S")]
        window = [("r", w.kernel[0], "R"), ("k", w.kernel[1], "R")]

        def scale(number: int, c: Any) -> Any:
            return scaling[c // 8 * words + c % 2 * 4 + c % 8 // 2 + 8 * number]

        def bias(x: Any, c: Any) -> None:
            script.buffer_store(sums, scale(0, c), [x, c])

        def product(x: Any, c: Any, r: Any, k: Any) -> None:
            column = x * w.strides[1] + k * w.dilations[1]
            if source is None:
                pixel = buffers["rows"][r * row_step, column, c]
            else:
                pixel = buffers["image"][source[0], source[1] + r * row_step, column, c]
            slot = (r * w.kernel[1] + k) * spread
            weight = weights[c // 8 * (8 * slots) + slot * 8 + c % 8].astype("int32")
            script.buffer_store(sums, sums[x, c] + pixel.astype("int32") * weight, [x, c])

        def requantize(x: Any, c: Any) -> None:
            shift = scale(2, c) + scale(3, c) if self.has_left else scale(2, c)
            scaled = pure("utvm_requantize", sums[x, c], scale(1, c), shift)
            clamped = pure("utvm_clamp", scaled + limits[0], limits[1], limits[2])
            script.buffer_store(buffers["output"], clamped.astype("int8"), [*row, x, c])

        block("bias", axes, bias)
        block("product", [*axes, *window], product)
        block("requantize", axes, requantize)


def mve_depthwise_call(
    call: KernelCall,
    window: Window,
    weights: Array,
    tables: tuple[Array, Array, Array],
    border: int,
    limits: tuple[int, int, int],
) -> KernelCall:
    """The call instead of the generic one; ``weights`` are [rows, columns, channels]."""
    channels = weights.shape[2]
    flat = weights.reshape(-1, channels)
    has_gaps, has_left = code.needs_gaps(flat), has_left_shift(tables[2])
    kernel = MveDepthwise(window, channels, has_gaps, has_left)
    arguments: list[Argument] = [
        call.arguments[0],
        ConstantArgument("weights", code.pack_weights(flat, has_gaps)),
        ConstantArgument("scaling", code.pack_scaling(*tables, has_left)),
        ConstantArgument("offsets", kernel.offsets),
        ConstantArgument("limits", np.array(limits, dtype=np.int32)),
    ]
    if kernel.is_copied:
        arguments.append(ScalarArgument("border", border))
    output = call.arguments[-1]
    assert isinstance(output, TensorArgument)
    return replace(call, kernel=kernel, arguments=(*arguments, output))
