"""Reads the tables of a .tflite file; only this module calls the readers of the ``tflite`` package.

The schema's generated readers verify nothing: on a damaged file they raise any Python exception.
``read_file`` turns all of them into ModelError. It also bounds every count, so that a damaged file
costs at most the time and memory of a good file of its size. No other place handles damage. The
meaning of the operators is in ``operators/``.
"""

from __future__ import annotations

import functools
import inspect
import math
import struct
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, TypeVar

import numpy as np
import tflite

from utvm_deploy.base.errors import ModelError
from utvm_deploy.frontend.assemble import refuse_custom_operators
from utvm_deploy.frontend.control_flow import CALLED, subgraphs_called
from utvm_deploy.frontend.files.dynamic_batch import with_known_batches, with_open_extents
from utvm_deploy.frontend.files.fields import array_of, quantization_of, text_of, vector_of
from utvm_deploy.frontend.files.limits import (
    MAX_OPERATORS,
    MAX_RANK,
    MAX_TENSOR_ELEMENTS,
    MAX_TENSORS,
    Budget,
)
from utvm_deploy.frontend.files.prepared import OPERANDS, check_variables, check_version
from utvm_deploy.frontend.files.source import CUSTOM, ModelFile, Option, SourceOperator, custom_kind
from utvm_deploy.frontend.files.variables import called_once
from utvm_deploy.frontend.operators.importers import IMPORTED
from utvm_deploy.graph.element_type import element_type
from utvm_deploy.graph.model import Array, Tensor
from utvm_deploy.graph.names import short_name

_Read = TypeVar("_Read")

# Places in the schema's tables, as flatbuffers count: Tensor.external_buffer and
# OperatorCode.builtin_code.
_EXTERNAL_BUFFER_SLOT = 24
_BUILTIN_CODE_SLOT = 10
# The options tables with a list of dimensions, and its name.
_LISTS = {"ReshapeOptions": "NewShape", "SqueezeOptions": "SqueezeDims"}
# What the schema's readers and numpy raise on bytes that are not what they claim to be.
_BEYOND = (struct.error, IndexError)
_READER_ERRORS = (
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
# Element types of variables, and of constants that can be read. Others may appear, but no importer
# takes them.
_VARIABLES = ("int8", "uint8", "int16", "int32", "int64", "float16", "float32", "bool")
_CONSTANTS = (*_VARIABLES, "int4")


def read_file(data: bytes, faults: dict[int, str] | None = None) -> ModelFile:
    """Everything that the import needs of the main subgraph, or ModelError.

    With ``faults``, a tensor that cannot be used is not an error; the reason is kept there, by its
    number.
    """
    return _guarded(functools.partial(_read_model, faults=faults), data)


def _guarded(read: Callable[[bytes], _Read], data: bytes) -> _Read:
    """What a function reads from the file, or ModelError where the file is damaged."""
    try:
        return read(data)
    except _BEYOND as exc:
        raise ModelError(
            f"the file is damaged or cut short: something in it is said to lie beyond its "
            f"{len(data):,} bytes; copy or convert the model again"
        ) from exc
    except _READER_ERRORS as exc:
        raise ModelError(
            "the file is damaged: it holds numbers where its format has others; copy or convert "
            "the model again"
        ) from exc


def _read_model(data: bytes, faults: dict[int, str] | None) -> ModelFile:
    model = tflite.Model.GetRootAs(data, 0)
    subgraphs = _count(data, model.SubgraphsLength(), "subgraphs", MAX_OPERATORS)
    if subgraphs == 0:
        raise ModelError("the model has no subgraph; convert the model again")
    budget = Budget()
    buffers, codes = _of_all_subgraphs(data, model)
    if faults is None:
        for i, kind in enumerate(codes):
            check_version(kind, model.OperatorCodes(i).Version())
    main = _subgraph(data, model.Subgraphs(0), buffers, codes, budget, faults)
    once: dict[int, tuple[SourceOperator, ...]] = {}
    tensors = len(main.tensors)
    for number in called_once(main, subgraphs):
        other = _subgraph(data, model.Subgraphs(number), buffers, codes, budget, None)
        once[number] = other.operators
        # Subgraphs may share bytes of the file, so its size does not bound them together.
        tensors += len(other.tensors)
        _count(data, tensors, "tensors", MAX_TENSORS)
        _count(data, sum(map(len, once.values())), "operators", MAX_OPERATORS)
    return replace(main, once=once, subgraphs=subgraphs)


def metadata_of(data: bytes, name: str) -> str | None:
    """A text that the file has under a name; None if it has none. Raises ModelError."""
    return _guarded(functools.partial(_read_metadata, name=name), data)


def _read_metadata(data: bytes, name: str) -> str | None:
    model = tflite.Model.GetRootAs(data, 0)
    count = _count(data, model.MetadataLength(), "texts", MAX_OPERATORS)
    for one in map(model.Metadata, range(count)):
        if one.Name() == name.encode():
            stored = model.Buffers(one.Buffer()).DataAsNumpy()
            return array_of(stored).astype(np.uint8).tobytes().decode("utf-8", "replace")
    return None


def called_subgraphs(data: bytes) -> Mapping[int, ModelFile]:
    """The main subgraph with those that WHILE and IF call, by number; nothing without these.

    Extents that the file leaves open are -1 in what they call. Raises ModelError.
    """
    return _guarded(_called_subgraphs, data)


def _called_subgraphs(data: bytes) -> Mapping[int, ModelFile]:
    model = tflite.Model.GetRootAs(data, 0)
    subgraphs = _count(data, model.SubgraphsLength(), "subgraphs", MAX_OPERATORS)
    if subgraphs < 2:
        return {}
    budget = Budget()
    buffers, codes = _of_all_subgraphs(data, model)
    found: dict[int, ModelFile] = {}
    waiting, tensors = [0], 0
    while waiting:
        number = waiting.pop()
        if number not in found and 0 <= number < subgraphs:
            one = _subgraph(data, model.Subgraphs(number), buffers, codes, budget, {}, number > 0)
            found[number] = one
            tensors += len(one.tensors)
            _count(data, tensors, "tensors", MAX_TENSORS)
            waiting += subgraphs_called(one.operators)
    return found


def _of_all_subgraphs(data: bytes, model: Any) -> tuple[list[Array | None], list[str]]:
    """The buffers, and the names of operators."""
    count = _count(data, model.BuffersLength(), "buffers", MAX_TENSORS)
    buffers = [_buffer(data, model.Buffers(i), i) for i in range(count)]
    count = _count(data, model.OperatorCodesLength(), "operator codes", MAX_OPERATORS)
    return buffers, [_operator_name(model.OperatorCodes(i)) for i in range(count)]


def _subgraph(
    data: bytes,
    subgraph: Any,
    buffers: Sequence[Array | None],
    codes: Sequence[str],
    budget: Budget,
    faults: dict[int, str] | None,
    is_inner: bool = False,
) -> ModelFile:
    """One subgraph, as if the file had no other; ``is_inner`` leaves open extents open."""
    count = _count(data, subgraph.TensorsLength(), "tensors", MAX_TENSORS)
    tensors = tuple(
        _tensor_or_fault(subgraph.Tensors(i), i, buffers, budget, faults) for i in range(count)
    )
    signatures = [
        vector_of(subgraph.Tensors(i).ShapeSignatureAsNumpy(), budget, f"tensor {i}")
        for i in range(count)
    ]
    count = _count(data, subgraph.OperatorsLength(), "operators", MAX_OPERATORS)
    operators = tuple(
        _operator(subgraph.Operators(i), i, codes, tensors, budget) for i in range(count)
    )
    if is_inner:
        tensors = tuple(map(with_open_extents, tensors, signatures))
    else:
        tensors = with_known_batches(tensors, operators, signatures)
    operators = tuple(replace(op, tensors=tensors) for op in operators)
    ends = (subgraph.InputsAsNumpy(), subgraph.OutputsAsNumpy())
    inputs, outputs = (
        _tensor_numbers(vector_of(array, budget, where), len(tensors), where)
        for array, where in zip(
            ends, ("the list of model inputs", "the list of model outputs"), strict=True
        )
    )
    if faults is None:
        check_variables(operators, inputs, lambda number: subgraph.Tensors(number).IsVariable())
    _check_shapes(tensors, operators, inputs + outputs, faults)
    return ModelFile(tensors, operators, inputs, outputs)


def _count(data: bytes, length: int, what: str, most: int) -> int:
    """The length of a vector of tables: each takes at least its 4-byte offset in the file."""
    if length > len(data) // 4:
        raise ModelError(f"the file is damaged: a list of {length} {what} does not fit into it")
    if length > most:
        raise ModelError(
            f"the model has {length:,} {what}, more than {most:,}; "
            "choose a model for microcontrollers"
        )
    return length


def _tensor_numbers(numbers: Sequence[int], count: int, where: str) -> tuple[int, ...]:
    for number in numbers:
        if not 0 <= number < count:
            raise ModelError(
                f"the file is damaged: {where} names tensor {number}, but there are {count}"
            )
    return tuple(numbers)


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
    raw = array_of(buffer.DataAsNumpy())
    return raw if raw.size else None


def _tensor_or_fault(
    tensor: Any,
    index: int,
    buffers: Sequence[Array | None],
    budget: Budget,
    faults: dict[int, str] | None,
) -> Tensor:
    """The tensor; with ``faults`` a stand-in without data where it cannot be used."""
    try:
        return _tensor(tensor, index, buffers, budget)
    except ModelError as exc:
        if faults is None:
            raise
        faults[index] = str(exc)
    name = text_of(tensor.Name(), f"tensor {index}") or f"tensor_{index}"
    shape = vector_of(tensor.ShapeAsNumpy(), budget, f"tensor {index}")[:MAX_RANK]
    dtype = _TYPE_NAMES.get(tensor.Type(), "unknown")
    return Tensor(name, tuple(max(extent, 0) for extent in shape), dtype, source=index)


def _tensor(tensor: Any, index: int, buffers: Sequence[Array | None], budget: Budget) -> Tensor:
    name = text_of(tensor.Name(), f"tensor {index}") or f"tensor_{index}"
    shown = short_name(name)
    if tensor.Sparsity() is not None:
        raise ModelError(f"tensor '{shown}' is sparse; convert the model without sparsity")
    # Newer than the generated readers: the number of a group of weights outside the file.
    if tensor._tab.Offset(_EXTERNAL_BUFFER_SLOT):
        raise ModelError(
            f"tensor '{shown}' has its data in another file; convert the model into a single one"
        )
    dtype = _TYPE_NAMES.get(tensor.Type())
    if dtype is None:
        raise ModelError(f"the file is damaged: tensor '{shown}' has element type {tensor.Type()}")
    shape = _shape(vector_of(tensor.ShapeAsNumpy(), budget, f"tensor {index}"), shown)
    number = tensor.Buffer()
    if not 0 <= number < len(buffers):
        raise ModelError(
            f"the file is damaged: tensor '{shown}' names buffer {number}, "
            f"but there are {len(buffers)}"
        )
    raw = buffers[number]
    if raw is not None and tensor.IsVariable():
        raise ModelError(
            f"tensor '{shown}' is a variable and has data, which LiteRT does not take; convert the "
            "model again"
        )
    if tensor.IsVariable() and dtype not in _VARIABLES:
        raise ModelError(
            f"tensor '{shown}' is a variable of {dtype}, which LiteRT does not take; convert the "
            "model again"
        )
    data = None
    if raw is not None and min(shape, default=1) < 0:
        raise _dynamic_or_empty(name, shape)
    if raw is not None and dtype in _CONSTANTS:
        element = element_type(dtype)
        expected = element.size_bytes(math.prod(shape))
        if raw.size != expected:
            raise ModelError(
                f"tensor '{shown}' of shape {shape} and type {dtype} needs {expected} bytes, but "
                f"its buffer has {raw.size}; copy or convert the model again"
            )
        # A view where it can be: many tensors may name one buffer, and buffers may overlap.
        if dtype in ("bool", "int4"):
            budget.copy(math.prod(shape), f"tensor '{shown}'")
        data = element.unpacked(raw, shape)
        if dtype == "bool":
            data = (raw != 0).astype(np.uint8).reshape(shape)  # as it is stored: 0 or 1
    elif raw is not None:
        data = (
            raw  # of a type that no importer takes: kept only to distinguish it from an activation
        )
    quantization = quantization_of(tensor, shown, dtype, shape, budget)
    return Tensor(name, shape, dtype, quantization, data, index)


def _shape(dimensions: Sequence[int], name: str) -> tuple[int, ...]:
    if len(dimensions) > MAX_RANK:
        raise ModelError(f"tensor '{name}' has {len(dimensions)} dimensions, more than {MAX_RANK}")
    shape = tuple(dimensions)
    if math.prod(shape) > MAX_TENSOR_ELEMENTS:
        raise ModelError(
            f"tensor '{name}' of shape {shape} has more than {MAX_TENSOR_ELEMENTS:,} elements; "
            "choose a model for microcontrollers"
        )
    return shape


def _check_shapes(
    tensors: Sequence[Tensor],
    operators: Sequence[SourceOperator],
    ends: Sequence[int],
    faults: dict[int, str] | None,
) -> None:
    """Only tensors without a value may be empty: the converter writes an LSTM's intermediates so.

    A custom operator is reported first, because it may be why a shape is not known.
    """
    operands = (number for op in operators for number in (*op.inputs, *op.outputs))
    for number in dict.fromkeys((*ends, *operands)):
        if number is None or min(tensors[number].shape, default=1) >= 1:
            continue
        error = _dynamic_or_empty(short_name(tensors[number].name), tensors[number].shape)
        if faults is None:
            refuse_custom_operators(operators)
            raise error
        faults.setdefault(number, str(error))


def _dynamic_or_empty(name: str, shape: tuple[int, ...]) -> ModelError:
    return ModelError(
        f"tensor '{name}' has the dynamic or empty shape {shape}; "
        "convert the model with a fixed input shape"
    )


def _operator_name(code: Any) -> str:
    # TFLite's own rule. A writer may leave out the old field, which has one byte, or the new one.
    # The generated reader of the new field returns the old one for codes below 127.
    table, new = code._tab, 0
    if found := table.Offset(_BUILTIN_CODE_SLOT):
        (new,) = struct.unpack_from("<i", table.Bytes, table.Pos + found)
    number = max(new, code.DeprecatedBuiltinCode())
    if number == tflite.BuiltinOperator.CUSTOM:
        return custom_kind(text_of(code.CustomCode(), "a custom operator"))
    return _OPERATOR_NAMES.get(number, f"operator code {number}")


def _operator(
    operator: Any,
    index: int,
    codes: Sequence[str],
    tensors: tuple[Tensor, ...],
    budget: Budget,
) -> SourceOperator:
    code = operator.OpcodeIndex()
    if not 0 <= code < len(codes):
        raise ModelError(
            f"the file is damaged: operator {index} has operator code {code}, "
            f"but there are {len(codes)}"
        )
    where = f"operator {index} ({codes[code]})"
    read = vector_of(operator.InputsAsNumpy(), budget, where)
    _tensor_numbers([number for number in read if number != -1], len(tensors), where)
    inputs = tuple(None if number == -1 else number for number in read)
    made = vector_of(operator.OutputsAsNumpy(), budget, where)
    outputs = _tensor_numbers(made, len(tensors), where)
    options: Mapping[str, Option] = {}
    if (
        codes[code] in IMPORTED or codes[code] in OPERANDS or codes[code] in CALLED
    ):  # others may have tables that our schema does not know
        options = _options(operator)
    inside = vector_of(operator.IntermediatesAsNumpy(), budget, where)
    intermediates = _tensor_numbers(inside, len(tensors), where)
    custom_options = b""
    if codes[code].startswith(CUSTOM):
        custom_options = array_of(operator.CustomOptionsAsNumpy()).tobytes()
    return SourceOperator(
        index,
        codes[code],
        inputs,
        outputs,
        options,
        tensors,
        intermediates,
        custom_options,
        _lists(operator),
    )


def _options(operator: Any) -> Mapping[str, Option]:
    """The fields of an operator's options table."""
    table = operator.BuiltinOptions()
    name = _OPTIONS_NAMES.get(operator.BuiltinOptionsType(), "NONE")
    if table is None or name == "NONE":
        return {}
    options = getattr(tflite, name)()
    options.Init(table.Bytes, table.Pos)
    fields = {field: getattr(options, field)() for field in _scalar_fields(name)}
    return {
        field: value if isinstance(value, int | float) else text_of(value, f"the option {field}")
        for field, value in fields.items()
    }


def _lists(operator: Any) -> Mapping[str, tuple[int, ...]]:
    """The fields of an operator's options table that are lists of dimensions."""
    table = operator.BuiltinOptions()
    name = _OPTIONS_NAMES.get(operator.BuiltinOptionsType(), "NONE")
    if table is None or name not in _LISTS:
        return {}
    options = getattr(tflite, name)()
    options.Init(table.Bytes, table.Pos)
    field = _LISTS[name]
    numbers = array_of(getattr(options, f"{field}AsNumpy")())[: MAX_RANK + 1]
    return {field: tuple(map(int, numbers))}


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
