"""RESIZE_BILINEAR: four neighbours, weighted in 1/1024 along each axis, by tables made here."""

from __future__ import annotations

import numpy as np

from utvm_deploy.graph.attributes import ResizeBilinear
from utvm_deploy.graph.model import Array
from utvm_deploy.kernels.contract.c_texts import replaced, shared_text
from utvm_deploy.kernels.contract.call import KernelCall
from utvm_deploy.kernels.contract.extents import label
from utvm_deploy.kernels.contract.operation import Operation
from utvm_deploy.kernels.contract.routine_call import CRoutine, parameters_of
from utvm_deploy.kernels.portable.int16_resize import ONE, Int16Bilinear

_WORD = 4


def lower_resize_bilinear(op: Operation) -> KernelCall:
    """RESIZE_BILINEAR of int8 or int16."""
    a = op.attributes(ResizeBilinear)
    source, result = op.source, op.result
    batch, height, width, channels = source.shape
    rows, columns = result.shape[1:3]
    tables = {"rows": neighbours(height, rows, a), "columns": neighbours(width, columns, a)}
    if source.dtype == "int16":
        image = (batch, height, width, channels)
        return op.call(Int16Bilinear(image, rows, columns), tables)
    name = f"resize_bilinear_{label(source.shape)}_{rows}x{columns}"
    why = "generic C, neighbours and shares from tables"
    function, routine = "utvm_bilinear", shared_text("utvm_bilinear")
    texts = ["utvm_word", "utvm_blend"]
    # All shares are multiples of 1/16, as when sizes are doubled.
    is_coarse = not any((table[:, 2] % (ONE // 16)).any() for table in tables.values())
    if is_coarse and channels >= _WORD:
        name, why = f"{name}_coarse", f"{why}, two elements at a time"
        function = "utvm_bilinear_coarse"
        texts.append("utvm_blend_lanes")
        names = ("utvm_bilinear", function, 1), ("utvm_blend", "utvm_blend_lanes", 1)
        routine = replaced(routine, *names)
    kernel = CRoutine(
        function,
        parameters_of(op, tables),
        (height, width, channels, rows, columns, batch),
        name=name,
        why=why,
        c_texts=(*map(shared_text, texts), routine),
    )
    return op.call(kernel, tables)


def neighbours(size: int, count: int, a: ResizeBilinear) -> Array:
    """For each output position: the neighbour below, the one above, and the latter's share."""
    scale = (ONE * size + count // 2) // count
    if a.align_corners and count > 1:
        scale = (ONE * (size - 1) + (count - 1) // 2) // (count - 1)
    table = np.zeros((count, 3), np.int32)
    for position in range(count):
        place = position * scale
        if a.half_pixel_centers:
            place += scale // 2 - ONE // 2
        # Divisions of the reference round towards zero.
        lower = max(int(place / ONE), 0)
        upper = min(int((place + ONE - 1) / ONE), size - 1)
        table[position] = (min(lower, size - 1), upper, place - ONE * lower)
    return table


LOWERINGS = {"RESIZE_BILINEAR": lower_resize_bilinear}
