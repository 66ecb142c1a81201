"""Reads the tables of a .tflite file, with the readers of the ``tflite`` package.

The schema's generated readers verify nothing: on a damaged file they raise any Python exception.
``read_file`` turns all of them into ModelError. It also bounds every count, so that a damaged file
costs at most the time and memory of a good file of its size. No other place handles damage. The
meaning of the operators is in ``operators/``.
"""

from __future__ import annotations

import functools
import inspect
import struct
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, TypeVar

import numpy as np
import tflite

from utvm_deploy.base.errors import ModelError
from utvm_deploy.frontend.control_flow import CALLED, subgraphs_called
from utvm_deploy.frontend.files.dynamic_batch import with_known_batches, with_open_extents
from utvm_deploy.frontend.files.fields import BEYOND, READER_ERRORS, array_of, text_of, vector_of
from utvm_deploy.frontend.files.limits import MAX_OPERATORS, MAX_RANK, MAX_TENSORS, Budget
from utvm_deploy.frontend.files.prepared import OPERANDS, check_variables, check_version
from utvm_deploy.frontend.files.source import CUSTOM, ModelFile, Option, SourceOperator, custom_kind
from utvm_deploy.frontend.files.variables import called_once
from utvm_deploy.frontend.operators.importers import IMPORTED
from utvm_deploy.frontend.tflite_tensors import check_shapes, names_of, read_buffer, read_tensor
from utvm_deploy.graph.model import Array, Tensor

_Read = TypeVar("_Read")

# The place of OperatorCode.builtin_code in its table, as flatbuffers count.
_BUILTIN_CODE_SLOT = 10
# The options tables with a list of dimensions, and its name.
_LISTS = {"ReshapeOptions": "NewShape", "SqueezeOptions": "SqueezeDims"}


#: Number of an operator -> its name.
OPERATOR_NAMES = names_of(tflite.BuiltinOperator)
_OPTIONS_NAMES = names_of(tflite.BuiltinOptions)


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
    except BEYOND as exc:
        raise ModelError(
            f"the file is damaged or cut short: something in it is said to lie beyond its "
            f"{len(data):,} bytes; copy or convert the model again"
        ) from exc
    except READER_ERRORS as exc:
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


def sparse_tensors(data: bytes) -> frozenset[int]:
    """The tensors of the main subgraph that are stored without zeros. Raises ModelError."""
    return _guarded(_sparse_tensors, data)


def _sparse_tensors(data: bytes) -> frozenset[int]:
    model = tflite.Model.GetRootAs(data, 0)
    if not model.SubgraphsLength():
        return frozenset()
    main = model.Subgraphs(0)
    count = _count(data, main.TensorsLength(), "tensors", MAX_TENSORS)
    return frozenset(i for i in range(count) if main.Tensors(i).Sparsity() is not None)


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
    buffers = [read_buffer(data, model.Buffers(i), i) for i in range(count)]
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
        read_tensor(subgraph.Tensors(i), i, buffers, budget, faults) for i in range(count)
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
    check_shapes(tensors, operators, inputs + outputs, faults)
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


def _operator_name(code: Any) -> str:
    # TFLite's own rule. A writer may leave out the old field, which has one byte, or the new one.
    # The generated reader of the new field returns the old one for codes below 127.
    table, new = code._tab, 0
    if found := table.Offset(_BUILTIN_CODE_SLOT):
        (new,) = struct.unpack_from("<i", table.Bytes, table.Pos + found)
    number = max(new, code.DeprecatedBuiltinCode())
    if number == tflite.BuiltinOperator.CUSTOM:
        return custom_kind(text_of(code.CustomCode(), "a custom operator"))
    return OPERATOR_NAMES.get(number, f"operator code {number}")


def _operator(
    operator: Any, index: int, codes: Sequence[str], tensors: tuple[Tensor, ...], budget: Budget
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
