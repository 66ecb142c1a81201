"""In a child process: a .tflite file as it was chosen to be (``tflite_choice.py``).

One subgraph is left of several signatures, LiteRT infers the shapes of all tensors again, biases
get their axis, and a uint8 model becomes one of int8 (``tflite_signed.py``).
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from ai_edge_litert.interpreter import Interpreter, OpResolverType

from utvm_deploy.base.errors import ModelError, last_words
from utvm_deploy.frontend.files import tflite_schema as schema
from utvm_deploy.frontend.files.tflite_choice import Choice
from utvm_deploy.frontend.files.tflite_signed import make_signed
from utvm_deploy.graph.names import short_name

#: Fields of operators' options that are the number of a subgraph.
_CALLED = (
    *("initSubgraphIndex", "condSubgraphIndex", "bodySubgraphIndex", "thenSubgraphIndex"),
    *("elseSubgraphIndex", "subgraph", "comparatorSubgraphIndex"),
)


def chosen_file(data: bytes, choice: Choice) -> bytes:
    """The file with its chosen subgraph and those that it calls, shapes, axes and int8.

    Raises ModelError for shapes that the model does not take, and for what has no int8 form.
    """
    model = schema.read_model(data)
    if choice.subgraph is not None:
        _keep(model, choice.subgraph)
    if choice.mends_axes:
        for tensor in (one for graph in model.subgraphs for one in graph.tensors):
            if tensor.quantization is not None and len(schema.numbers(tensor.shape)) == 1:
                tensor.quantization.quantizedDimension = 0
    if choice.shapes:
        _infer(model, schema.model_bytes(model), choice.shapes)
    if choice.is_signed:
        make_signed(model)
    return schema.model_bytes(model)


def _keep(model: Any, first: int) -> None:
    """Leave a subgraph, as the first one, and what it calls."""
    kept = [first]
    for number in kept:  # grows on the way
        called = [getattr(options, field) for options, field in _calls(model.subgraphs[number])]
        kept += [one for one in dict.fromkeys(called) if one not in kept]
    places = {number: place for place, number in enumerate(kept)}
    for number in kept:
        for options, field in _calls(model.subgraphs[number]):
            setattr(options, field, places[getattr(options, field)])
    model.subgraphs = [model.subgraphs[number] for number in kept]
    model.signatureDefs = [one for one in model.signatureDefs if one.subgraphIndex == first]
    for signature in model.signatureDefs:
        signature.subgraphIndex = 0


def _calls(subgraph: Any) -> list[tuple[Any, str]]:
    """The options of operators that call subgraphs, and which field of them says which."""
    return [
        (options, field)
        for options in (operator.builtinOptions for operator in subgraph.operators)
        for field in _CALLED
        if isinstance(getattr(options, field, None), int)
    ]


def _infer(model: Any, data: bytes, shapes: Mapping[int, Sequence[int]]) -> None:
    """Give all tensors the shapes that LiteRT infers from those of the inputs."""
    # The reference kernels infer the same shapes, but compute for seconds.
    interpreter = Interpreter(
        model_content=data,
        experimental_op_resolver_type=OpResolverType.BUILTIN_WITHOUT_DEFAULT_DELEGATES,
        experimental_preserve_all_tensors=True,
    )
    try:
        for number, shape in shapes.items():
            interpreter.resize_tensor_input(number, shape)
        interpreter.allocate_tensors()
    except (RuntimeError, ValueError) as error:
        raise _refused(shapes, last_words(error)) from error
    # Shapes that operators compute are only known after a run, which some inputs of 0 may stop.
    with contextlib.suppress(RuntimeError, ValueError):
        for detail in interpreter.get_input_details():
            blank = np.zeros(shapes[int(detail["index"])], detail["dtype"])
            interpreter.set_tensor(detail["index"], blank)
        interpreter.invoke()
    # A loop's own tensors may have another shape in each step: control_flow.py infers these.
    for number, tensor in enumerate(model.subgraphs[0].tensors):
        if not tensor.isVariable and _is_computed(model, tensor):
            found = interpreter._get_tensor_details(number, 0)["shape"]
            if min(found, default=1) < 1 <= min(map(abs, tensor.shape), default=1):
                name = short_name((tensor.name or b"").decode("utf-8", "replace"))
                raise _refused(shapes, f"'{name}' becomes empty, {tuple(map(int, found))}")
            tensor.shape = np.array(found, np.int32)
            tensor.shapeSignature = None


def _refused(shapes: Mapping[int, Sequence[int]], why: str) -> ModelError:
    told = "; ".join(",".join(map(str, shape)) for shape in shapes.values())
    return ModelError(f"the model does not take inputs of the shape {told}: {why}")


def _is_computed(model: Any, tensor: Any) -> bool:
    data = model.buffers[tensor.buffer].data
    return data is None or len(data) == 0
