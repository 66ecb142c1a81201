"""In a child process: operators in front of a .tflite file's image, so that it takes another one.

    image ──SLICE──RESIZE──UtvmRgb565──▶ pixels ──(x / 255 - mean) / std──QUANTIZE──▶ the file's

LiteRT runs these operators, and NumPy the one of RGB565. ``byte_tables.py`` makes a table of the
float arithmetic.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from utvm_deploy.base.errors import ModelError
from utvm_deploy.frontend.files import tflite_schema as schema
from utvm_deploy.frontend.files.image_input import RGB565, ImageInput
from utvm_deploy.graph.names import short_name
from utvm_deploy.graph.user_arrays import NCHW, NHWC, order_of

_TO_NHWC, _TO_NCHW = (0, 2, 3, 1), (0, 3, 1, 2)
_OFFSET = 128  # from int8 to uint8
_WHITE = 255.0
_QUANTIZED = ("int8", "uint8")


def with_image(data: bytes, image: ImageInput) -> bytes:
    """The file whose image input is what the caller gives.

    Raises ModelError for a file without such an input, and for an image that does not fit it.
    """
    model = schema.read_model(data)
    _Front(model, image, _image_input(model)).write()
    return schema.model_bytes(model)


def _image_input(model: Any) -> int:
    """The number of the only input that is an image."""
    tensors = model.subgraphs[0].tensors
    shapes = {
        one: schema.numbers(tensors[one].shape) for one in schema.numbers(model.subgraphs[0].inputs)
    }
    found = [one for one, shape in shapes.items() if order_of(shape)]
    if len(found) == 1:
        return found[0]
    told = ", ".join(
        f"'{short_name(schema.name_of(model, one))}' {tuple(shape)}"
        for one, shape in shapes.items()
    )
    raise ModelError(
        f"--input needs one input that is an image, (batch, height, width, channels) or (batch, "
        f"channels, height, width) with 1, 3 or 4 channels, but the model has {told}"
    )


class _Front:
    """The operators that are written in front of an input."""

    def __init__(self, model: Any, image: ImageInput, given: int) -> None:
        self._model, self._graph = model, model.subgraphs[0]
        self._image, self._given = image, given
        self._source = self._graph.tensors[given]
        self._label = f"input '{short_name(schema.name_of(model, given))}'"
        shape = schema.numbers(self._source.shape)
        self._order = order_of(shape)
        if self._order == NCHW:
            shape = [shape[axis] for axis in _TO_NHWC]
        _, self._rows, self._columns, self._channels = self._shape = shape
        self._quantizes = self._first_quantize() if image.pixels else None
        target = given if self._quantizes is None else int(self._quantizes.outputs[0])
        self._target = self._graph.tensors[target]
        self._target_number = target
        self._kind = schema.name_of_type(self._target.type)
        self._operators: list[Any] = []
        self._check()

    def _first_quantize(self) -> Any:
        """The QUANTIZE that alone reads a float input; its output is the target then."""
        readers = [
            one for one in self._graph.operators if self._given in schema.numbers(one.inputs)
        ]
        kinds = [schema.kind_of(self._model, one) for one in readers]
        is_float = self._source.type == schema.FLOAT32
        return readers[0] if is_float and kinds == ["QUANTIZE"] else None

    def _check(self) -> None:
        image, kind = self._image, self._kind
        if image.pixels in RGB565 and self._channels != 3:
            raise ModelError(
                f"{self._label} has the channels {self._channels}, and {image.pixels} has red, "
                "green and blue; give --input uint8"
            )
        for name, values in (("mean", image.mean), ("std", image.std)):
            if len(values) not in (0, 1, self._channels):
                raise ModelError(
                    f"{name} has {len(values)} numbers, and {self._label} has the channels "
                    f"{self._channels}; give one number, or one for each channel"
                )
        scale, _ = schema.steps_of(self._target)
        if kind == "uint8" and not scale:
            if image.is_normalized:
                raise ModelError(
                    f"{self._label} takes pixels as they are, and the model does the rest; leave "
                    "mean and std out"
                )
            scale = 1 / _WHITE
            self._target.quantization = schema.quantization([scale], [0])
        if image.pixels and not image.is_normalized and kind not in _QUANTIZED:
            raise ModelError(
                f"{self._label} is {kind}, so nothing says what a pixel of 255 means; give mean "
                "and std, too, such as mean=0 std=1 for values from 0 to 1"
            )
        if image.pixels and not (scale or kind == "float32"):
            raise ModelError(f"{self._label} is {kind} without a scale, which no image becomes")

    def write(self) -> None:
        """Write them, and let the model take what the first of them reads."""
        image, (batch, rows, columns, channels) = self._image, self._shape
        is_packed = image.pixels in RGB565
        order = image.order or (NHWC if is_packed else self._order)
        if image.size[0]:
            columns, rows = image.size
        shape = [batch, rows, columns, 2 if is_packed else channels]
        moves = [rows, columns] != self._shape[1:3]
        if order == NCHW:
            shape = [shape[axis] for axis in _TO_NCHW]
        kind, params = self._source.type, self._source.quantization
        if image.pixels:
            kind, params = schema.UINT8, self._pixels(0)
        new = self._last = self._tensor(shape, kind, None if is_packed else params)
        if order == NCHW and (moves or self._order == NHWC):
            order = self._turn(_TO_NHWC, NHWC)
        if moves:
            self._crop(rows, columns)
        if moves and image.resize == "nearest":
            self._resize("RESIZE_NEAREST_NEIGHBOR", "ResizeNearestNeighborOptions", 3)
        if is_packed:
            self._expand(params)
        if moves and image.resize == "bilinear":
            if image.pixels:
                self._steps_of_type(schema.INT8, self._pixels(_OFFSET))
            self._resize("RESIZE_BILINEAR", "ResizeBilinearOptions", 3)
        if order != self._order:
            self._turn(_TO_NCHW, NCHW)
        if image.is_normalized:
            self._normalize()
        elif image.pixels:
            self._steps_of_type(self._target.type, self._target.quantization)
        if self._operators or self._quantizes is not None:
            self._join(new)

    def _join(self, new: int) -> None:
        """Let the last operator make the target."""
        graph, target = self._graph, self._target_number
        if self._operators:
            self._operators[-1].outputs = [target]
        else:  # the target itself is what the caller gives
            new = target
        name = self._source.name or b"input"
        self._source.name, graph.tensors[new].name = name + b"_model", name
        if self._image.pixels in RGB565:  # which nothing else says of bytes
            graph.tensors[new].name += f" ({self._image.pixels})".encode()
        others = [one for one in graph.operators if one is not self._quantizes]
        graph.operators = [*self._operators, *others]
        graph.inputs = [new if one == self._given else int(one) for one in graph.inputs]
        for signature in self._model.signatureDefs or ():
            for one in signature.inputs:
                one.tensorIndex = new if one.tensorIndex == self._given else one.tensorIndex

    def _pixels(self, offset: int) -> Any:
        """The quantization of pixels: 0 to 1 if they are normalized, else that of the target."""
        scale, zero = 1.0 / _WHITE, 0
        if not self._image.is_normalized:
            scale, zero = schema.steps_of(self._target)
            zero += _OFFSET if self._kind == "int8" else 0
        return schema.quantization([scale], [zero - offset])

    def _crop(self, rows: int, columns: int) -> None:
        """Take the middle: as large as the user says, as the target, or of the target's form."""
        image, wanted = self._image, (self._columns, self._rows)
        if not (image.crops or image.resize):
            raise ModelError(
                f"{self._label} has {self._columns}x{self._rows} pixels, and the image "
                f"{columns}x{rows}; say crop, nearest or bilinear"
            )
        if not image.crops:
            return
        width, height = image.crop if image.crop[0] else wanted
        if image.resize and not image.crop[0]:
            width = min(columns, rows * self._columns // self._rows)
            height = min(rows, columns * self._rows // self._columns)
        elif not image.resize and (width, height) != wanted:
            raise ModelError(
                f"{self._label} has {self._columns}x{self._rows} pixels, and the crop "
                f"{width}x{height}; say nearest or bilinear"
            )
        if width > columns or height > rows or 0 in (width, height):
            raise ModelError(
                f"a crop of {width}x{height} pixels is larger than the image of {columns}x{rows}"
                if width and height
                else f"an image of {columns}x{rows} has no part of the form of {self._label}"
            )
        batch, *_, channels = schema.numbers(self._graph.tensors[self._last].shape)
        size = [batch, height, width, channels]
        begin = self._constant([0, (rows - height) // 2, (columns - width) // 2, 0])
        self._add("SLICE", 2, size, begin, self._constant(size))

    def _resize(self, kind: str, options: str, version: int) -> None:
        batch, *_, channels = schema.numbers(self._graph.tensors[self._last].shape)
        size = [batch, self._rows, self._columns, channels]
        self._add(kind, version, size, self._constant(size[1:3]))
        schema.set_options(self._operators[-1], options, halfPixelCenters=True)

    def _expand(self, params: Any) -> None:
        """RGB565 to bytes."""
        *outer, _ = schema.numbers(self._graph.tensors[self._last].shape)
        self._add("CUSTOM", 1, [*outer, 3], params=params, custom=b"UtvmRgb565")
        is_little = self._image.pixels == "rgb565le"
        schema.set_custom_options(self._operators[-1], little_endian=is_little)

    def _turn(self, order: Sequence[int], name: str) -> str:
        shape = schema.numbers(self._graph.tensors[self._last].shape)
        made = [shape[axis] for axis in order]
        self._add("TRANSPOSE", 2, made, self._constant(order))
        return name

    def _steps_of_type(self, kind: int, params: Any) -> None:
        """The same pixels in this type."""
        last = self._graph.tensors[self._last]
        if last.type != kind:
            shape = schema.numbers(last.shape)
            self._add("QUANTIZE", 2, shape, kind=kind, params=params)

    def _normalize(self) -> None:
        """(pixel / 255 - mean) / std in float32, and then what the target is."""
        image = self._image
        shape = schema.numbers(self._target.shape)
        first = -_OFFSET if self._graph.tensors[self._last].type == schema.INT8 else 0
        self._add("CAST", 1, shape, kind=schema.FLOAT32)  # of the byte, not of what it stands for
        for kind, options, values in (
            ("SUB", "SubOptions", [float(first)]),
            ("DIV", "DivOptions", [_WHITE]),
            ("SUB", "SubOptions", image.mean or [0.0]),
            ("DIV", "DivOptions", image.std or [1.0]),
        ):
            array = np.array(values, np.float32)
            if self._order == NCHW:
                array = array.reshape(1, -1, 1, 1)
            number = schema.new_constant(self._model, f"{kind.lower()}_constant", array)
            self._add(kind, 1, shape, number)
            schema.set_options(self._operators[-1], options)
        if self._kind != "float32":
            self._add("QUANTIZE", 2, shape, kind=self._target.type)

    def _constant(self, values: Sequence[int]) -> int:
        return schema.new_constant(self._model, "image", np.array(values, np.int32))

    def _tensor(self, shape: Sequence[int], kind: int, params: Any) -> int:
        name = f"image_{len(self._operators)}".encode()
        number = schema.new_tensor(self._model, self._graph, self._source, name, kind, params)
        self._graph.tensors[number].shape = np.array(shape, np.int32)
        self._graph.tensors[number].shapeSignature = None
        return number

    def _add(
        self,
        operator: str,
        version: int,
        shape: Sequence[int],
        *more: int,
        kind: int | None = None,
        params: Any = None,
        custom: bytes | None = None,
    ) -> None:
        """Write an operator that reads what is there; without ``kind``, it keeps its type."""
        last = self._graph.tensors[self._last]
        if kind is None:
            kind, params = last.type, params or last.quantization
        made = self._tensor(shape, kind, params)
        inputs = [self._last, *more]
        self._operators.append(
            schema.new_operator(self._model, operator, version, inputs, [made], custom)
        )
        self._last = made
