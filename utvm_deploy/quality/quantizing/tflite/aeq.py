"""The door of ai-edge-quantizer: the file that a recipe describes, from calibrated ranges."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import numpy as np

from utvm_deploy.base.errors import ModelError, last_words
from utvm_deploy.frontend.files import tflite_schema as schema
from utvm_deploy.quality.quantizing.facts import DTYPES, FLOAT, INT16X8, Range, Recipe
from utvm_deploy.quality.quantizing.tflite.rules import is_for_aeq


def quantized_by_aeq(data: bytes, ranges: Mapping[str, Range], recipe: Recipe) -> bytes:
    """What ai-edge-quantizer makes of a prepared file.

    Operators that it does not know stay float, between DEQUANTIZE and QUANTIZE.
    """
    from ai_edge_quantizer import quantizer

    made = quantizer.Quantizer(data)
    names = quantizer.qtyping.TFLOperationName
    _add(made, ".*", names.ALL_SUPPORTED, recipe.scheme)
    for output, scheme in _schemes(data, recipe).items():
        # The quantizer's scope of an operator: the names of its outputs, each with a semicolon.
        _add(made, f"^{re.escape(output)};", names.ALL_SUPPORTED, scheme)
    if recipe.float_ends:
        for end in (names.INPUT, names.OUTPUT):
            _add(made, ".*", end, FLOAT)
    statistics = _statistics(data, {**ranges, **recipe.ranges})
    try:
        result = made.quantize(statistics, enable_progress_bar=False, enable_progress_report=False)
    except (ValueError, RuntimeError, KeyError) as error:
        raise ModelError(f"ai-edge-quantizer cannot quantize it: {last_words(error)}") from error
    return bytes(result.quantized_model)


def _schemes(data: bytes, recipe: Recipe) -> dict[str, str]:
    """The schemes of operators, by their first outputs, where they are not that of the model."""
    model = schema.read_model(data)
    schemes = {}
    for operator in model.subgraphs[0].operators:
        kind = schema.kind_of(model, operator)
        if not schema.numbers(operator.outputs):
            continue
        output = schema.name_of(model, operator.outputs[0])
        scheme = recipe.operators.get(output, recipe.scheme)
        if scheme != FLOAT and not is_for_aeq(kind, DTYPES[scheme]):
            scheme = FLOAT
        if scheme != recipe.scheme:
            schemes[output] = scheme
    return schemes


def _add(made: Any, regex: str, operation: Any, scheme: str) -> None:
    if scheme == FLOAT:
        made.update_quantization_recipe(regex, operation, algorithm_key="no_quantize")
        return
    bits = 16 if scheme == INT16X8 else 8
    made.add_static_config(regex, operation, activation_num_bits=bits, weight_num_bits=8)


def _statistics(data: bytes, ranges: Mapping[str, Range]) -> dict[str, Any]:
    """The ranges in the quantizer's form: arrays with as many dimensions as the tensor.

    What is always zero gets 0 to 1: the quantizer's own scale is so small that sums overflow.
    """
    statistics = {}
    for tensor in schema.read_model(data).subgraphs[0].tensors:
        name = tensor.name.decode("utf-8", "replace")
        # Weights must have no range here: it would give all their channels one scale.
        if name in ranges:
            rank = [1] * len(schema.numbers(tensor.shape))
            low, high = ranges[name].low, ranges[name].high
            statistics[name] = {
                "min": np.full(rank, low, np.float32),
                "max": np.full(rank, high if low or high else 1.0, np.float32),
            }
    return statistics
