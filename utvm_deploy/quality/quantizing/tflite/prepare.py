"""Makes a float .tflite file readable for ai-edge-quantizer, without changing what it computes.

The quantizer identifies tensors by their names, needs a signature, and takes operator codes only
from the newer of the schema's two fields.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from utvm_deploy.base.errors import ModelError
from utvm_deploy.frontend.files import tflite_schema as schema
from utvm_deploy.graph.model import Array
from utvm_deploy.graph.names import short_name
from utvm_deploy.quality.quantizing.tflite.equivalents import replace_by_equivalents
from utvm_deploy.quality.quantizing.tflite.masks import limit_masks


def prepared(data: bytes) -> bytes:
    """The file in the form that the quantizer takes. Raises ModelError for bad weights."""
    model = schema.read_model(data)
    graph = model.subgraphs[0]
    _widen_half_floats(model, graph)
    _name_tensors(graph)
    # Names within signatures may hold anything; nothing after this step needs those of the file.
    schema.write_signature(model)
    limit_masks(model)
    _check_weights(model, graph)
    replace_by_equivalents(model)
    return schema.model_bytes(model)


def with_float_weights(data: bytes) -> bytes | None:
    """The file with float32 weights where float32 operators have int8 ones; None without such.

    These are the files of dynamic range quantization, whose activations are float32.
    """
    model = schema.read_model(data)
    graph = model.subgraphs[0]
    found = False
    for operator in graph.operators:
        reads = [graph.tensors[n] for n in schema.numbers(operator.inputs) if n >= 0]
        makes = [graph.tensors[n] for n in schema.numbers(operator.outputs)]
        # QUANTIZE and DEQUANTIZE have one input, so they have no weights.
        if len(reads) < 2 or any(one.type != schema.FLOAT32 for one in makes):
            continue
        for tensor in reads:
            real = _real_weights(model, tensor)
            if real is not None:
                schema.set_constant(model, tensor, real)
                tensor.type, tensor.quantization = schema.FLOAT32, None
                found = True
    return schema.model_bytes(model) if found else None


def _real_weights(model: Any, tensor: Any) -> Array | None:
    """What constant int8 weights mean; None for other tensors."""
    steps = schema.constant(model, tensor) if tensor.type == schema.INT8 else None
    facts = tensor.quantization
    if steps is None or facts is None or facts.scale is None or not len(facts.scale):
        return None
    shape = [1] * steps.ndim
    if len(facts.scale) > 1:
        shape[facts.quantizedDimension] = len(facts.scale)
    scales = np.asarray(facts.scale, np.float32).reshape(shape)
    zeros = np.zeros_like(scales)
    if facts.zeroPoint is not None:
        zeros += np.reshape(facts.zeroPoint, shape)
    real: Array = (steps.astype(np.float32) - zeros) * scales
    return real


def _widen_half_floats(model: Any, graph: Any) -> None:
    """A float16 constant behind DEQUANTIZE becomes a float32 constant."""
    kept = []
    for operator in graph.operators:
        source = graph.tensors[operator.inputs[0]] if schema.numbers(operator.inputs) else None
        if schema.kind_of(model, operator) == "DEQUANTIZE" and source is not None:
            half = schema.constant(model, source) if source.type == schema.FLOAT16 else None
            if half is not None:
                target = graph.tensors[operator.outputs[0]]
                schema.set_constant(model, target, half.astype(np.float32))
                continue
        kept.append(operator)
    graph.operators = kept


def _name_tensors(graph: Any) -> None:
    """No name is empty, or of two tensors."""
    taken: set[bytes] = set()
    for number, tensor in enumerate(graph.tensors):
        name = tensor.name or b"tensor"
        if name in taken:
            name += b"_%d" % number
        while name in taken:
            name += b"_"
        taken.add(name)
        tensor.name = name


def _check_weights(model: Any, graph: Any) -> None:
    used = {number for operator in graph.operators for number in schema.numbers(operator.inputs)}
    for number, tensor in enumerate(graph.tensors):
        if tensor.type != schema.FLOAT32 or number not in used:
            continue
        array = schema.constant(model, tensor)
        if array is not None and not np.isfinite(array).all():
            what = "NaN" if np.isnan(array).any() else "infinity"
            name = short_name(tensor.name.decode("utf-8", "replace"))
            raise ModelError(
                f"the weights '{name}' hold {what}; train the model again, or repair the weights"
            )
