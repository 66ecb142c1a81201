"""Writes small .tflite files of float32, with the methods of ``ModelWriter``.

m = FloatWriter()
x = m.input((1, 8, 8, 3))
m.output(m.conv2d(x, weights, bias, stride=2, activation="RELU6"))

Scales and zero points that a method takes are ignored.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from tflite_serializer import Options
from tflite_writer import _ACTIVATIONS, _PADDINGS, ModelWriter, Pair, _pair


class FloatWriter(ModelWriter):
    """A model under construction whose activations, weights and biases are float32."""

    def input(
        self, shape: Sequence[int], scale: float = 0.1, zero_point: int = 0, name: str | None = None
    ) -> int:
        """A float32 model input."""
        return self.float_input(shape, name)

    def widened(self, data: np.ndarray, scale: Any = None, zero_point: int = 0) -> int:
        """A constant of fewer bits, such as float16, and the DEQUANTIZE behind it."""
        return self.dequantize(self.constant(data, scale, zero_point))

    def batch_matmul(
        self, left: int, right: int, *, adj_x: bool = False, adj_y: bool = False
    ) -> int:
        """BATCH_MATMUL."""
        one, other = self.tensors[left].shape, self.tensors[right].shape
        rows = one[-1] if adj_x else one[-2]
        columns = other[-2] if adj_y else other[-1]
        shape = (*np.broadcast_shapes(one[:-2], other[:-2]), rows, columns)
        options = ("BatchMatMulOptions", {"AdjX": adj_x, "AdjY": adj_y})
        return self.node("BATCH_MATMUL", [left, right], shape, options)

    def resize(
        self,
        x: int,
        size: tuple[int, int],
        kind: str = "RESIZE_BILINEAR",
        *,
        align_corners: bool = False,
        half_pixel_centers: bool = False,
    ) -> int:
        """RESIZE_BILINEAR or RESIZE_NEAREST_NEIGHBOR."""
        batch, _, _, channels = self.tensors[x].shape
        fields = {"AlignCorners": align_corners, "HalfPixelCenters": half_pixel_centers}
        name = "ResizeBilinearOptions"
        if kind != "RESIZE_BILINEAR":
            name = "ResizeNearestNeighborOptions"
        constant = self.constant(np.array(size, np.int32))
        return self.node(kind, [x, constant], (batch, *size, channels), (name, fields))

    def conv3d(
        self,
        x: int,
        weights: np.ndarray,
        bias: np.ndarray | None = None,
        *,
        strides: tuple[int, int, int] = (1, 1, 1),
        dilations: tuple[int, int, int] = (1, 1, 1),
        padding: str = "SAME",
        activation: str = "NONE",
    ) -> int:
        """CONV_3D."""
        batch, *extents, _ = self.tensors[x].shape
        *window, _, outputs = weights.shape
        cut = [
            (k - 1) * d if padding == "VALID" else 0 for k, d in zip(window, dilations, strict=True)
        ]
        places = [-(-(e - c) // s) for e, c, s in zip(extents, cut, strides, strict=True)]
        names = ("StrideD", "StrideH", "StrideW")
        factors = ("DilationDFactor", "DilationHFactor", "DilationWFactor")
        fields = {
            "Padding": _PADDINGS[padding],
            "FusedActivationFunction": _ACTIVATIONS[activation],
            **dict(zip(names, strides, strict=True)),
            **dict(zip(factors, dilations, strict=True)),
        }
        given = [weights] if bias is None else [weights, bias]
        inputs = [x, *(self.constant(np.asarray(one, np.float32)) for one in given)]
        shape = (batch, *places, outputs)
        return self.node("CONV_3D", inputs, shape, ("Conv3DOptions", fields))

    def transpose_conv(
        self,
        x: int,
        weights: np.ndarray,
        bias: np.ndarray | None = None,
        *,
        stride: Pair = 1,
        padding: str = "SAME",
        activation: str = "NONE",
        extra: tuple[int, int] = (0, 0),
    ) -> int:
        """TRANSPOSE_CONV; ``extra`` rows and columns of VALID that no window reaches."""
        batch, height, width, _ = self.tensors[x].shape
        (down, across), (rows, columns) = _pair(stride), weights.shape[1:3]
        size = (height * down, width * across)
        if padding == "VALID":
            size = (
                (height - 1) * down + rows + extra[0],
                (width - 1) * across + columns + extra[1],
            )
        shape = (batch, *size, weights.shape[0])
        inputs = [
            self.constant(np.array(shape, np.int32)),
            self.constant(np.asarray(weights, np.float32)),
            x,
        ]
        if bias is not None:
            inputs.append(self.constant(np.asarray(bias, np.float32)))
        fields = {
            "Padding": _PADDINGS[padding],
            "StrideH": down,
            "StrideW": across,
            "FusedActivationFunction": _ACTIVATIONS[activation],
        }
        out = self.tensor(shape, "float32")
        self.operator("TRANSPOSE_CONV", inputs, [out], ("TransposeConvOptions", fields))
        return out

    def _weighted(
        self,
        kind: str,
        x: int,
        weights: np.ndarray,
        bias: np.ndarray | None,
        weight_scale: float | Sequence[float],
        axis: int,
        options: Options,
        shape: Sequence[int],
        scale: float,
        zero_point: int,
    ) -> int:
        inputs = [x, self.constant(np.asarray(weights, np.float32))]
        if bias is not None:
            inputs.append(self.constant(np.asarray(bias, np.float32)))
        return self._plain(kind, inputs, shape, scale, zero_point, options)

    def _plain(
        self,
        kind: str,
        inputs: Sequence[int],
        shape: Sequence[int],
        scale: float,
        zero_point: int,
        options: Options | None = None,
    ) -> int:
        out = self.tensor(shape, self.tensors[inputs[0]].dtype)
        self.operator(kind, inputs, [out], options)
        return out

    def _like(
        self, kind: str, inputs: Sequence[int], shape: Sequence[int], options: Options
    ) -> int:
        return self._plain(kind, inputs, shape, 0.0, 0, options)
