"""The geometry of a sliding window over an NHWC image, and its pad stage in TIR."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from utvm_deploy.graph.attribute_values import Padding
from utvm_deploy.graph.model import Array
from utvm_deploy.kernels.contract.lazy_tvm import te, tirx


@dataclass(frozen=True)
class Window:
    """Where a convolution or pooling window is for each output position."""

    batch: int
    height: int  # input rows
    width: int  # input columns
    output_height: int
    output_width: int
    kernel: tuple[int, int]  # rows, columns
    strides: tuple[int, int]
    dilations: tuple[int, int]
    top: int
    left: int

    @classmethod
    def of(
        cls,
        input_shape: tuple[int, ...],
        output_shape: tuple[int, ...],
        kernel: tuple[int, int],
        strides: tuple[int, int],
        dilations: tuple[int, int],
        padding: Padding,
    ) -> Window:
        """The window of an operator; bottom and right padding follow from the output's shape."""
        batch, height, width = input_shape[:3]
        rows, columns = output_shape[1:3]
        top, _, left, _ = padding
        return cls(batch, height, width, rows, columns, kernel, strides, dilations, top, left)

    @property
    def padded_height(self) -> int:
        """The rows that the windows touch, padding included."""
        return int(self.row(self.output_height - 1, self.kernel[0] - 1)) + 1

    @property
    def padded_width(self) -> int:
        """The columns that the windows touch, padding included."""
        return int(self.column(self.output_width - 1, self.kernel[1] - 1)) + 1

    @property
    def is_padded(self) -> bool:
        """Whether any window reaches outside the image."""
        return (
            self.top > 0
            or self.left > 0
            or self.padded_height > self.height
            or self.padded_width > self.width
        )

    @property
    def label(self) -> str:
        """Part of a kernel's name: 3x3_s2x1_p1x0_32x32_16x32, dilation only where there is any."""
        parts = [f"{self.kernel[0]}x{self.kernel[1]}", f"s{self.strides[0]}x{self.strides[1]}"]
        if self.dilations != (1, 1):
            parts.append(f"d{self.dilations[0]}x{self.dilations[1]}")
        if self.is_padded:
            parts.append(f"p{self.top}x{self.left}")
        if self.batch != 1:
            parts.append(f"n{self.batch}")
        parts.append(f"{self.height}x{self.width}_{self.output_height}x{self.output_width}")
        return "_".join(parts)

    def input_shape(self, channels: int) -> tuple[int, int, int, int]:
        """The shape of the image that the window slides over."""
        return self.batch, self.height, self.width, channels

    def output_shape(self, channels: int) -> tuple[int, int, int, int]:
        """The shape of the output."""
        return self.batch, self.output_height, self.output_width, channels

    def geometry(self, channels: int) -> Array:
        """Input shape, output rows and columns, and the window, as several C routines read them."""
        shape = (*self.input_shape(channels), self.output_height, self.output_width)
        window = (*self.kernel, *self.strides, *self.dilations, self.top, self.left)
        return np.array([*shape, *window], dtype=np.int32)

    def taps(self) -> tuple[Any, Any]:
        """Reduction axes over the rows and the columns of the window."""
        rows, columns = self.kernel
        return te.reduce_axis((0, rows), "ky"), te.reduce_axis((0, columns), "kx")

    def row(self, y: Any, ky: Any) -> Any:
        """Padded row that tap ``ky`` of output row ``y`` reads."""
        return y * self.strides[0] + ky * self.dilations[0]

    def column(self, x: Any, kx: Any) -> Any:
        """Padded column that tap ``kx`` of output column ``x`` reads."""
        return x * self.strides[1] + kx * self.dilations[1]

    def pad(self, image: Any, value: Any) -> Any:
        """The padded image as a separate stage, or ``image`` if nothing is padded."""
        if not self.is_padded:
            return image

        def element(n: Any, y: Any, x: Any, c: Any) -> Any:
            inside = tirx.all(
                y >= self.top,
                y < self.top + self.height,
                x >= self.left,
                x < self.left + self.width,
            )
            return tirx.if_then_else(inside, image[n, y - self.top, x - self.left, c], value)

        channels = int(image.shape[3])
        shape = (self.batch, self.padded_height, self.padded_width, channels)
        return te.compute(shape, element, name="pad")

    def covered(self, y: Any, x: Any) -> Any:
        """The number of positions of the window at (y, x), without dilation, inside the image."""
        if not self.is_padded:
            return self.kernel[0] * self.kernel[1]
        rows = _overlap(y * self.strides[0] - self.top, self.kernel[0], self.height)
        columns = _overlap(x * self.strides[1] - self.left, self.kernel[1], self.width)
        return rows * columns

    def schedule_pad(self, sch: Any, row: Any) -> None:
        """Copy, for each output row, the input rows under its windows.

        The columns are three loops (border, image, border), so that the copy asks per row, not per
        element, whether it is inside.
        """
        pad = sch.get_sblock("pad")
        sch.compute_at(pad, row, preserve_unit_loops=True)
        columns = sch.get_loops(pad)[-2]
        inside = min(self.width, self.padded_width - self.left)
        parts = [self.left, inside, self.padded_width - self.left - inside]
        extents = [extent for extent in parts if extent > 0]
        if len(extents) > 1:
            sch.loop_partition(columns, [*extents[:-1], None])


def _overlap(start: Any, length: int, extent: int) -> Any:
    return te.min(start + length, extent) - te.max(start, 0)
