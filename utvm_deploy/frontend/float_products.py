"""Importing what multiplies float32 by weights or slides a window over it."""

from __future__ import annotations

from collections.abc import Mapping

from utvm_deploy.frontend.float_operands import float_bias_of, float_weights_of, floats, limits_of
from utvm_deploy.frontend.operands import made
from utvm_deploy.frontend.source import SourceOperator
from utvm_deploy.frontend.supported_operator import FUSED, SupportedOperator
from utvm_deploy.graph.attributes import NO_CLAMP, FullyConnected
from utvm_deploy.graph.model import Operator


def import_dense(op: SourceOperator) -> Operator:
    """FULLY_CONNECTED."""
    weights = float_weights_of(op, rank=2)
    floats(op, op.input(0), op.output())
    bias = float_bias_of(op, weights.shape[0])
    attributes = FullyConnected(NO_CLAMP, limits_of(op))
    return made(op, (op.inputs[0], op.inputs[1], bias), attributes)


#: What this module imports.
FLOAT_OPERATORS: Mapping[str, SupportedOperator] = {
    "FULLY_CONNECTED": SupportedOperator(import_dense, ("float32",), FUSED),
}
