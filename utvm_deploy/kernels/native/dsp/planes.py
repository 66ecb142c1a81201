"""DEPTHWISE_CONV_2D over planes: rows widened once, channels in blocks, several outputs at a time.

Channels are done in blocks, so that the rows under a window, as int16, take little scratch. A block
keeps a ring of rows in its planes; when its end is reached, the rows that stay move to the front.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import partial
from itertools import pairwise, product
from typing import Any, ClassVar

import numpy as np
from tvm import tirx

from utvm_deploy.graph.model import Array
from utvm_deploy.kernels.contract.call import (
    ConstantArgument,
    KernelCall,
    ScalarArgument,
    TensorArgument,
)
from utvm_deploy.kernels.contract.lag import Lag, least_lag
from utvm_deploy.kernels.contract.strategy import Choices
from utvm_deploy.kernels.contract.window import Window
from utvm_deploy.kernels.native.dsp import planes_code as code
from utvm_deploy.kernels.native.dsp.code import helper
from utvm_deploy.kernels.native.dsp.compact import (
    pack_compact,
    packed_bytes,
    unpack_name,
    unpack_text,
)
from utvm_deploy.kernels.native.dsp.slide import slide_text
from utvm_deploy.kernels.native.scaling import Scaling
from utvm_deploy.kernels.portable.tensor_ir import (
    ANY_CORE,
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
from utvm_deploy.records.candidate import COMPACT_LITTLE

#: Channels of a block, best first: a line of a cache, or parts of one.
BLOCKS = (32, 24, 16, 8, 4)
#: Taps at a time of a long row: words again.
PARTS = (2, 4, 6)
#: Output rows until the ring's rows move.
PERIODS = (4, 3, 2, 1)


@dataclass(frozen=True)
class PlanesChoices(Choices):
    """Channels of a block, outputs and rows at a time, and taps at a time of a long row."""

    method: ClassVar[str] = "planes"
    channels: int | None = None
    outputs: int | None = None
    period: int | None = None
    part: int = 0


@dataclass(frozen=True)
class DspPlanes:
    """Shape parameters of a depthwise convolution, and how it is computed."""

    window: Window
    channels: int
    multiplier: int  # outputs of each channel
    block: int  # channels at a time
    period: int  # output rows until the ring's rows move
    outputs: int  # at a time
    part: int = 0  # taps at a time of a window that is a long row; 0: all
    is_compact: bool = False  # the table takes few bytes, and is unpacked block by block

    @property
    def name(self) -> str:
        times = f"x{self.multiplier}" if self.multiplier > 1 else ""
        return f"depthwise_{self.window.label}_{self.channels}{times}_dsp"

    @property
    def choices(self) -> PlanesChoices:
        """What chooses this kernel."""
        return PlanesChoices(self.block, self.outputs, self.period, self.part)

    @property
    def form(self) -> code.Form:
        """What the inner block's code depends on."""
        w = self.window
        kernel = (-(-w.kernel[1] // self.part), self.part) if self.part else w.kernel
        return code.form_of(
            kernel, w.strides[1], w.left % 2, self.outputs, w.output_width, self.multiplier
        )

    @property
    def ring(self) -> int:
        """Rows of a plane."""
        w = self.window
        return w.strides[0] * (self.period - 1) + w.kernel[0]

    @property
    def columns(self) -> int:
        """Columns of the image that windows see."""
        return min(self.window.width, self.window.padded_width - self.window.left)

    @property
    def pitch(self) -> int:
        """Columns of a plane."""
        w, form = self.window, self.form
        last = (w.output_width - 1) // self.outputs * self.outputs  # output of the last block
        if form.tail != code.PARTIAL:
            last = w.output_width - self.outputs
        reach = last * w.strides[1] + form.reach
        reach += (form.rows - 1) * self.part
        return max(reach, w.left + form.odd + -(-self.columns // 2) * 2)

    @property
    def lag(self) -> Lag | None:
        w, channels = self.window, self.channels
        is_whole = self.block >= channels
        if w.batch != 1 or not (is_whole or self.multiplier == 1):
            return None
        rows = np.arange(w.output_height)
        kept = max(w.kernel[0] - w.strides[0], 0)  # of the window's rows, from the row before
        reads = np.maximum(rows * w.strides[0] - w.top + kept, 0) * w.width * channels
        reads[0] = 0
        writes = (rows + 1) * w.output_width * channels * self.multiplier
        least = least_lag(reads, writes)
        return Lag(least) if is_whole else Lag(least, unit_bytes=channels)

    @property
    def scratch_bytes(self) -> int:
        """What the planes of a block take, and its table where that is unpacked."""
        channels = min(self.block, self.channels)
        table = channels * self.multiplier * self.form.channel_words * 4 if self.is_compact else 0
        return channels * self.ring * self.pitch * 2 + table

    def parted(self, weights: Array) -> Array:
        """Weights [rows, columns, channels] with each part of a long row as one of its own."""
        if not self.part:
            return weights
        filled = np.zeros((self.form.rows * self.part, weights.shape[2]), dtype=weights.dtype)
        filled[: weights.shape[1]] = weights[0]
        return filled.reshape(self.form.rows, self.part, -1)

    @property
    def geometry(self) -> Array:
        """``struct utvm_planes_window``."""
        w = self.window
        values = (
            *(w.height, w.width, self.channels, self.columns, w.kernel[0], w.strides[0], w.top),
            *(w.left + self.form.odd, self.pitch, self.ring, self.period),
        )
        return np.array(values, dtype=np.int32)

    def prim_func(self) -> Any:
        w = self.window
        outputs = self.channels * self.multiplier
        image = Operand("image", (w.batch, w.height, w.width, self.channels), "int8")
        geometry = Operand("geometry", (self.geometry.size,), "int32")
        table = Operand("table", (outputs * self.form.channel_words,), "int32")
        if self.is_compact:
            table = Operand("table", (outputs * packed_bytes(self.form),), "int8")
        limits = Operand("limits", (2,), "int32")
        output = Operand("output", (w.batch, w.output_height, w.output_width, outputs), "int8")

        def slide(buffers: Buffers, number: int, loops: Any, first: int, count: int) -> None:
            planes = self._ring(number, count)
            with script.sblock(f"slide_{number}"):
                vn, vb, vy = script.axis.remap("SSS", loops)
                channel = vb * count + first
                whole = (vn, *(slice(0, extent) for extent in image.shape[1:]))
                script.reads(buffers["image"][whole], geometry.region(buffers))
                script.writes(planes.region(buffers))
                start = script.address_of(buffers["image"][vn, 0, 0, channel])
                border = buffers["border"]
                call = extern(
                    *("utvm_slide", start, planes.start(buffers), vy, count, border),
                    geometry.start(buffers),
                )
                script.evaluate(call)

        def body(buffers: Buffers) -> None:
            for number, (first, blocks, count) in enumerate(self._blocks):
                planes, taps, _, sums, _ = self._tile(number, count)
                with script.grid(w.batch, blocks, w.output_height) as (n, b, y):
                    if self.is_compact:
                        self._unpack(number, buffers, [n, b, y], first, count)
                    slide(buffers, number, [n, b, y], first, count)
                    with script.sblock(f"row_{number}"):
                        vn, vb, vy = script.axis.remap("SSS", [n, b, y])
                        channel = (vb * count + first) * self.multiplier
                        base = vy % self.period * w.strides[0]
                        made = count * self.multiplier
                        words = self.form.channel_words
                        entry = 0 if self.is_compact else channel * words
                        script.reads(
                            buffers[planes.name][
                                0:count, base : base + w.kernel[0], 0 : self.pitch
                            ],
                            buffers[taps.name][entry : entry + made * words],
                            limits.region(buffers),
                        )
                        script.writes(
                            sums.region(buffers),
                            buffers["output"][vn, vy, 0 : w.output_width, channel : channel + made],
                        )
                        self._meaning(number, count, buffers, (vn, vy), base, channel)

        temporaries: list[Operand] = []
        for number, (*_, count) in enumerate(self._blocks):
            temporaries += [self._ring(number, count), self._tile(number, count)[3]]
            if self.is_compact:
                temporaries.append(self._tile(number, count)[1])
        texts = [unpack_text(self.form)] if self.is_compact else []
        return prim_func(
            [image, geometry, table, limits, "border", output],
            temporaries,
            body,
            helpers=[helper("utvm_scale_doubled"), slide_text(ANY_CORE), *texts],
        )

    def _unpack(
        self, number: int, buffers: Buffers, loops: list[Any], first: int, count: int
    ) -> None:
        """The table of a block of channels, before its first row."""
        taps = self._tile(number, count)[1]
        made = count * self.multiplier
        size = packed_bytes(self.form)
        with script.sblock(f"unpack_{number}"):
            _, vb, vy = script.axis.remap("SSS", loops)
            entry = (vb * count + first) * self.multiplier * size
            script.reads(buffers["table"][entry : entry + made * size])
            script.writes(taps.region(buffers))
            start = script.address_of(buffers["table"][entry])
            some = tirx.Select(vy == 0, tirx.const(made), tirx.const(0))
            script.evaluate(extern(unpack_name(self.form), start, taps.start(buffers), some))

    def schedule(self, sch: Any, core: str) -> str:
        import_c(
            sch,
            helper("utvm_scale_doubled"),
            code.planes_text(core, self.form),
            slide_text(core),
            *([unpack_text(self.form)] if self.is_compact else []),
        )
        for number, (_, _, count) in enumerate(self._blocks):
            planes, table, limits, sums, output = self._tile(number, count)
            tensorize(
                sch,
                f"row_{number}",
                [planes, table, limits],
                [sums, output],
                partial(self._meaning, number, count),
                partial(self._call, [planes, table, limits, output], count),
            )
        return (
            f"DSP assembly, {self.outputs} outputs of a channel in registers, "
            f"rows of {min(self.block, self.channels)} channels widened"
        )

    def _call(self, operands: list[Operand], count: int, buffers: Buffers) -> Any:
        w, form = self.window, self.form
        numbers = (
            *(w.output_width, count * self.multiplier, self.channels * self.multiplier),
            # The parts of a long row follow each other.
            *(2 * (self.part or self.pitch), 2 * self.pitch * self.ring, self.multiplier),
            *(form.rows, form.columns, form.stride, form.odd),
        )
        return extern(form.name, *(o.start(buffers) for o in operands), *numbers)

    @property
    def _blocks(self) -> Iterator[tuple[int, int, int]]:
        """First channel, how many blocks, channels of each."""
        count = min(self.block, self.channels)
        whole, rest = divmod(self.channels, count)
        yield 0, whole, count
        if rest:
            yield whole * count, 1, rest

    def _ring(self, number: int, count: int) -> Operand:
        return Operand(f"planes_{number}", (count, self.ring, self.pitch), "int16")

    def _tile(self, number: int, count: int) -> tuple[Operand, Operand, Operand, Operand, Operand]:
        """What a row of a block reads and writes."""
        w = self.window
        made = count * self.multiplier
        return (
            Operand(f"planes_{number}", (count, w.kernel[0], self.pitch), "int16"),
            Operand(self._table_of(number), (made * self.form.channel_words,), "int32"),
            Operand("limits", (2,), "int32"),
            Operand(f"sums_{number}", (w.output_width, made), "int32"),
            Operand("output", (w.output_width, made), "int8"),
        )

    def _table_of(self, number: int) -> str:
        """The buffer that a block's rows read: scratch of its own where it is unpacked."""
        return f"table_{number}" if self.is_compact else "table"

    def _meaning(
        self,
        number: int,
        count: int,
        buffers: Buffers,
        row: tuple[Any, ...] = (),
        base: Any = 0,
        channel: Any = 0,
    ) -> None:
        """What a row of a block does; ``base`` of the ring, ``channel`` of the output."""
        w, form = self.window, self.form
        planes, sums = buffers[f"planes_{number}"], buffers[f"sums_{number}"]
        table, limits = buffers[self._table_of(number)], buffers["limits"]
        before = 0 if self.is_compact else channel
        axes = [("x", w.output_width, "S"), ("c", count * self.multiplier, "S")]
        window = [("r", form.rows, "R"), ("k", form.columns, "R")]

        def entry(c: Any, word: Any) -> Any:
            return table[(before + c) * form.channel_words + word]

        def bias(x: Any, c: Any) -> None:
            script.buffer_store(sums, entry(c, form.rows * form.words), [x, c])

        def product(x: Any, c: Any, r: Any, k: Any) -> None:
            row, column = (base, r * self.part + k) if self.part else (base + r, k)
            value = planes[c // self.multiplier, row, x * w.strides[1] + column + form.odd]
            half = (k + form.odd) % 2
            word = (k + form.odd) // 2
            if form.stride % 2:
                half = k // (form.columns - 1) if form.columns > 1 else k * 0
                word = k - half
            weight = half_of(entry(c, r * form.words + word), half)
            script.buffer_store(sums, sums[x, c] + value.astype("int32") * weight, [x, c])

        def requantize(x: Any, c: Any) -> None:
            scales = [entry(c, form.rows * form.words + n) for n in (1, 2, 3)]
            clamped = pure(
                "utvm_clamp",
                pure("utvm_scale_doubled", sums[x, c], *scales),
                *(limits[0], limits[1]),
            )
            script.buffer_store(buffers["output"], clamped.astype("int8"), [*row, x, channel + c])

        block(f"bias_{number}", axes, bias)
        block(f"product_{number}", [*axes, *window], product)
        block(f"requantize_{number}", axes, requantize)


def planes_choices(window: Window, channels: int, multiplier: int) -> Iterator[DspPlanes]:
    """All kernels; none for windows that are too large. Their taps must be neighbours."""
    # A single block may have an odd number of outputs.
    width = window.output_width
    counts = sorted({count for count in (*code.OUTPUTS, width) if count <= max(width, 2)})
    is_long = window.kernel[0] == 1 and window.kernel[1] > code.LARGEST_COLUMNS
    for outputs, part in product(counts, PARTS if is_long else (0,)):
        first = DspPlanes(window, channels, multiplier, BLOCKS[0], 1, outputs, part)
        if not first.form.fits:
            continue
        for size, smaller in pairwise((*BLOCKS, 0)):
            for period in PERIODS:
                # A ring that no window reaches the end of would be cut to what windows read.
                if smaller < channels and period <= window.output_height:
                    yield replace(first, block=size, period=period)


def planes_call(
    call: KernelCall,
    kernel: DspPlanes,
    weights: Array,
    scaling: Scaling,
    border: int,
    limits: tuple[int, int],
) -> KernelCall:
    """The call instead of the generic one; ``weights`` are [rows, columns, output channels]."""
    output = call.arguments[-1]
    assert isinstance(output, TensorArgument)
    pack = pack_compact if kernel.is_compact else code.pack_table
    arguments = (
        call.arguments[0],
        ConstantArgument("geometry", kernel.geometry),
        ConstantArgument("weights", pack(kernel.parted(weights), scaling, kernel.form)),
        ConstantArgument("limits", np.array(limits, dtype=np.int32)),
        ScalarArgument("border", border),
        output,
    )
    return replace(call, kernel=kernel, arguments=arguments, heeds_compact=COMPACT_LITTLE)
