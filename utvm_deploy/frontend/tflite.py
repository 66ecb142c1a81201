"""Reads a .tflite file into the graph; the only module that imports the ``tflite`` package.

    bytes ──_read──▶ tensors, SourceOperators ──IMPORTERS──▶ Graph ──check_graph──▶ Graph

The schema's generated readers verify nothing: on a damaged file they raise whatever Python raises.
``_read`` is the edge where all of that becomes ModelError, and it bounds every count, so that a
damaged file costs no more time or memory than a good one of its size. Who reads this file next
needs no other place to look for damage; what the operators mean is in ``operators.py``.
"""

from __future__ import annotations

import functools
import hashlib
import inspect
import logging
import math
import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import tflite

from utvm_deploy.errors import ModelError, UnsupportedOperator
from utvm_deploy.frontend.formats import converted
from utvm_deploy.frontend.operators import IMPORTERS, Importer
from utvm_deploy.frontend.source import SourceOperator
from utvm_deploy.graph.check import check_graph
from utvm_deploy.graph.model import Array, Graph, Operator, Quantization, Tensor
from utvm_deploy.graph.rewrite import compacted

_log = logging.getLogger(__name__)

_IDENTIFIER = b"TFL3"
# FlatBuffers' offsets are signed 32 bit; nothing larger is one.
_MAX_FILE_BYTES = 2**31 - 1
# Names repeat in every message and report; real ones are below 300 characters.
_MAX_NAME_BYTES = 4096
# The largest rank that any TFLite kernel takes.
_MAX_RANK = 8
# Offsets into a tensor are int32 in the generated code.
_MAX_TENSOR_ELEMENTS = 2**31 - 1

# What the schema's readers and numpy raise on bytes that are not what they claim to be.
_READER_ERRORS = (
    struct.error,
    IndexError,
    KeyError,
    ValueError,
    TypeError,
    AttributeError,
    OverflowError,
    MemoryError,
)


def _names(enumeration: type) -> Mapping[int, str]:
    return {v: k for k, v in vars(enumeration).items() if isinstance(v, int)}


_OPERATOR_NAMES = _names(tflite.BuiltinOperator)
_OPTIONS_NAMES = _names(tflite.BuiltinOptions)
_TYPE_NAMES = {number: name.lower() for number, name in _names(tflite.TensorType).items()}
# Element types whose constants can be read; others may appear but no importer takes them.
_DTYPES = ("int8", "uint8", "int16", "int32", "int64", "float32")


@dataclass(frozen=True, eq=False)
class _ModelFile:
    """Everything that the import needs of a file, bounds-checked."""

    tensors: tuple[Tensor, ...]
    operators: tuple[SourceOperator, ...]
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]


def load_model(path: str | Path) -> Graph:
    """Import a fully integer int8 model, a .tflite or what becomes one, and check it.

    Raises ModelError for a file that cannot be used and UnsupportedOperator, naming all of them,
    for operators that cannot be imported.
    """
    path = Path(path)
    data = converted(path) or _file_bytes(path)
    try:
        source = _read(data)
        graph = _imported(source, path.stem, hashlib.sha256(data).hexdigest())
        check_graph(graph)
    except ModelError as exc:
        raise type(exc)(f"{path}: {exc}") from exc
    _log.info("imported %s: %d operators", path, len(graph.operators))
    return graph


def _file_bytes(path: Path) -> bytes:
    try:
        size = path.stat().st_size
        if size > _MAX_FILE_BYTES:
            raise ModelError(
                f"{path}: {size} bytes are more than a .tflite file can have (2 GiB); "
                "choose a model for microcontrollers"
            )
        data = path.read_bytes()
    except OSError as exc:
        raise ModelError(f"cannot read the model {path}: {exc.strerror or exc}") from exc
    if data[4:8] != _IDENTIFIER:
        raise ModelError(
            f"{path} is not a .tflite file (bytes 4 to 8 are {data[4:8]!r}, not {_IDENTIFIER!r}); "
            "give the file that the TFLite converter wrote"
        )
    return data


def _read(data: bytes) -> _ModelFile:
    """Everything that the import needs, or ModelError: the edge to the schema's readers."""
    try:
        return _read_model(data)
    except _READER_ERRORS as exc:
        raise ModelError(
            f"the file is damaged or cut short ({type(exc).__name__}: {exc}); "
            "copy or convert the model again"
        ) from exc


def _read_model(data: bytes) -> _ModelFile:
    model = tflite.Model.GetRootAs(data, 0)
    subgraphs = model.SubgraphsLength()
    if subgraphs != 1:
        raise ModelError(
            f"the model has {subgraphs} subgraphs; only models with exactly one are supported: "
            "export a single function without control flow"
        )
    subgraph = model.Subgraphs(0)
    buffers = [
        _buffer(data, model.Buffers(i), i) for i in range(_count(data, model.BuffersLength()))
    ]
    tensors = tuple(
        _tensor(subgraph.Tensors(i), i, buffers)
        for i in range(_count(data, subgraph.TensorsLength()))
    )
    codes = [
        _operator_name(model.OperatorCodes(i))
        for i in range(_count(data, model.OperatorCodesLength()))
    ]
    operators = tuple(
        _operator(subgraph.Operators(i), i, codes, tensors)
        for i in range(_count(data, subgraph.OperatorsLength()))
    )
    inputs = _tensor_numbers(subgraph.InputsAsNumpy(), len(tensors), "the list of model inputs")
    outputs = _tensor_numbers(subgraph.OutputsAsNumpy(), len(tensors), "the list of model outputs")
    return _ModelFile(tensors, operators, inputs, outputs)


def _count(data: bytes, length: int) -> int:
    """The length of a vector of tables: each takes at least its 4-byte offset in the file."""
    if length > len(data) // 4:
        raise ModelError(f"the file is damaged: a list of {length} entries does not fit into it")
    return length


def _vector(array: Any) -> Array:
    """A vector of numbers; the generated readers say 0 for an absent one."""
    return array if isinstance(array, np.ndarray) else np.empty(0, np.int32)


def _tensor_numbers(array: Any, count: int, where: str) -> tuple[int, ...]:
    numbers = _vector(array)
    for number in numbers:
        if not 0 <= number < count:
            raise ModelError(
                f"the file is damaged: {where} names tensor {number}, but there are {count}"
            )
    return tuple(int(n) for n in numbers)


def _text(raw: bytes | None, what: str) -> str:
    if raw is None:
        return ""
    if len(raw) > _MAX_NAME_BYTES:
        raise ModelError(
            f"the file is damaged: the name of {what} has {len(raw)} bytes, "
            f"more than {_MAX_NAME_BYTES}"
        )
    # Names end up in messages and C comments: one line, printable.
    decoded = raw.decode("utf-8", errors="replace")
    return "".join(c if c.isprintable() else "\N{REPLACEMENT CHARACTER}" for c in decoded)


def _buffer(data: bytes, buffer: Any, index: int) -> Array | None:
    """The bytes of a buffer; None for the empty one that activations share."""
    offset, size = buffer.Offset(), buffer.Size()
    if offset > 1:  # 0 and 1 mean that the bytes are in the flatbuffer
        if offset + size > len(data):
            raise ModelError(
                f"buffer {index} ends at byte {offset + size}, but the file has {len(data)} bytes; "
                "copy or convert the model again"
            )
        return np.frombuffer(data, np.uint8, size, offset)
    raw = _vector(buffer.DataAsNumpy())
    return raw if raw.size else None


def _tensor(tensor: Any, index: int, buffers: Sequence[Array | None]) -> Tensor:
    name = _text(tensor.Name(), f"tensor {index}") or f"tensor_{index}"
    if tensor.Sparsity() is not None:
        raise ModelError(f"tensor '{name}' is sparse; convert the model without sparsity")
    dtype = _TYPE_NAMES.get(tensor.Type())
    if dtype is None:
        raise ModelError(f"the file is damaged: tensor '{name}' has element type {tensor.Type()}")
    shape = _shape(tensor, name)
    number = tensor.Buffer()
    if not 0 <= number < len(buffers):
        raise ModelError(
            f"the file is damaged: tensor '{name}' names buffer {number}, "
            f"but there are {len(buffers)}"
        )
    raw = buffers[number]
    data = None
    if raw is not None and dtype in _DTYPES:
        expected = math.prod(shape) * np.dtype(dtype).itemsize
        if raw.size != expected:
            raise ModelError(
                f"tensor '{name}' of shape {shape} and type {dtype} needs {expected} bytes, but "
                f"its buffer has {raw.size}; copy or convert the model again"
            )
        data = np.frombuffer(raw.tobytes(), np.dtype(dtype).newbyteorder("<")).reshape(shape)
    elif raw is not None:
        data = raw  # of a type that no importer takes: kept only to be told from an activation
    return Tensor(name, shape, dtype, _quantization(tensor, name, dtype, shape), data, index)


def _shape(tensor: Any, name: str) -> tuple[int, ...]:
    dimensions = _vector(tensor.ShapeAsNumpy())
    if dimensions.size > _MAX_RANK:
        raise ModelError(f"tensor '{name}' has {dimensions.size} dimensions, more than {_MAX_RANK}")
    shape = tuple(int(d) for d in dimensions)
    if any(d < 1 for d in shape):
        raise ModelError(
            f"tensor '{name}' has the dynamic or empty shape {shape}; "
            "convert the model with a fixed input shape"
        )
    if math.prod(shape) > _MAX_TENSOR_ELEMENTS:
        raise ModelError(f"tensor '{name}' of shape {shape} has more than 2**31 - 1 elements")
    return shape


def _quantization(
    tensor: Any, name: str, dtype: str, shape: tuple[int, ...]
) -> Quantization | None:
    table = tensor.Quantization()
    if table is None:
        return None
    scales, zero_points = _vector(table.ScaleAsNumpy()), _vector(table.ZeroPointAsNumpy())
    if scales.size == 0:
        return None
    if scales.size != zero_points.size:
        raise ModelError(
            f"tensor '{name}' has {scales.size} scales but {zero_points.size} zero points; "
            "convert the model again"
        )
    axis = None
    if scales.size > 1:
        axis = table.QuantizedDimension()
        if not 0 <= axis < len(shape) or shape[axis] != scales.size:
            raise ModelError(
                f"tensor '{name}' of shape {shape} has {scales.size} scales along dimension {axis},"
                " which does not have that many slices; convert the model again"
            )
    # The scale of a bias is never used (it is that of its inputs), so it may underflow to zero.
    if dtype != "int32":
        for scale in scales:
            if not (math.isfinite(scale) and scale > 0):
                raise ModelError(
                    f"tensor '{name}' has the scale {scale}, which must be positive and finite; "
                    "convert the model again"
                )
    if dtype in ("int8", "uint8", "int16"):
        limits = np.iinfo(dtype)
        for zero_point in zero_points:
            if not limits.min <= zero_point <= limits.max:
                raise ModelError(
                    f"tensor '{name}' has the zero point {zero_point}, which is not a {dtype}; "
                    "convert the model again"
                )
    return Quantization(tuple(float(s) for s in scales), tuple(int(z) for z in zero_points), axis)


def _operator_name(code: Any) -> str:
    # Codes above 127 do not fit the old one-byte field, which then holds a placeholder.
    number = max(code.BuiltinCode(), code.DeprecatedBuiltinCode())
    if number == tflite.BuiltinOperator.CUSTOM:
        return f"CUSTOM '{_text(code.CustomCode(), 'a custom operator')}'"
    return _OPERATOR_NAMES.get(number, f"operator code {number}")


def _operator(
    operator: Any, index: int, codes: Sequence[str], tensors: tuple[Tensor, ...]
) -> SourceOperator:
    code = operator.OpcodeIndex()
    if not 0 <= code < len(codes):
        raise ModelError(
            f"the file is damaged: operator {index} has operator code {code}, "
            f"but there are {len(codes)}"
        )
    where = f"operator {index} ({codes[code]})"
    inputs = tuple(
        None if number == -1 else _tensor_numbers(np.array([number]), len(tensors), where)[0]
        for number in _vector(operator.InputsAsNumpy())
    )
    outputs = _tensor_numbers(operator.OutputsAsNumpy(), len(tensors), where)
    options: Mapping[str, int | float | bool] = {}
    if codes[code] in IMPORTERS:  # others may have tables that our schema does not know
        options = _options(operator)
    return SourceOperator(index, codes[code], inputs, outputs, options, tensors)


def _options(operator: Any) -> Mapping[str, int | float | bool]:
    """The fields of an operator's options table."""
    table = operator.BuiltinOptions()
    name = _OPTIONS_NAMES.get(operator.BuiltinOptionsType(), "NONE")
    if table is None or name == "NONE":
        return {}
    options = getattr(tflite, name)()
    options.Init(table.Bytes, table.Pos)
    return {field: getattr(options, field)() for field in _scalar_fields(name)}


@functools.cache
def _scalar_fields(table: str) -> tuple[str, ...]:
    """The readers of a generated table class that take no argument and read no vector."""
    return tuple(
        name
        for name, member in vars(getattr(tflite, table)).items()
        if inspect.isfunction(member)
        and len(inspect.signature(member).parameters) == 1
        and not name.endswith(("AsNumpy", "Length", "IsNone"))
    )


def _imported(source: _ModelFile, name: str, digest: str) -> Graph:
    """The graph, from operators and tensors that are known to be in bounds."""
    unknown = [op for op in source.operators if op.kind not in IMPORTERS]
    computing = [op for op in source.operators if op.kind not in ("QUANTIZE", "DEQUANTIZE")]
    floating = [op for op in computing if _works_in_float(op)]
    if floating and (not unknown or len(floating) == len(computing)):
        raise ModelError(
            f"the model is not fully quantized: {floating[0].place}, works in float32; "
            "convert it to int8 as docs/quantization.md shows"
        )
    problems = [f"{op.place}" for op in unknown]
    operators: list[Operator] = []
    for op in source.operators:
        if op.kind in IMPORTERS:
            _collect(problems, operators, IMPORTERS[op.kind].importer, op)
    if problems:
        supported = f"; supported operators are {', '.join(sorted(IMPORTERS))}" if unknown else ""
        count = "1 operator" if len(problems) == 1 else f"{len(problems)} operators"
        raise UnsupportedOperator(f"{count} cannot be imported: {'; '.join(problems)}{supported}")
    graph = Graph(name, source.tensors, tuple(operators), source.inputs, source.outputs, digest)
    return compacted(graph)


def _works_in_float(op: SourceOperator) -> bool:
    return any(op.tensors[i].dtype == "float32" for i in op.outputs)


def _collect(
    problems: list[str],
    operators: list[Operator],
    importer: Importer,
    op: SourceOperator,
) -> None:
    """Import one operator; one that is unsupported is noted, so that all are told at once."""
    try:
        made = importer(op)
    except UnsupportedOperator as exc:
        problems.append(str(exc))
        return
    operators.extend([made] if isinstance(made, Operator) else made)
