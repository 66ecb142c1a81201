"""REDUCE_PROD of quantized values: the product along neighbouring dimensions."""

from __future__ import annotations

from utvm_deploy.graph.attributes import Reduce
from utvm_deploy.graph.product import factor_of_product, merged_product
from utvm_deploy.kernels.contract.c_texts import replaced, shared_text
from utvm_deploy.kernels.contract.call import KernelCall
from utvm_deploy.kernels.contract.driver import buffers
from utvm_deploy.kernels.contract.extents import label
from utvm_deploy.kernels.contract.operation import Operation
from utvm_deploy.kernels.contract.requantization import (
    quantize_multiplier,
    short_multiplier,
)
from utvm_deploy.kernels.contract.routine_call import CRoutine

# How often the C text names the type.
_PLACEHOLDERS = 4


def lower_product(op: Operation) -> KernelCall:
    """The product, by one factor after the other."""
    element, (start, end) = op.source.element, op.ends
    extents = merged_product(op.source.shape, op.attributes(Reduce).axes)
    assert extents is not None, "the importer demands it"
    factor = factor_of_product(start.scale, end.scale, extents[1])
    multiplier, shift = quantize_multiplier(factor)
    scalars = {
        "zero_point": start.zero_point,
        "multiplier": short_multiplier(multiplier),
        "shift": shift,
        "output_zero_point": end.zero_point,
    }
    text = replaced(shared_text("utvm_product"), ("ELEMENT", element.c_type, _PLACEHOLDERS))
    kernel = CRoutine(
        f"utvm_product_{element.c_type}",
        (*buffers(input=element.name), *scalars, *buffers(output=element.name)),
        (*extents, *element.limits),
        name=f"product_{label(extents)}_{element.name}",
        why="generic C, one element at a time",
        c_texts=(text,),
    )
    return op.call(kernel, scalars)


LOWERINGS = {"REDUCE_PROD": lower_product}
