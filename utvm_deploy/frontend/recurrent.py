"""Importing what keeps a state between runs."""

from __future__ import annotations

from utvm_deploy.frontend.operands import bias_of, clamp_of, made, quantized, scale_of
from utvm_deploy.frontend.source import SourceOperator
from utvm_deploy.graph.attributes import Svdf
from utvm_deploy.graph.model import Operator, Tensor


def import_svdf(op: SourceOperator) -> Operator:
    """SVDF with int8 weights for features, int16 for time, and a state of int16."""
    x, out = quantized(op, op.input(0), 2), quantized(op, op.output(), 2)
    features, times = _constant(op, 1, "int8"), _constant(op, 2, "int16")
    state = quantized(op, op.input(4), 2, ("int16",))
    rank = op.positive("Rank")
    filters, units = features.shape[0], features.shape[0] // rank
    fits = (
        filters % rank == 0
        and features.shape[1] == x.shape[1]
        and times.shape[0] == filters
        and state.shape == (x.shape[0], filters * times.shape[1])
        and out.shape == (x.shape[0], units)
    )
    if not fits:
        raise op.damaged(
            f"weights {features.shape} and {times.shape} of rank {rank} and a state {state.shape} "
            f"do not make {out.shape} of {x.shape}"
        )
    # The reference has no other activation for integers.
    if clamp_of(op, out) != clamp_of(op, out, 1):
        raise op.unsupported("its fused activation is not RELU, which the reference demands")
    bias = bias_of(op, units, position=3)
    inputs = (*op.inputs[:3], bias, op.inputs[4])
    return made(op, inputs, Svdf(rank))


def _constant(op: SourceOperator, position: int, dtype: str) -> Tensor:
    tensor = quantized(op, op.input(position), 2, (dtype,))
    if tensor.data is None:
        raise op.unsupported(f"weights '{tensor.name}' are computed; they must be constant")
    assert scale_of(tensor) > 0
    return tensor
