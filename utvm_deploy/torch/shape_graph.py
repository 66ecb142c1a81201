"""The int8 graph of a float module by its shapes: neither exported nor quantized.

The module runs once on an example, and each ATen call becomes the operator that quantizing the
module would make of it. Scales and weights stand for any. Images are NHWC, as in model files. What
is not in the tables here is refused.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from utvm_deploy.base.errors import UnsupportedOperator
from utvm_deploy.frontend.torch.calls import aten_name
from utvm_deploy.frontend.torch.export import load_torch
from utvm_deploy.graph import attributes as to
from utvm_deploy.graph.model import Graph, Operator, Quantization, Tensor
from utvm_deploy.torch.in_memory import check_module_and_example

_CLAMP = (-128, 127)
_SCALE = Quantization((1 / 16,), (-3,))
_SHARES = Quantization((1 / 256,), (-128,))
_POSITIVE = Quantization((1 / 16,), (-128,))
#: What is part of the operator before it.
_CUTTING = ("relu", "hardtanh", "clamp")
_FUSED = ("native_batch_norm", "_native_batch_norm_legit_no_training", *_CUTTING)
_CLAMPING = ("CONV_2D", "DEPTHWISE_CONV_2D", "FULLY_CONNECTED", "ADD", "MUL", "TRANSPOSE_CONV")
#: The result is the input.
_SAME = ("clone", "detach", "alias", "dropout", "contiguous", "native_dropout", "lift_fresh")
_SHAPED = ("view", "_unsafe_view", "reshape", "squeeze", "unsqueeze", "flatten", "expand")
#: ATen's name -> TFLite's, of functions of one element.
_FUNCTIONS = {
    **dict(sigmoid="LOGISTIC", tanh="TANH", hardswish="HARD_SWISH"),
    **{name: name.upper() for name in ("exp", "abs", "neg", "sqrt", "rsqrt", "log")},
}
_FIXED = {"LOGISTIC": _SHARES, "SOFTMAX": _SHARES, "TANH": Quantization((1 / 128,), (0,))}


def shape_graph(module: Any, example: Any) -> Graph:
    """The graph of a module; ``example`` has its inputs. A batch larger than one is one sample.

    Raises UnsupportedOperator for calls that are not in the tables here.
    """
    torch = load_torch()
    check_module_and_example(module, example)
    several = example if isinstance(example, tuple | list) else (example,)
    inputs = [torch.as_tensor(one)[:1].float() for one in several]
    graph = _Graph()
    for one in inputs:
        graph.input(one)
    from torch.utils._python_dispatch import TorchDispatchMode

    class Watch(TorchDispatchMode):  # type: ignore[misc]
        """Sees each call."""

        def __torch_dispatch__(
            self, function: Any, types: Any, args: Any = (), kwargs: Any = None
        ) -> Any:
            result = function(*args, **(kwargs or {}))
            graph.call(aten_name(function), args, result)
            return result

    was_training = module.training
    module.eval()
    try:
        with torch.no_grad(), Watch():
            made = module(*inputs)
    finally:
        module.train(was_training)
    if isinstance(made, Mapping):
        made = tuple(made.values())
    made = made if isinstance(made, tuple | list) else (made,)
    return graph.finished(type(module).__name__, made)


class _Graph:
    """A graph under construction."""

    def __init__(self) -> None:
        self._tensors: list[Tensor] = []
        self._operators: list[Operator] = []
        self._inputs: list[int] = []
        self._numbers: dict[int, int] = {}  # id of a torch tensor -> its number
        self._alive: list[Any] = []  # so that no other tensor gets an id again

    def input(self, value: Any) -> None:
        """A float input, which the model quantizes and puts into the order of images."""
        shape = tuple(value.shape)
        number = self._tensor(shape, "float32", None)
        self._inputs.append(number)
        number = self._add("QUANTIZE", (number,), to.Quantize(), shape)
        self._know(value, self._ordered(number, (0, 2, 3, 1)) if len(shape) == 4 else number)

    def finished(self, name: str, results: Sequence[Any]) -> Graph:
        """The graph with float outputs."""
        outputs = []
        for one in results:
            if id(one) not in self._numbers:
                raise UnsupportedOperator(
                    f"an output of {name} is not a tensor that it computes of its inputs; give a "
                    "module whose outputs are such tensors"
                )
            number = self._numbers[id(one)]
            if one.dim() == 4:
                number = self._ordered(number, (0, 3, 1, 2))
            shape = self._tensors[number].shape
            outputs.append(self._add("DEQUANTIZE", (number,), to.Dequantize(), shape, "float32"))
        return Graph(
            name, tuple(self._tensors), tuple(self._operators), tuple(self._inputs),
            tuple(outputs), "",
        )  # fmt: skip

    def call(self, name: str, args: Sequence[Any], result: Any) -> None:
        """One call of ATen's."""
        first = args[0] if args else None
        made = result[0] if isinstance(result, tuple | list) and result else result
        operands = [args[1], args[2]] if name == "addmm" else self._flat(args)
        if not any(id(one) in self._numbers for one in operands):
            return  # of constants
        is_part = name in _FUSED and self._producer(first) in _CLAMPING
        if is_part or name in _SAME:
            number = self._numbers[id(first)]
            if is_part and name in _CUTTING and self._producer(first) == "DEPTHWISE_CONV_2D":
                # The least output is 0: so one rounding is exact, which some kernels ask for.
                self._tensors[number] = replace(self._tensors[number], quantization=_POSITIVE)
            self._know(made, number)
        else:
            build = _BUILDERS.get(name)
            if build is None:
                raise UnsupportedOperator(
                    f"the shapes of aten.{name} are not known here; quantize the module, and "
                    "estimate what quantize() gave"
                )
            self._know(made, build(self, args, _shape(made)))

    # What builders use

    def number(self, value: Any) -> int:
        """Of a value, or of a new constant with its shape."""
        if id(value) in self._numbers:
            return self._numbers[id(value)]
        shape = _shape(value) if hasattr(value, "shape") else ()
        return self.constant(shape or (1,))

    def constant(self, shape: tuple[int, ...], axis: int | None = None, dtype: str = "int8") -> int:
        """Numbers with a scale for each of the channels along an axis."""
        count = 1 if axis is None else shape[axis]
        scales = Quantization((0.0123,) * count, (0,) * count, axis)
        data = np.broadcast_to(np.ones((), dtype), shape)
        return self._tensor(shape, dtype, scales, data)

    def add(self, kind: str, inputs: Sequence[int], attributes: Any, shape: tuple[int, ...]) -> int:
        """An operator of int8."""
        return self._add(kind, tuple(inputs), attributes, shape)

    def shape_of(self, number: int) -> tuple[int, ...]:
        """Of a tensor."""
        return self._tensors[number].shape

    def moved(
        self, number: int, indices: Sequence[Sequence[int]], order: Sequence[int], kind: str
    ) -> int:
        """A Rearrange of all dimensions."""
        extents = [len(some) for some in indices]
        shape = tuple(extents[one] for one in order)
        taken = tuple(map(tuple, indices))
        made = to.Rearrange(self.shape_of(number), taken, tuple(order), shape)
        return self.add(kind, (number,), made, shape)

    def _ordered(self, number: int, order: Sequence[int]) -> int:
        return self.moved(number, [range(n) for n in self.shape_of(number)], order, "TRANSPOSE")

    def _add(
        self, kind: str, inputs: tuple[int, ...], attributes: Any, shape: tuple[int, ...],
        dtype: str = "int8",
    ) -> int:  # fmt: skip
        scale = None if dtype == "float32" else _FIXED.get(kind, _SCALE)
        if isinstance(attributes, to.Rearrange | to.Reshape | to.Pad | to.Pool | to.Concatenation):
            scale = self._tensors[inputs[0]].quantization
        number = self._tensor(shape, dtype, scale)
        place = (len(self._operators),)
        self._operators.append(Operator(kind, inputs, (number,), attributes, place))
        return number

    def _tensor(
        self, shape: tuple[int, ...], dtype: str, scale: Quantization | None, data: Any = None
    ) -> int:
        self._tensors.append(Tensor(f"t{len(self._tensors)}", shape, dtype, scale, data))
        return len(self._tensors) - 1

    def _know(self, value: Any, number: int) -> None:
        self._numbers[id(value)] = number
        self._alive.append(value)

    def _producer(self, value: Any) -> str:
        number = self._numbers.get(id(value))
        return next((o.kind for o in reversed(self._operators) if number in o.outputs), "")

    @staticmethod
    def _flat(args: Sequence[Any]) -> list[Any]:
        return [two for one in args for two in (one if isinstance(one, list | tuple) else (one,))]


_Build = Callable[[_Graph, Sequence[Any], tuple[int, ...]], int]


def _shape(value: Any) -> tuple[int, ...]:
    """NHWC of images; rows of signals are images of one row."""
    shape = tuple(value.shape)
    return (shape[0], *shape[2:], shape[1]) if len(shape) == 4 else shape


def _axis(dim: int, rank: int) -> int:
    """Where a dimension of PyTorch's is in the graph."""
    return (0, 3, 1, 2)[dim % 4] if rank == 4 else dim % rank


def _pair(value: Any) -> tuple[int, int]:
    """Of rows and columns; one number stands for both."""
    first, *others = value if isinstance(value, list | tuple) else (value,)
    return first, others[0] if others else first


def _convolution(g: _Graph, args: Sequence[Any], shape: tuple[int, ...]) -> int:
    value, weights, _, strides, padding, dilations, transposed, _, groups = args[:9]
    rank = len(strides)
    if rank > 2:
        raise UnsupportedOperator("convolutions in three dimensions are not estimated by shapes")
    strides, padding, dilations = (
        (default, *one) if rank == 1 else tuple(one)
        for one, default in ((strides, 1), (padding, 0), (dilations, 1))
    )
    x = g.number(value)
    outputs, inputs, *window = weights.shape
    window = [1] * (2 - rank) + window
    if rank == 1:
        image = (value.shape[0], 1, value.shape[2], value.shape[1])
        x = g.add("RESHAPE", (x,), to.Reshape(), image) if g.shape_of(x) != image else x
        shape = (shape[0], 1, shape[2], shape[1])
    around = (padding[0], padding[0], padding[1], padding[1])
    channels = shape[-1]
    b = g.constant((channels,), 0, "int32")
    if transposed:
        w = g.constant((channels, *window, outputs), 0)
        made = to.TransposeConvolution(strides, padding, _CLAMP)
        return g.add("TRANSPOSE_CONV", (x, w, b), made, shape)
    is_depthwise = inputs == 1 and groups > 1
    multiplier = outputs // groups if is_depthwise else 1
    made_of = to.Convolution(strides, dilations, around, _CLAMP, multiplier)
    if is_depthwise:
        w = g.constant((1, *window, outputs), 3)
        return g.add("DEPTHWISE_CONV_2D", (x, w, b), made_of, shape)
    w = g.constant((outputs, *window, inputs), 0)
    return g.add("CONV_2D", (x, w, b), made_of, shape)


def _dense(g: _Graph, args: Sequence[Any], shape: tuple[int, ...]) -> int:
    value, weights = args[-2:]
    x = g.number(value)
    if id(weights) in g._numbers:
        raise UnsupportedOperator("products of two tensors are not estimated by shapes")
    inputs, outputs = weights.shape
    w, b = g.constant((outputs, inputs), 0), g.constant((outputs,), 0, "int32")
    return g.add("FULLY_CONNECTED", (x, w, b), to.FullyConnected(_CLAMP), shape)


def _elementwise(kind: str, attributes: Any) -> _Build:
    def build(g: _Graph, args: Sequence[Any], shape: tuple[int, ...]) -> int:
        x, y = g.number(args[0]), g.number(args[1])
        return g.add(kind, (x, y), attributes, np.broadcast_shapes(g.shape_of(x), g.shape_of(y)))

    return build


def _of_one(kind: str, attributes: Any) -> _Build:
    return lambda g, args, shape: g.add(
        kind, (g.number(args[0]),), attributes, g.shape_of(g.number(args[0]))
    )


def _pool(kind: str) -> _Build:
    def build(g: _Graph, args: Sequence[Any], shape: tuple[int, ...]) -> int:
        window, rows = _pair(args[1]), _pair(args[3] if len(args) > 3 else 0)
        strides = _pair(args[2]) if len(args) > 2 and args[2] else window
        made = to.Pool(window, strides, (rows[0], rows[0], rows[1], rows[1]), _CLAMP)
        return g.add(kind, (g.number(args[0]),), made, shape)

    return build


def _mean(g: _Graph, args: Sequence[Any], shape: tuple[int, ...]) -> int:
    x = g.number(args[0])
    rank = args[0].dim()
    axes = tuple(sorted(_axis(dim, rank) for dim in (args[1] if len(args) > 1 else range(rank))))
    return g.add("MEAN", (x,), to.Mean(axes), shape)


def _pool_to_size(g: _Graph, args: Sequence[Any], shape: tuple[int, ...]) -> int:
    x = g.number(args[0])
    _, rows, columns, _ = g.shape_of(x)
    window = rows // shape[1], columns // shape[2]
    return g.add("AVERAGE_POOL_2D", (x,), to.Pool(window, window, (0, 0, 0, 0), _CLAMP), shape)


def _joined(g: _Graph, args: Sequence[Any], shape: tuple[int, ...]) -> int:
    axis = _axis(args[1] if len(args) > 1 else 0, len(shape))
    return g.add("CONCATENATION", [g.number(one) for one in args[0]], to.Concatenation(axis), shape)


def _silu(g: _Graph, args: Sequence[Any], shape: tuple[int, ...]) -> int:
    x = g.number(args[0])
    y = g.add("LOGISTIC", (x,), to.OfOne(), shape)
    return g.add("MUL", (x, y), to.Multiply(_CLAMP), shape)


def _padded(g: _Graph, args: Sequence[Any], shape: tuple[int, ...]) -> int:
    rank, pairs = len(shape), [(0, 0)] * len(shape)
    for place in range(len(args[1]) // 2):
        pairs[_axis(rank - 1 - place, rank)] = (args[1][2 * place], args[1][2 * place + 1])
    return g.add("PAD", (g.number(args[0]),), to.Pad(tuple(pairs)), shape)


def _permuted(g: _Graph, args: Sequence[Any], shape: tuple[int, ...]) -> int:
    rank, x = args[0].dim(), g.number(args[0])
    order = list(range(rank))
    if len(args) > 2:
        one, other = (dim % rank for dim in args[1:3])
        order[one], order[other] = order[other], order[one]
    else:
        order = [dim % rank for dim in args[1]] if len(args) > 1 else order[::-1]
    placed = [0] * rank
    for place, dim in enumerate(order):
        placed[_axis(place, rank)] = _axis(dim, rank)
    return g.moved(x, [range(n) for n in g.shape_of(x)], placed, "TRANSPOSE")


def _sliced(g: _Graph, args: Sequence[Any], shape: tuple[int, ...]) -> int:
    x, axis = g.number(args[0]), _axis(args[1] if len(args) > 1 else 0, args[0].dim())
    indices: list[Sequence[int]] = [range(n) for n in g.shape_of(x)]
    indices[axis] = indices[axis][slice(*args[2:5])]
    if list(map(len, indices)) == list(g.shape_of(x)):
        return x
    return g.moved(x, indices, range(len(indices)), "SLICE")


def _enlarged(g: _Graph, args: Sequence[Any], shape: tuple[int, ...]) -> int:
    x = g.number(args[0])
    indices = [[i * old // new for i in range(new)]
               for old, new in zip(g.shape_of(x), shape, strict=True)]  # fmt: skip
    return g.moved(x, indices, range(4), "RESIZE_NEAREST_NEIGHBOR")


_BUILDERS: dict[str, _Build] = {
    "convolution": _convolution,
    **dict.fromkeys(("addmm", "mm"), _dense),
    **dict.fromkeys(("add", "add_"), _elementwise("ADD", to.Add(_CLAMP))),
    "sub": _elementwise("SUB", to.Subtract(_CLAMP)),
    "mul": _elementwise("MUL", to.Multiply(_CLAMP)),
    **{name: _of_one(kind, to.OfOne()) for name, kind in _FUNCTIONS.items()},
    **dict.fromkeys(("relu", "clamp"), _of_one("RELU", to.Relu(_CLAMP))),
    "hardtanh": _of_one("RELU6", to.Relu(_CLAMP)),
    **dict.fromkeys(_FUSED[:2], _elementwise("MUL", to.Multiply(_CLAMP))),
    "leaky_relu": _of_one("LEAKY_RELU", to.LeakyRelu(0.01)),
    "gelu": _of_one("GELU", to.Gelu(False)),
    "_softmax": _of_one("SOFTMAX", to.Softmax(1.0)),
    "silu": _silu,
    "max_pool2d_with_indices": _pool("MAX_POOL_2D"),
    "avg_pool2d": _pool("AVERAGE_POOL_2D"),
    "_adaptive_avg_pool2d": _pool_to_size,
    "mean": _mean,
    "cat": _joined,
    "constant_pad_nd": _padded,
    **dict.fromkeys(("permute", "transpose", "t"), _permuted),
    "slice": _sliced,
    "upsample_nearest2d": _enlarged,
    "upsample_bilinear2d": lambda g, args, shape: g.add(
        "RESIZE_BILINEAR", (g.number(args[0]),), to.ResizeBilinear(False, True), shape
    ),
    **dict.fromkeys(
        _SHAPED, lambda g, args, shape: g.add("RESHAPE", (g.number(args[0]),), to.Reshape(), shape)
    ),
}
