"""The .tflite schema as objects: the only module that imports LiteRT's generated classes.

``ModelT`` and the classes in it can be changed and written again. Only child processes use them:
those that quantize, that rewrite a file (``tflite_chosen.py``), and that run it (``oracle``).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import flatbuffers
import numpy as np
from ai_edge_litert import schema_py_generated as schema
from flatbuffers import flexbuffers

from utvm_deploy.graph.model import Array

FLOAT32 = int(schema.TensorType.FLOAT32)
FLOAT16 = int(schema.TensorType.FLOAT16)
INT4 = int(schema.TensorType.INT4)
INT8 = int(schema.TensorType.INT8)
UINT8 = int(schema.TensorType.UINT8)
INT16 = int(schema.TensorType.INT16)
INT32 = int(schema.TensorType.INT32)
INT64 = int(schema.TensorType.INT64)
BOOL = int(schema.TensorType.BOOL)
INTEGERS = (INT8, INT16)

#: An element type -> numpy's.
STORED = {
    FLOAT32: np.float32,
    FLOAT16: np.float16,
    INT8: np.int8,
    INT16: np.int16,
    UINT8: np.uint8,
    INT32: np.int32,
    INT64: np.int64,
}
_KINDS, _TYPES = (
    {number: name for name, number in vars(enum).items() if isinstance(number, int)}
    for enum in (schema.BuiltinOperator, schema.TensorType)
)
# Codes from here on do not fit the old field, which has one byte.
_NO_OLD_CODE = 127


def read_model(data: bytes) -> Any:
    """The file as a ``ModelT``; every operator code has both of its fields."""
    model = schema.ModelT.InitFromObj(schema.Model.GetRootAs(bytearray(data), 0))
    for buffer in model.buffers:
        # Writers may put the data of buffers behind the rest of the file.
        if buffer.offset > 1:
            stored = data[buffer.offset : buffer.offset + buffer.size]
            buffer.data, buffer.offset, buffer.size = np.frombuffer(stored, np.uint8), 0, 0
    for code in model.operatorCodes:
        code.builtinCode = max(code.builtinCode, code.deprecatedBuiltinCode)
        code.deprecatedBuiltinCode = min(code.builtinCode, _NO_OLD_CODE)
    return model


def model_bytes(model: Any) -> bytes:
    """The file of a ``ModelT``."""
    for code in model.operatorCodes:
        code.deprecatedBuiltinCode = min(code.builtinCode, _NO_OLD_CODE)
    builder = flatbuffers.Builder(1024)
    builder.Finish(model.Pack(builder), b"TFL3")
    return bytes(builder.Output())


def kind_of(model: Any, operator: Any) -> str:
    """The schema's name of an operator."""
    return name_of_code(model.operatorCodes[operator.opcodeIndex])


def custom_kind(model: Any, operator: Any) -> str:
    """The name of a custom operator; empty for the schema's own ones."""
    name: bytes = model.operatorCodes[operator.opcodeIndex].customCode or b""
    return name.decode("utf-8", "replace")


def name_of_code(code: Any) -> str:
    """The schema's name of an operator code."""
    return str(_KINDS.get(code.builtinCode, "?"))


def name_of_type(number: int) -> str:
    """An element type, as numpy names it."""
    return str(_TYPES.get(number, "?")).lower()


def code_of(kind: str) -> int:
    """The schema's number of an operator."""
    return int(getattr(schema.BuiltinOperator, kind))


def name_of(model: Any, number: int) -> str:
    """A tensor's name."""
    name: bytes = model.subgraphs[0].tensors[number].name or b""  # old writers leave it out
    return name.decode("utf-8", "replace")


def code_index(model: Any, kind: str, version: int, custom: bytes | None = None) -> int:
    """The position of an operator code, which is added if the model has none.

    ``custom`` is the name of a custom operator.
    """
    number = code_of(kind)
    for index, code in enumerate(model.operatorCodes):
        if code.builtinCode == number and custom in (None, code.customCode):
            code.version = max(code.version, version)
            return index
    code = schema.OperatorCodeT()
    code.builtinCode, code.version, code.customCode = number, version, custom
    model.operatorCodes.append(code)
    return len(model.operatorCodes) - 1


def operator(model: Any, kind: str, version: int, source: int, target: int) -> Any:
    """A new operator of one input and one output, such as QUANTIZE."""
    return new_operator(model, kind, version, [source], [target])


def new_operator(
    model: Any,
    kind: str,
    version: int,
    inputs: Sequence[int],
    outputs: Sequence[int],
    custom: bytes | None = None,
) -> Any:
    """A new operator without options."""
    made = schema.OperatorT()
    made.opcodeIndex = code_index(model, kind, version, custom)
    made.inputs, made.outputs = list(inputs), list(outputs)
    return made


def new_subgraph(model: Any, name: bytes) -> Any:
    """A further subgraph without operators."""
    made = schema.SubGraphT()
    made.name, made.tensors, made.operators, made.inputs, made.outputs = name, [], [], [], []
    model.subgraphs.append(made)
    return made


def numbers(vector: Any) -> list[int]:
    """A vector of the file, which may be absent."""
    return [] if vector is None else [int(number) for number in vector]


def constant(model: Any, tensor: Any) -> Array | None:
    """A tensor's value; None if it is computed."""
    data = model.buffers[tensor.buffer].data
    dtype = np.bool_ if tensor.type == BOOL else STORED.get(tensor.type)
    if data is None or len(data) == 0 or dtype is None:
        return None
    array: Array = np.asarray(data, np.uint8).view(dtype)
    shape = numbers(tensor.shape)
    return array.reshape(shape)


def set_constant(model: Any, tensor: Any, array: Array) -> None:
    """Give a tensor a value, in a new buffer if other tensors use its own."""
    data = np.frombuffer(np.ascontiguousarray(array).tobytes(), np.uint8)
    users = sum(one.buffer == tensor.buffer for one in model.subgraphs[0].tensors)
    if tensor.buffer and users == 1:
        model.buffers[tensor.buffer].data = data
        return
    add_constant(model, tensor, array)


def steps_of(tensor: Any) -> tuple[float, int]:
    """Scale and zero point of a tensor; 0 of one that has none."""
    params = tensor.quantization
    if params is None or params.scale is None or not len(params.scale):
        return 0.0, 0
    return float(params.scale[0]), (numbers(params.zeroPoint) or [0])[0]


def zeros(tensor: Any) -> Array:
    """What stands for zeros in a tensor."""
    return np.full(numbers(tensor.shape), steps_of(tensor)[1], STORED[tensor.type])


def add_constant(model: Any, tensor: Any, array: Array) -> None:
    """Give a tensor a value, in a new buffer."""
    buffer = schema.BufferT()
    buffer.data = np.frombuffer(np.ascontiguousarray(array).tobytes(), np.uint8)
    model.buffers.append(buffer)
    tensor.buffer = len(model.buffers) - 1


def quantization(scales: Sequence[float], zero_points: Sequence[int]) -> Any:
    """The quantization parameters of a tensor."""
    made = schema.QuantizationParametersT()
    made.scale = np.asarray(scales, np.float32)
    made.zeroPoint = np.asarray(zero_points, np.int64)
    return made


def is_equal(one: Any, other: Any) -> bool:
    """Whether two quantization parameters have the same scales and zero points."""
    return np.array_equal(one.scale, other.scale) and np.array_equal(one.zeroPoint, other.zeroPoint)


def new_tensor(model: Any, graph: Any, like: Any, name: bytes, dtype: int, params: Any) -> int:
    """A further tensor of the shape of another one; its number."""
    made = schema.TensorT()
    made.name, made.type, made.shape = name, dtype, like.shape
    made.shapeSignature, made.hasRank = like.shapeSignature, like.hasRank
    made.quantization, made.buffer = params, 0
    graph.tensors.append(made)
    return len(graph.tensors) - 1


def new_handle(graph: Any) -> int:
    """A further tensor that names a variable; its number."""
    made = schema.TensorT()
    made.name, made.type, made.hasRank = b"handle", int(schema.TensorType.RESOURCE), True
    made.shape = np.array([], np.int32)
    graph.tensors.append(made)
    return len(graph.tensors) - 1


def new_constant(model: Any, name: str, array: Array) -> int:
    """A further constant of float32 or int32; its number."""
    graph = model.subgraphs[0]
    made = schema.TensorT()
    kind = INT32 if array.dtype == np.int32 else FLOAT32
    made.name, made.type, made.hasRank = name.encode(), kind, True
    made.shape = np.array(array.shape, np.int32)
    set_constant(model, made, array)
    graph.tensors.append(made)
    return len(graph.tensors) - 1


def become(model: Any, operator: Any, kind: str, options: str, **fields: Any) -> None:
    """Make another kind of an operator, with these options."""
    operator.opcodeIndex = code_index(model, kind, 2)
    set_options(operator, options, **fields)


def set_options(operator: Any, options: str, **fields: Any) -> None:
    """Give an operator these options."""
    operator.builtinOptionsType = getattr(schema.BuiltinOptions, options)
    operator.builtinOptions = getattr(schema, f"{options}T")()
    for name, value in fields.items():
        setattr(operator.builtinOptions, name, value)


def set_custom_options(operator: Any, **options: Any) -> None:
    """Give a custom operator these options, by name."""
    operator.customOptions = np.frombuffer(flexbuffers.Dumps(options), np.uint8)


def write_signature(model: Any) -> None:
    """Give the model one signature; it keeps the name of the file's own one, if that is text."""
    keys = [one.signatureKey or b"" for one in model.signatureDefs or ()]
    is_text = len(keys) == 1 and keys[0].isascii() and keys[0].decode("ascii").isprintable()
    made = signature(model.subgraphs[0])
    made.signatureKey = (keys[0] if is_text else b"") or made.signatureKey
    model.signatureDefs = [made]


def signature(graph: Any) -> Any:
    """A signature of a subgraph; its names are those of the tensors."""
    made = schema.SignatureDefT()
    made.signatureKey, made.subgraphIndex = b"serving_default", 0
    made.inputs, made.outputs = _maps(graph, graph.inputs), _maps(graph, graph.outputs)
    return made


def _maps(graph: Any, indices: Any) -> list[Any]:
    maps = []
    for number in dict.fromkeys(numbers(indices)):
        one = schema.TensorMapT()
        one.name, one.tensorIndex = graph.tensors[number].name, number
        maps.append(one)
    return maps


def add_metadata(model: Any, name: str, text: str) -> None:
    """Give the file a further text under a name."""
    made, buffer = schema.MetadataT(), schema.BufferT()
    buffer.data = np.frombuffer(text.encode(), np.uint8)
    model.buffers.append(buffer)
    made.name, made.buffer = name.encode(), len(model.buffers) - 1
    model.metadata = [*(model.metadata or ()), made]


def remove_unused(model: Any, graph: Any) -> None:
    """Remove the operators that no output and no variable depends on, and unused tensors."""
    _remove_unused_operators(graph)
    _remove_unused_tensors(model, graph)


def _remove_unused_operators(graph: Any) -> None:
    used = set(numbers(graph.outputs))
    kept = []
    for operator in reversed(graph.operators):
        made = numbers(operator.outputs)
        # An operator without outputs, such as ASSIGN_VARIABLE, has another effect.
        if not made or used.intersection(made):
            used.update(numbers(operator.inputs))
            kept.append(operator)
    graph.operators = kept[::-1]


def _remove_unused_tensors(model: Any, graph: Any) -> None:
    used = {*numbers(graph.inputs), *numbers(graph.outputs)}
    for operator in graph.operators:
        for vector in (operator.inputs, operator.outputs, operator.intermediates):
            used.update(numbers(vector))
    kept = sorted(number for number in used if number >= 0)
    new = {old: number for number, old in enumerate(kept)} | {-1: -1}
    graph.tensors = [graph.tensors[number] for number in kept]
    graph.inputs = [new[number] for number in numbers(graph.inputs)]
    graph.outputs = [new[number] for number in numbers(graph.outputs)]
    for operator in graph.operators:
        operator.inputs = [new[number] for number in numbers(operator.inputs)]
        operator.outputs = [new[number] for number in numbers(operator.outputs)]
        if operator.intermediates is not None:
            operator.intermediates = [new[n] for n in numbers(operator.intermediates)]
    # Buffers keep their numbers, because metadata refers to them; the unused ones become empty.
    buffers = {tensor.buffer for one in model.subgraphs for tensor in one.tensors}
    buffers |= {entry.buffer for entry in model.metadata or ()}
    for number, buffer in enumerate(model.buffers):
        if number not in buffers:
            buffer.data = None
