"""Writes small quantized .tflite files, for tests that need a model of a certain shape.

    m = ModelWriter()
    x = m.input((1, 8, 8, 3), scale=0.02, zero_point=-3)
    y = m.conv2d(x, weights, bias, weight_scale=0.01, stride=2, activation="RELU6",
                 scale=0.03, zero_point=5)
    m.output(y)
    m.save(path)

Tensors are named by their number in the file, which is also the number the oracle knows them by.
Output shapes are computed here, on their own, so that the importer's shape rules are tested too.
``tensor`` and ``operator`` write anything, also what no converter would.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
from tflite_serializer import CODE_FIELDS, OperatorSpec, Options, TensorSpec, serialize

_PADDINGS = {"SAME": 0, "VALID": 1}
_ACTIVATIONS = {"NONE": 0, "RELU": 1, "RELU_N1_TO_1": 2, "RELU6": 3, "TANH": 4}

#: The inputs of operators that may be int4.
_WITH_INT4: Mapping[str, Sequence[int]] = {
    **dict.fromkeys(("BATCH_MATMUL", "CONV_2D", "DEPTHWISE_CONV_2D", "FULLY_CONNECTED"), (1,)),
    "UNIDIRECTIONAL_SEQUENCE_LSTM": (*range(1, 9), 18),
}

Pair = int | tuple[int, int]


@dataclass
class ModelWriter:
    """A model under construction."""

    description: str = "utvm_deploy test model"
    tensors: list[TensorSpec] = field(default_factory=list)
    operators: list[OperatorSpec] = field(default_factory=list)
    inputs: list[int] = field(default_factory=list)
    outputs: list[int] = field(default_factory=list)
    # The subgraph that CALL_ONCE runs; ``save`` puts that first if it is nowhere else.
    once: ModelWriter | None = None
    # Further subgraphs behind ``once``, each called by a CALL_ONCE of its own.
    further: list[ModelWriter] = field(default_factory=list)
    # Which fields of the schema have the operators' numbers.
    operator_codes: Sequence[str] = CODE_FIELDS

    # Tensors

    def tensor(
        self,
        shape: Sequence[int],
        dtype: str = "int8",
        scale: float | Sequence[float] | None = None,
        zero_point: int | Sequence[int] = 0,
        *,
        axis: int = 0,
        data: np.ndarray | None = None,
        name: str | None = None,
    ) -> int:
        """Any tensor; several scales make it quantized along ``axis``."""
        number = len(self.tensors)
        scales = () if scale is None else tuple(float(s) for s in np.atleast_1d(scale))
        zeros = tuple(int(z) for z in np.broadcast_to(zero_point, (len(scales),)))
        raw = None if data is None else np.ascontiguousarray(data, dtype=dtype).tobytes()
        name = f"tensor_{number}" if name is None else name
        shape = tuple(int(d) for d in shape)
        self.tensors.append(TensorSpec(name, shape, dtype, scales, zeros, axis, raw))
        return number

    def constant(
        self,
        data: np.ndarray,
        scale: float | Sequence[float] | None = None,
        zero_point: int = 0,
        *,
        axis: int = 0,
        name: str | None = None,
    ) -> int:
        """A constant with the array's shape and element type."""
        data = np.asarray(data)
        return self.tensor(
            data.shape, str(data.dtype), scale, zero_point, axis=axis, data=data, name=name
        )

    def input(
        self, shape: Sequence[int], scale: float = 0.1, zero_point: int = 0, name: str | None = None
    ) -> int:
        """An int8 model input."""
        number = self.tensor(shape, "int8", scale, zero_point, name=name)
        self.inputs.append(number)
        return number

    def float_input(self, shape: Sequence[int], name: str | None = None) -> int:
        """A float32 model input, to be followed by ``quantize``."""
        number = self.tensor(shape, "float32", name=name)
        self.inputs.append(number)
        return number

    def output(self, *numbers: int) -> None:
        """Declare model outputs."""
        self.outputs += numbers

    # Operators

    def operator(
        self,
        kind: str,
        inputs: Sequence[int],
        outputs: Sequence[int],
        options: Options | None = None,
    ) -> None:
        """Any operator."""
        self.operators.append(OperatorSpec(kind, list(inputs), list(outputs), options))

    def node(
        self,
        kind: str,
        inputs: Sequence[int],
        shape: Sequence[int],
        options: Options | None = None,
        *,
        scale: float | None = None,
        zero_point: int | None = None,
        dtype: str | None = None,
    ) -> int:
        """An operator with one output, of the first input's type and quantization if not said."""
        x = self.tensors[inputs[0]]
        scale = x.scales[0] if scale is None and x.scales else scale
        zero_point = x.zero_points[0] if zero_point is None and x.zero_points else zero_point
        out = self.tensor(shape, dtype or x.dtype, scale, zero_point or 0)
        self.operator(kind, inputs, [out], options)
        return out

    def conv2d(
        self,
        x: int,
        weights: np.ndarray,
        bias: np.ndarray | None = None,
        *,
        weight_scale: float | Sequence[float] = 0.01,
        stride: Pair = 1,
        dilation: Pair = 1,
        padding: str = "SAME",
        activation: str = "NONE",
        scale: float = 0.1,
        zero_point: int = 0,
    ) -> int:
        """CONV_2D; weights are OHWI. LiteRT refuses an int8 one without a bias."""
        shape = self._window_shape(x, weights.shape[1:3], stride, dilation, padding)
        options = _window_options("Conv2DOptions", stride, dilation, padding, activation)
        out = (*shape, weights.shape[0])
        return self._weighted(
            "CONV_2D", x, weights, bias, weight_scale, 0, options, out, scale, zero_point
        )

    def depthwise_conv2d(
        self,
        x: int,
        weights: np.ndarray,
        bias: np.ndarray | None = None,
        *,
        weight_scale: float | Sequence[float] = 0.01,
        stride: Pair = 1,
        dilation: Pair = 1,
        padding: str = "SAME",
        activation: str = "NONE",
        scale: float = 0.1,
        zero_point: int = 0,
    ) -> int:
        """DEPTHWISE_CONV_2D; weights are 1HWC with C a multiple of the input's channels."""
        shape = self._window_shape(x, weights.shape[1:3], stride, dilation, padding)
        name, fields = _window_options(
            "DepthwiseConv2DOptions", stride, dilation, padding, activation
        )
        multiplier = weights.shape[3] // self.tensors[x].shape[3]
        options = (name, {**fields, "DepthMultiplier": multiplier})
        out = (*shape, weights.shape[3])
        return self._weighted(
            "DEPTHWISE_CONV_2D", x, weights, bias, weight_scale, 3, options, out, scale, zero_point
        )

    def fully_connected(
        self,
        x: int,
        weights: np.ndarray,
        bias: np.ndarray | None = None,
        *,
        weight_scale: float | Sequence[float] = 0.01,
        activation: str = "NONE",
        keep_num_dims: bool = False,
        scale: float = 0.1,
        zero_point: int = 0,
    ) -> int:
        """FULLY_CONNECTED; weights are [outputs, inputs]."""
        shape = self.tensors[x].shape
        rows = int(np.prod(shape)) // weights.shape[1]
        out = (*shape[:-1], weights.shape[0]) if keep_num_dims else (rows, weights.shape[0])
        options = (
            "FullyConnectedOptions",
            {"FusedActivationFunction": _ACTIVATIONS[activation], "KeepNumDims": keep_num_dims},
        )
        return self._weighted(
            "FULLY_CONNECTED", x, weights, bias, weight_scale, 0, options, out, scale, zero_point
        )

    def add(
        self, a: int, b: int, *, activation: str = "NONE", scale: float = 0.1, zero_point: int = 0
    ) -> int:
        """ADD with broadcasting."""
        shape = np.broadcast_shapes(self.tensors[a].shape, self.tensors[b].shape)
        options = ("AddOptions", {"FusedActivationFunction": _ACTIVATIONS[activation]})
        return self._plain("ADD", [a, b], shape, scale, zero_point, options)

    def average_pool(self, x: int, window: Pair, **options: Any) -> int:
        """AVERAGE_POOL_2D; the output is quantized like the input."""
        return self._pool("AVERAGE_POOL_2D", x, window, **options)

    def max_pool(self, x: int, window: Pair, **options: Any) -> int:
        """MAX_POOL_2D; the output is quantized like the input."""
        return self._pool("MAX_POOL_2D", x, window, **options)

    def l2_pool(self, x: int, window: Pair, **options: Any) -> int:
        """L2_POOL_2D, which LiteRT has for float32 only."""
        return self._pool("L2_POOL_2D", x, window, **options)

    def mean(
        self,
        x: int,
        axes: Sequence[int],
        *,
        keep_dims: bool = False,
        scale: float = 0.1,
        zero_point: int = 0,
    ) -> int:
        """MEAN over axes, which may be negative."""
        shape = self.tensors[x].shape
        reduced = {axis % len(shape) for axis in axes}
        out = [
            1 if i in reduced else d for i, d in enumerate(shape) if keep_dims or i not in reduced
        ]
        constant = self.constant(np.array(axes, np.int32))
        options = ("ReducerOptions", {"KeepDims": keep_dims})
        return self._plain("MEAN", [x, constant], out, scale, zero_point, options)

    def pad(self, x: int, paddings: Sequence[Sequence[int]]) -> int:
        """PAD by (before, after) per dimension; the output is quantized like the input."""
        shape = [
            d + before + after
            for d, (before, after) in zip(self.tensors[x].shape, paddings, strict=True)
        ]
        constant = self.constant(np.array(paddings, np.int32))
        return self._like("PAD", [x, constant], shape, ("PadOptions", {}))

    def reshape(self, x: int, shape: Sequence[int]) -> int:
        """RESHAPE; one dimension may be -1."""
        known = int(np.prod([d for d in shape if d != -1]))
        left = int(np.prod(self.tensors[x].shape)) // max(known, 1)
        constant = self.constant(np.array(shape, np.int32))
        out = [left if d == -1 else d for d in shape]
        return self._like("RESHAPE", [x, constant], out, ("ReshapeOptions", {}))

    def softmax(self, x: int, *, beta: float = 1.0) -> int:
        """SOFTMAX along the last dimension."""
        options = ("SoftmaxOptions", {"Beta": beta})
        return self._plain("SOFTMAX", [x], self.tensors[x].shape, 1 / 256, -128, options)

    def relu(self, x: int, *, scale: float = 0.1, zero_point: int = 0) -> int:
        """RELU."""
        return self._plain("RELU", [x], self.tensors[x].shape, scale, zero_point)

    def relu6(self, x: int, *, scale: float = 0.1, zero_point: int = 0) -> int:
        """RELU6."""
        return self._plain("RELU6", [x], self.tensors[x].shape, scale, zero_point)

    def quantize(self, x: int, *, scale: float = 0.1, zero_point: int = 0) -> int:
        """QUANTIZE float32 or int8 to int8."""
        options: Options = ("QuantizeOptions", {})
        return self._plain("QUANTIZE", [x], self.tensors[x].shape, scale, zero_point, options)

    def dequantize(self, x: int) -> int:
        """DEQUANTIZE to float32."""
        out = self.tensor(self.tensors[x].shape, "float32")
        self.operator("DEQUANTIZE", [x], [out], ("DequantizeOptions", {}))
        return out

    # Variables

    def handle(self, name: str, shape: Sequence[int] = ()) -> int:
        """VAR_HANDLE: what names a variable."""
        made = self.tensor(shape, "resource")
        options = ("VarHandleOptions", {"Container": "", "SharedName": name})
        self.operator("VAR_HANDLE", [], [made], options)
        return made

    def variable(
        self, name: str, first: np.ndarray | None, scale: float | None = None, zero_point: int = 0
    ) -> int:
        """A variable and, in the subgraph that runs once, its first value; its handle."""
        if first is not None:
            self.once = self.once or ModelWriter()
            value = self.once.constant(first, scale, zero_point)
            self.once.assign(self.once.handle(name), value)
        return self.handle(name)

    def read(
        self,
        handle: int,
        shape: Sequence[int],
        scale: float | None = 0.1,
        zero_point: int = 0,
        dtype: str = "int8",
    ) -> int:
        """READ_VARIABLE."""
        out = self.tensor(shape, dtype, scale, zero_point)
        self.operator("READ_VARIABLE", [handle], [out], ("ReadVariableOptions", {}))
        return out

    def assign(self, handle: int, value: int) -> None:
        """ASSIGN_VARIABLE."""
        self.operator("ASSIGN_VARIABLE", [handle, value], [], ("AssignVariableOptions", {}))

    # The file

    def pack_weights(self) -> None:
        """Make int4 of the int8 weights of layers: of each, its upper four bits."""
        for operator in self.operators:
            for position in _WITH_INT4.get(operator.kind, ()):
                x = self.tensors[operator.inputs[0]]
                number = operator.inputs[position]
                weights = self.tensors[number]
                if number < 0 or x.dtype not in ("int8", "int16") or weights.dtype != "int8":
                    continue
                if weights.data is not None and not any(weights.zero_points):
                    values = np.frombuffer(weights.data, np.int8) >> 4
                    nibbles = np.resize(values & 15, -(-values.size // 2) * 2).astype(np.uint8)
                    nibbles[values.size :] = 0
                    # The converter puts the first value into the low half of a byte.
                    weights.data = (nibbles[::2] | nibbles[1::2] << 4).tobytes()
                    weights.dtype = "int4"

    def to_bytes(self) -> bytes:
        """The .tflite file."""
        if self.once is None or any(op.kind == "CALL_ONCE" for op in self.operators):
            return serialize(self)
        calls = [call_once(1 + number) for number in range(1 + len(self.further))]
        return serialize(replace(self, operators=[*calls, *self.operators]))

    def save(self, path: str | Path) -> Path:
        """Write the file."""
        Path(path).write_bytes(self.to_bytes())
        return Path(path)

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
        weights_number = self.constant(np.asarray(weights, np.int8), weight_scale, axis=axis)
        inputs = [x, weights_number]
        if bias is not None:
            # What the converter does; LiteRT checks that it is so.
            scales = self.tensors[x].scales[0] * np.atleast_1d(np.array(weight_scale, np.float32))
            is_wide = self.tensors[x].dtype == "int16" and bias.dtype == np.int64
            inputs.append(
                self.constant(bias.astype(np.int64 if is_wide else np.int32), list(scales))
            )
        made = self._plain(kind, inputs, shape, scale, zero_point, options)
        if self.tensors[x].dtype == "int16":
            self.tensors[made].dtype = "int16"
        return made

    def _plain(
        self,
        kind: str,
        inputs: Sequence[int],
        shape: Sequence[int],
        scale: float,
        zero_point: int,
        options: Options | None = None,
    ) -> int:
        out = self.tensor(shape, "int8", scale, zero_point)
        self.operator(kind, inputs, [out], options)
        return out

    def _like(
        self, kind: str, inputs: Sequence[int], shape: Sequence[int], options: Options
    ) -> int:
        x = self.tensors[inputs[0]]
        return self._plain(kind, inputs, shape, x.scales[0], x.zero_points[0], options)

    def _pool(
        self,
        kind: str,
        x: int,
        window: Pair,
        *,
        stride: Pair | None = None,
        padding: str = "VALID",
        activation: str = "NONE",
    ) -> int:
        window = _pair(window)
        stride = window if stride is None else _pair(stride)
        shape = (*self._window_shape(x, window, stride, 1, padding), self.tensors[x].shape[3])
        fields = {
            "Padding": _PADDINGS[padding],
            "StrideH": stride[0],
            "StrideW": stride[1],
            "FilterHeight": window[0],
            "FilterWidth": window[1],
            "FusedActivationFunction": _ACTIVATIONS[activation],
        }
        return self._like(kind, [x], shape, ("Pool2DOptions", fields))

    def _window_shape(
        self, x: int, window: Sequence[int], stride: Pair, dilation: Pair, padding: str
    ) -> tuple[int, int, int]:
        batch, *image, _ = self.tensors[x].shape
        sizes = []
        for size, w, s, d in zip(image, window, _pair(stride), _pair(dilation), strict=True):
            positions = size if padding == "SAME" else size - (w - 1) * d
            sizes.append(-(-positions // s))
        return (batch, sizes[0], sizes[1])


def call_once(subgraph: int = 1) -> OperatorSpec:
    """CALL_ONCE of a subgraph; the first one is ``ModelWriter.once``."""
    return OperatorSpec("CALL_ONCE", [], [], ("CallOnceOptions", {"InitSubgraphIndex": subgraph}))


def _pair(value: Pair) -> tuple[int, int]:
    return (value, value) if isinstance(value, int) else value


def _window_options(
    name: str, stride: Pair, dilation: Pair, padding: str, activation: str
) -> Options:
    (stride_h, stride_w), (dilation_h, dilation_w) = _pair(stride), _pair(dilation)
    return name, {
        "Padding": _PADDINGS[padding],
        "StrideH": stride_h,
        "StrideW": stride_w,
        "DilationHFactor": dilation_h,
        "DilationWFactor": dilation_w,
        "FusedActivationFunction": _ACTIVATIONS[activation],
    }
