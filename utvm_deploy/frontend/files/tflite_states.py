"""In a child process: inputs and outputs of a .tflite file that become states of the model.

    before:  h, x ──▶ operators ──▶ hn, y
    after:   CALL_ONCE zeros; h = READ_VARIABLE; x ──▶ operators ──▶ y; ASSIGN_VARIABLE hn

``variables.py`` reads that form, and LiteRT runs it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from utvm_deploy.base.errors import ModelError
from utvm_deploy.frontend.files import tflite_schema as schema
from utvm_deploy.frontend.files.state import KeptState
from utvm_deploy.graph.model import Array
from utvm_deploy.graph.names import short_name

# Variables of the file may have the same names in another container.
_CONTAINER = b"utvm states"


def with_kept_states(data: bytes, states: Sequence[KeptState]) -> bytes:
    """The file in which these states are variables; raises as ``with_states`` does."""
    firsts = {one.found: one.first for one in states}
    return with_states(data, [(one.found, one.left) for one in states], firsts)


def with_states(
    data: bytes, states: Sequence[tuple[str, str]], firsts: Mapping[str, Array] | None = None
) -> bytes:
    """The file in which these inputs and outputs are variables, which are zeros at first.

    ``firsts`` has the real numbers that others are at first, by the name of the input. Outputs stay
    outputs, too, where no other one would be left. Raises ModelError for names that the file has
    not, and for an input and an output of different form.
    """
    model = schema.read_model(data)
    graph = model.subgraphs[0]
    pairs, kept = _pairs(model, states), []
    for (found, left), (name, _) in zip(pairs, states, strict=True):
        _check_form(model, found, left)
        value = schema.zeros(graph.tensors[found])
        if firsts and name in firsts:
            value = _stored(graph.tensors[found], firsts[name])
        kept.append((found, left, value))
    keep(model, kept, [name.encode() for name, _ in states])
    _take_away(model, {found for found, _ in pairs}, {left for _, left in pairs})
    return schema.model_bytes(model)


def _stored(tensor: Any, value: Array) -> Array:
    """Real numbers as a tensor of the file has them."""
    like: Any = schema.zeros(tensor)
    scale, zero_point = schema.steps_of(tensor)
    if scale:
        limits = np.iinfo(like.dtype)
        steps = np.rint(value.astype(np.float64) / scale) + zero_point
        value = np.clip(steps, limits.min, limits.max)
    return np.asarray(value.astype(like.dtype).reshape(like.shape))


def keep(model: Any, states: Sequence[tuple[int, int, Array]], names: Sequence[bytes] = ()) -> None:
    """Make variables of these: the tensor that a run finds, the one it leaves, and the first value.

    Operators of the file write the one that is left, and none writes the one that is found.
    ``names`` are those of the variables; by default, of the tensors that a run finds.
    """
    graph = model.subgraphs[0]
    once = schema.new_operator(model, "CALL_ONCE", 1, [], [])
    schema.set_options(once, "CallOnceOptions", initSubgraphIndex=len(model.subgraphs))
    first = schema.new_subgraph(model, b"states")
    reads, assigns = [], []
    for index, (found, left, value) in enumerate(states):
        tensor = graph.tensors[found]
        name = names[index] if names else tensor.name
        start = schema.new_tensor(model, first, tensor, b"first", tensor.type, tensor.quantization)
        schema.add_constant(model, first.tensors[start], value)
        unset, handle = (_handle(model, where, name) for where in (first, graph))
        first.operators += [unset, _assign(model, unset, start)]
        read = schema.new_operator(model, "READ_VARIABLE", 1, handle.outputs, [found])
        reads += [handle, read]
        assigns.append(_assign(model, handle, left))
    # Those of the file initialize other variables, and all of them come before what reads some.
    others: tuple[list[Any], list[Any]] = [], []
    for one in graph.operators:
        others[schema.kind_of(model, one) != "CALL_ONCE"].append(one)
    graph.operators = [*others[0], once, *reads, *others[1], *assigns]


def with_equal_steps(data: bytes, states: Sequence[tuple[str, str]], names: Sequence[str]) -> bytes:
    """The file whose integer outputs of these pairs have the scale and zero point of the input.

    ``names`` are those of all outputs in the model that it was made of, and these get them again.
    Their ranges are equal, but kernels such as TANH have one fixed scale. QUANTIZE follows these.
    """
    model = schema.read_model(data)
    graph = model.subgraphs[0]
    for name, output in states:
        found = _number(model, name, "input", graph.inputs, ())
        left = int(graph.outputs[names.index(output)])
        like, tensor = graph.tensors[found], graph.tensors[left]
        is_integer = tensor.type in schema.INTEGERS and like.type == tensor.type
        if is_integer and schema.steps_of(like) != schema.steps_of(tensor):
            number = schema.new_tensor(model, graph, tensor, b"", tensor.type, like.quantization)
            graph.operators.append(schema.operator(model, "QUANTIZE", 2, left, number))
            graph.outputs = [number if one == left else int(one) for one in graph.outputs]
            left = number
        graph.tensors[left].name = output.encode()
    schema.write_signature(model)
    return schema.model_bytes(model)


def _handle(model: Any, graph: Any, name: bytes | None) -> Any:
    """A new VAR_HANDLE."""
    made = schema.new_operator(model, "VAR_HANDLE", 1, [], [schema.new_handle(graph)])
    schema.set_options(made, "VarHandleOptions", container=_CONTAINER, sharedName=name or b"state")
    return made


def _assign(model: Any, handle: Any, number: int) -> Any:
    return schema.new_operator(model, "ASSIGN_VARIABLE", 1, [*handle.outputs, number], [])


def _take_away(model: Any, inputs: set[int], outputs: set[int]) -> None:
    """Leave the other inputs and outputs; all outputs if there are no others."""
    graph = model.subgraphs[0]
    graph.inputs = [int(one) for one in graph.inputs if one not in inputs]
    kept = [int(one) for one in graph.outputs if one not in outputs]
    for signature in model.signatureDefs or ():
        signature.inputs = [one for one in signature.inputs if one.tensorIndex not in inputs]
        if kept:
            signature.outputs = [one for one in signature.outputs if one.tensorIndex not in outputs]
    if not graph.inputs:
        raise ModelError("all inputs would become states, and a model needs an input")
    graph.outputs = kept or graph.outputs


def _pairs(model: Any, states: Sequence[tuple[str, str]]) -> list[tuple[int, int]]:
    """The numbers of each state's input and output."""
    graph, keys = model.subgraphs[0], model.signatureDefs or ()
    named = [(one.inputs, one.outputs) for one in keys if one.subgraphIndex == 0] or [((), ())]
    pairs = []
    for name, output in states:
        found = _number(model, name, "input", graph.inputs, named[0][0])
        left = _number(model, output, "output", graph.outputs, named[0][1])
        pairs.append((found, left))
    for numbers, ends in zip(zip(*pairs, strict=True), ("input", "output"), strict=True):
        if len(set(numbers)) < len(numbers):
            raise ModelError(f"two states have the same {ends}; give each once")
    return pairs


def _number(model: Any, name: str, what: str, numbers: Any, aliases: Any) -> int:
    """The tensor of an input or output; a signature may have another name for it."""
    known = {_name(model, int(number)): int(number) for number in numbers}
    own = {one.name.decode("utf-8", "replace"): int(one.tensorIndex) for one in aliases}
    # Our conversion of quantized models may call output "y" so.
    own |= {
        one.removesuffix("_output"): number
        for one, number in known.items()
        if what == "output" and one.endswith("_output")
    }
    if name not in known | own:
        names = ", ".join(f"'{short_name(one)}'" for one in known)
        raise ModelError(f"the model has no {what} '{name}' for --state; its {what}s: {names}")
    return {**own, **known}[name]


def _check_form(model: Any, found: int, left: int) -> None:
    graph = model.subgraphs[0]
    tensors = graph.tensors[found], graph.tensors[left]
    names = f"input '{_name(model, found)}'", f"output '{_name(model, left)}'"
    told = f"{names[0]} and {names[1]} cannot be a state"
    shapes = [tuple(schema.numbers(one.shape)) for one in tensors]
    if shapes[0] != shapes[1]:
        grown = [b - a for a, b in zip(*shapes, strict=False) if a != b]
        way = ""
        if len(shapes[0]) == len(shapes[1]) and len(grown) == 1 and grown[0] > 0:
            way = (
                "; it grows in each run, so let the model write into a cache of a fixed size, by "
                "TensorScatter with nonpad_kv_seqlen in ONNX or a buffer in PyTorch"
            )
        raise ModelError(f"{told}: they have the shapes {shapes[0]} and {shapes[1]}{way}")
    if tensors[0].type != tensors[1].type or tensors[0].type not in schema.STORED:
        kinds = " and ".join(schema.name_of_type(one.type) for one in tensors)
        raise ModelError(f"{told}: they have the types {kinds}")
    steps = [schema.steps_of(one) for one in tensors]
    if steps[0] != steps[1]:
        scales = " and ".join(f"scale {scale} and zero point {zero}" for scale, zero in steps)
        raise ModelError(
            f"{told}: they have {scales}; they must be equal, so quantize the float model with "
            "--state, which gives both one range"
        )
    if not any(left in schema.numbers(one.outputs) for one in graph.operators):
        raise ModelError(f"{told}: no operator writes {names[1]}")


def _name(model: Any, number: int) -> str:
    return short_name(schema.name_of(model, number) or f"tensor_{number}")
