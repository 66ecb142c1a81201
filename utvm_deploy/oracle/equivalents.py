"""Operators that other operators of LiteRT compute: copies of a file that have those."""

from __future__ import annotations

# The first of FULLY_CONNECTED that takes int16 and a scale for each output.
_DENSE_VERSION = 12


def as_dense(data: bytes) -> bytes:
    """The file of one BATCH_MATMUL by a constant matrix, which becomes FULLY_CONNECTED."""
    from utvm_deploy.frontend.files import tflite_schema as schema  # only in the child process

    model = schema.read_model(data)
    graph = model.subgraphs[0]
    (operator,) = graph.operators
    weights = graph.tensors[operator.inputs[1]]
    matrix = schema.constant(model, weights)
    assert matrix is not None, "the importer asks for a constant"
    matrix = matrix.reshape(matrix.shape[-2:])
    rows = matrix if operator.builtinOptions.adjY else matrix.T
    schema.set_constant(model, weights, rows)
    weights.shape, weights.shapeSignature = list(rows.shape), None
    weights.quantization.quantizedDimension = 0
    schema.become(model, operator, "FULLY_CONNECTED", "FullyConnectedOptions", keepNumDims=True)
    code = model.operatorCodes[operator.opcodeIndex]
    # The reference may lack other operators of the file.
    model.operatorCodes, operator.opcodeIndex, code.version = [code], 0, _DENSE_VERSION
    model.subgraphs = [graph]
    return schema.model_bytes(model)
