"""The call of a C routine for a signal operator."""

from __future__ import annotations

from dataclasses import replace
from math import prod

import numpy as np

from utvm_deploy.graph.attribute_values import Shape
from utvm_deploy.graph.signals.attributes import Signal
from utvm_deploy.kernels.contract.c_texts import shared_text
from utvm_deploy.kernels.contract.call import KernelCall, TensorArgument
from utvm_deploy.kernels.contract.driver import Buffer, KernelParameter, Operand
from utvm_deploy.kernels.contract.operands import stored
from utvm_deploy.kernels.contract.operation import Operation, Parameters
from utvm_deploy.kernels.contract.routine_call import CRoutine

_OUTPUTS = ("output", "second", "third")


def signal_text(name: str, dtype: str = "int16") -> str:
    """A C text for numbers of a type, which has other names for each type."""
    text = shared_text(f"signals/{name}")
    if dtype == "float32":
        text = text.replace("static inline", "UTVM_EXACT_FLOAT static inline")
    c_type = Buffer("", dtype).ctype
    return text.replace("NUMBER", c_type).replace("NAME", c_type.removesuffix("_t"))


def rows_of(shape: Shape) -> int:
    """How many rows a tensor has, along its last dimension."""
    return prod(shape[:-1])


def signal_call(
    op: Operation,
    routine: str,
    given: Parameters,
    numbers: tuple[int, ...],
    texts: tuple[str, ...],
    macs: int = 0,
    scratch: tuple[Operand, ...] = (),
) -> KernelCall:
    """The call with the first input, ``given``, outputs, scratch and ``numbers``, in this order.

    A state is the last of ``given``, and the last output may have its address.
    """

    def parameter(name: str, value: object) -> KernelParameter:
        if isinstance(value, TensorArgument):
            return Buffer(name, stored(op.graph.tensors[value.tensor].dtype))
        return Buffer(name, value.dtype.name) if isinstance(value, np.ndarray) else name

    keeps_state = op.attributes(Signal).keeps_state
    before = op.position(len(op.operator.inputs) - 1)
    if keeps_state:
        given = {**given, "before": TensorArgument(before)}
    outputs = op.operator.outputs
    made = (stored(op.graph.tensors[position].dtype) for position in outputs)
    kernel = CRoutine(
        routine,
        (
            Buffer("input", op.source.dtype),
            *(parameter(name, value) for name, value in given.items()),
            *(Buffer(name, dtype) for name, dtype in zip(_OUTPUTS, made, strict=False)),
        ),
        numbers,
        scratch,
        name="_".join([routine.removeprefix("utvm_"), *map(str, numbers)]),
        why="generic C",
        c_texts=texts,
    )
    call = op.call(kernel, given, macs=macs)
    if not keeps_state:
        return call
    return replace(call, in_place=((outputs[-1], before),))
