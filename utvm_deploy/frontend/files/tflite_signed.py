"""In a child process: the int8 form of a uint8 model, as converters wrote before int8.

A uint8 value q with zero point z and an int8 value q - 128 with z - 128 stand for the same number.
Weights are different: kernels of int8 know no zero point of weights. So weights become q - z, and
that must fit an int8.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from utvm_deploy.base.errors import ModelError
from utvm_deploy.frontend.files import tflite_schema as schema
from utvm_deploy.graph.names import short_name

_OFFSET = 128
_WEIGHTED = ("CONV_2D", "DEPTHWISE_CONV_2D", "FULLY_CONNECTED", "TRANSPOSE_CONV")
#: The least version of operators whose int8 came later than 2; LiteRT knows all of them.
_VERSIONS = {"CONV_2D": 3, "DEPTHWISE_CONV_2D": 3, "FULLY_CONNECTED": 4}


def make_signed(model: Any) -> None:
    """Make every quantized uint8 tensor of the first subgraph int8.

    Raises ModelError for weights whose steps from their zero point do not fit.
    """
    graph = model.subgraphs[0]
    kinds = [schema.kind_of(model, operator) for operator in graph.operators]
    weights = {
        int(operator.inputs[1])
        for operator, kind in zip(graph.operators, kinds, strict=True)
        if kind in _WEIGHTED
    }
    for kind in set(kinds):
        schema.code_index(model, kind, _VERSIONS.get(kind, 1))
    stored = [buffer.data for buffer in model.buffers]
    for number, tensor in enumerate(graph.tensors):
        params = tensor.quantization
        if tensor.type != schema.UINT8 or params is None or len(schema.numbers(params.scale)) != 1:
            continue
        data = stored[tensor.buffer]
        offset = _OFFSET
        tensor.type = schema.INT8
        if data is not None and len(data):
            offset = int(params.zeroPoint[0]) if number in weights else _OFFSET
            steps = np.asarray(data, np.uint8).astype(np.int16) - offset
            _check_fits(tensor, steps)
            schema.set_constant(model, tensor, steps.astype(np.int8))
        params.zeroPoint = np.asarray(params.zeroPoint, np.int64) - offset


def _check_fits(tensor: Any, steps: Any) -> None:
    limits = np.iinfo(np.int8)
    for reached in (int(steps.min()), int(steps.max())):
        if not limits.min <= reached <= limits.max:
            name = short_name((tensor.name or b"").decode("utf-8", "replace"))
            raise ModelError(
                f"it has no int8 form with equal bytes: weights '{name}' reach {reached:+} steps "
                f"from their zero point, and int8 takes {limits.min} to {limits.max}; quantize "
                "the float model"
            )
