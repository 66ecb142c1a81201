"""In a child process: two models that share variables, a step and a block of steps, in one file.

    step:    token, place ──▶ operators ──▶ scores; ASSIGN_VARIABLE cache
    block:   tokens, place ──▶ operators ──▶ ASSIGN_VARIABLE cache
    joined:  token, place, tokens, place ──▶ those of the step, then those of the block ──▶ scores

``with_block`` writes the two as signatures of one file. ``joined`` makes one graph of them, which
everything else reads. A block has no outputs, and assigns variables.
"""

from __future__ import annotations

import json
from typing import Any

import numpy as np

from utvm_deploy.base.errors import ModelError
from utvm_deploy.frontend.files import tflite_schema as schema
from utvm_deploy.frontend.files.tflite_choice import BLOCK, STEP
from utvm_deploy.graph.model import Prefill
from utvm_deploy.graph.names import short_name

#: They hand on the scale of what they move, and a block may need others than a step.
_MOVING = ("RESHAPE", "TRANSPOSE", "SQUEEZE", "EXPAND_DIMS", "BROADCAST_TO", "TILE")
_HANDLE, _READ, _ASSIGN, _ONCE = "VAR_HANDLE", "READ_VARIABLE", "ASSIGN_VARIABLE", "CALL_ONCE"
#: All their constants are weights and biases, also those without a scale.
_WEIGHTED = ("FULLY_CONNECTED", "CONV_2D", "DEPTHWISE_CONV_2D", "TRANSPOSE_CONV")


def joined(step: bytes, block: bytes) -> bytes:
    """One graph: the operators of the step, then those of the block; metadata say where it begins.

    Raises ModelError if they share no variable that the block assigns, and for control flow.
    """
    model, other = schema.read_model(step), schema.read_model(block)
    _without_outputs(other)
    _check(model, other)
    main, behind = model.subgraphs[0], _appended(model, other)
    model.subgraphs.remove(behind)
    names = {main.tensors[int(number)].name for number in main.inputs}
    for tensor in (behind.tensors[int(number)] for number in behind.inputs):
        tensor.name = b"prefill_" + tensor.name if tensor.name in names else tensor.name
    shift = len(main.tensors)
    for operator in behind.operators:
        for field in ("inputs", "outputs", "intermediates"):
            found = schema.numbers(getattr(operator, field))
            setattr(operator, field, [one + shift if one >= 0 else one for one in found])
    main.tensors += behind.tensors
    once = _once(model, behind)
    rest = [one for one in behind.operators if one not in once]
    facts = Prefill(len(behind.inputs), len(once) + len(main.operators))
    main.operators = [*once, *main.operators, *rest]
    main.inputs = [*schema.numbers(main.inputs), *(int(one) + shift for one in behind.inputs)]
    schema.write_signature(model)
    schema.add_metadata(model, Prefill.METADATA, json.dumps(vars(facts)))
    return schema.model_bytes(model)


def with_block(step: bytes, block: bytes) -> bytes:
    """The step's file with a second signature: the block, with the weights and scales of the step.

    Raises ModelError if the block does not compute as the step does, or has other variables.
    """
    model, other = schema.read_model(step), schema.read_model(block)
    _check(model, other)
    _carry(model, other)
    _without_outputs(other)
    calls = [_once(some, some.subgraphs[0]) for some in (model, other)]
    behind = _appended(model, other)
    if [len(one) for one in calls] == [1, 1]:  # what one signature began, the other continues
        model.subgraphs = [*model.subgraphs[: -len(other.subgraphs)], behind]
        calls[1][0].builtinOptions.initSubgraphIndex = calls[0][0].builtinOptions.initSubgraphIndex
    made = [schema.signature(one) for one in (model.subgraphs[0], behind)]
    for one, name, number in zip(made, (STEP, BLOCK), (0, len(model.subgraphs) - 1), strict=True):
        one.signatureKey, one.subgraphIndex = name.encode(), number
    model.signatureDefs = made
    return schema.model_bytes(model)


def _once(model: Any, graph: Any) -> list[Any]:
    return [one for one in graph.operators if schema.kind_of(model, one) == _ONCE]


def _appended(model: Any, other: Any) -> Any:
    """The main subgraph of the other, behind all subgraphs of the model; equal buffers are one."""

    def stored(buffer: Any) -> bytes:
        return b"" if buffer.data is None else np.asarray(buffer.data, np.uint8).tobytes()

    places = {stored(one): number for number, one in reversed(list(enumerate(model.buffers)))}
    places[b""] = 0
    main, *more = other.subgraphs
    first = len(model.subgraphs)
    codes = [
        schema.code_index(model, schema.name_of_code(one), one.version, one.customCode)
        for one in other.operatorCodes
    ]
    for graph in (*more, main):
        for tensor in graph.tensors:
            buffer = other.buffers[tensor.buffer]
            if stored(buffer) not in places:
                places[stored(buffer)] = len(model.buffers)
                model.buffers.append(buffer)
            tensor.buffer = places[stored(buffer)]
        for operator in graph.operators:
            if schema.kind_of(other, operator) == _ONCE:
                operator.builtinOptions.initSubgraphIndex += first - 1
        model.subgraphs.append(graph)
    for operator in (one for graph in other.subgraphs for one in graph.operators):
        operator.opcodeIndex = codes[operator.opcodeIndex]
    return main


def _without_outputs(model: Any) -> None:
    """Leave what variables depend on."""
    model.subgraphs[0].outputs = []
    schema.remove_unused(model, model.subgraphs[0])


def _operators(model: Any, kind: str) -> dict[tuple[bytes, bytes], Any]:
    """Variables -> the last operator of this kind that names, reads or assigns each."""
    named: dict[int, tuple[bytes, bytes]] = {}
    found = {}
    for one in model.subgraphs[0].operators:
        if schema.kind_of(model, one) == _HANDLE:
            options = one.builtinOptions
            named[int(one.outputs[0])] = options.container or b"", options.sharedName or b""
        if schema.kind_of(model, one) == kind:
            found[named[int((one.outputs if kind == _HANDLE else one.inputs)[0])]] = one
    return found


def _check(step: Any, block: Any) -> None:
    """Raise ModelError unless the block leaves something for the step, in variables of both."""
    for model in (step, block):
        for operator in model.subgraphs[0].operators:
            if schema.kind_of(model, operator) in ("WHILE", "IF", "CALL"):
                raise ModelError("a step and a block cannot have control flow; export them without")
    assigned, known = _operators(block, _ASSIGN), _operators(step, _HANDLE)
    if not assigned:
        raise ModelError(
            "the block leaves nothing for the step: it assigns no variable; if its cache is an "
            "input and an output, name them by --state"
        )
    for variable in assigned:
        if variable not in known:
            names = ", ".join(f"'{one[1].decode()}'" for one in known) or "none"
            raise ModelError(
                f"the block assigns the variable '{variable[1].decode()}', and the step has "
                f"{names}; give both the same names"
            )
    if any(tensor.isVariable for tensor in block.subgraphs[0].tensors):
        raise ModelError("the block has a recurrent operator, whose state the step cannot share")


def _carry(step: Any, block: Any) -> None:
    """Give the block the weights and scales of the step, from what both assign on to the inputs."""
    graphs = [model.subgraphs[0] for model in (step, block)]
    made = [
        {int(number): one for one in graph.operators for number in schema.numbers(one.outputs)}
        for graph in graphs
    ]

    def kind(side: int, number: int) -> str:
        operator = made[side].get(number)
        return "" if operator is None else schema.kind_of((step, block)[side], operator)

    # A tensor of the step, the operator of the block that reads such a tensor, and as which input.
    ends = [_operators(model, _ASSIGN) for model in (step, block)]
    waiting = [(int(ends[0][one].inputs[1]), ends[1][one], 1) for one in ends[1] if one in ends[0]]
    done: set[int] = set()
    while waiting:
        theirs, reader, place = waiting.pop()
        mine = moved = int(reader.inputs[place])
        if mine in done or min(theirs, mine) < 0:
            continue
        while kind(0, theirs) in _MOVING:
            theirs = int(made[0][theirs].inputs[0])
        like, theirs_kind = graphs[0].tensors[theirs], kind(0, theirs)
        if not schema.steps_of(like)[0] and schema.kind_of(block, reader) not in _WEIGHTED:
            continue  # places, shapes and conditions, which a block has others of
        is_scaled = theirs_kind == "QUANTIZE"
        while kind(1, moved) in (*_MOVING, *(() if is_scaled else ("QUANTIZE",))):
            graphs[1].tensors[moved].quantization = like.quantization
            moved = int(made[1][moved].inputs[0])
        if is_scaled and kind(1, moved) != "QUANTIZE":  # both scales were equal in the block
            tensor = graphs[1].tensors[mine]
            new = schema.new_tensor(block, graphs[1], tensor, b"", tensor.type, like.quantization)
            operator = schema.operator(block, "QUANTIZE", 2, mine, new)
            graphs[1].operators.insert(graphs[1].operators.index(reader), operator)
            made[1][new], reader.inputs = operator, schema.numbers(reader.inputs)
            reader.inputs[place] = new
            waiting.append((int(made[0][theirs].inputs[0]), operator, 0))
            continue
        done.add(mine)
        tensor = graphs[1].tensors[moved]
        tensor.quantization = like.quantization
        if theirs_kind != kind(1, moved):
            name = short_name((tensor.name or b"").decode("utf-8", "replace"))
            told = [one or "a constant or an input" for one in (kind(1, moved), theirs_kind)]
            raise ModelError(
                f"the block is not the step with more rows: '{name}' is made by {told[0]}, and in "
                f"the step by {told[1]}; export both from one module, and quantize both equally"
            )
        if not theirs_kind:
            _take(block, tensor, step, like)
        elif theirs_kind != _READ:
            operator = made[1][moved]
            read = schema.numbers(made[0][theirs].inputs)[: len(operator.inputs)]
            waiting += [(one, operator, index) for index, one in enumerate(read)]


def _take(block: Any, tensor: Any, step: Any, like: Any) -> None:
    """Make a constant of the block that of the step; inputs stay."""
    data = block.buffers[tensor.buffer].data, step.buffers[like.buffer].data
    if any(one is None or not len(one) for one in data):
        return
    shapes = [tuple(schema.numbers(one.shape)) for one in (tensor, like)]
    if shapes[0] != shapes[1]:
        name = short_name((tensor.name or b"").decode("utf-8", "replace"))
        raise ModelError(
            f"the block's constant '{name}' has the shape {shapes[0]}, and that of the step "
            f"{shapes[1]}; export both from one module"
        )
    block.buffers.append(step.buffers[like.buffer])
    tensor.buffer, tensor.type = len(block.buffers) - 1, like.type
