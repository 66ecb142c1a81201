"""TOPK_V2: the positions of the largest elements of each row."""

from __future__ import annotations

import math

from utvm_deploy.graph.attributes import TopPositions
from utvm_deploy.kernels.contract.c_texts import replaced, shared_text
from utvm_deploy.kernels.contract.call import KernelCall
from utvm_deploy.kernels.contract.driver import buffers
from utvm_deploy.kernels.contract.operation import Operation
from utvm_deploy.kernels.contract.routine_call import CRoutine

# How often the C text names the type.
_PLACEHOLDERS = 7
_COMPARISON = "value > other"
# True also where only the other one is not a number.
_FLOAT_COMPARISON = "!(value <= other) && value == value"


def lower_top(op: Operation) -> KernelCall:
    """The positions, by insertion into those found so far."""
    source, count = op.source, op.attributes(TopPositions).count
    rows, length = math.prod(source.shape[:-1]), source.shape[-1]
    is_float = source.dtype == "float32"
    element = source.element.c_type
    text = replaced(
        shared_text("utvm_top"),
        (_COMPARISON, _FLOAT_COMPARISON if is_float else _COMPARISON, 1),
        ("ELEMENT", element, _PLACEHOLDERS),
    )
    kernel = CRoutine(
        f"utvm_top_{element}",
        buffers(input=source.dtype, output="int32"),
        (rows, length, count),
        name=f"top_{count}_of_{rows}x{length}_{source.dtype}",
        why="generic C, each element inserted into the largest so far",
        c_texts=(text,),
    )
    return op.call(kernel)


LOWERINGS = {"TOPK_V2": lower_top}
