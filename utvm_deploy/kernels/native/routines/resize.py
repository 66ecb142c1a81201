"""RESIZE_BILINEAR: four neighbours, weighted in 1/1024 along each axis, by tables made here."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from utvm_deploy.graph.attributes import ResizeBilinear
from utvm_deploy.graph.model import Array, Graph, Operator
from utvm_deploy.kernels.contract.c_texts import replaced, shared_text
from utvm_deploy.kernels.contract.call import ConstantArgument, KernelCall, TensorArgument
from utvm_deploy.kernels.contract.driver import Operand
from utvm_deploy.kernels.contract.extents import label
from utvm_deploy.kernels.contract.operands import input_of, operand_of, output_of
from utvm_deploy.kernels.contract.routine_call import RoutineCall, RoutineKernel
from utvm_deploy.kernels.portable.int16_resize import ONE, Int16Bilinear


@dataclass(frozen=True)
class Bilinear(RoutineKernel):
    """Shapes; the tables hold, for each output row or column, both neighbours and the share."""

    image: tuple[int, int, int, int]
    rows: int
    columns: int
    is_coarse: bool = False  # all shares are multiples of 1/16, as when sizes are doubled

    @property
    def name(self) -> str:
        coarse = "_coarse" if self.is_coarse else ""
        return f"resize_bilinear_{label(self.image)}_{self.rows}x{self.columns}{coarse}"

    @property
    def routine(self) -> RoutineCall:
        batch, height, width, channels = self.image
        buffers = (
            Operand("input", self.image, "int8"),
            Operand("rows", (self.rows, 3), "int32"),
            Operand("columns", (self.columns, 3), "int32"),
            Operand("output", (batch, self.rows, self.columns, channels), "int8"),
        )
        sizes = height, width, channels, self.rows, self.columns, batch
        return RoutineCall(self._function, buffers, sizes)

    @property
    def why(self) -> str:
        lanes = ", two elements at a time" if self.is_coarse else ""
        return f"generic C, neighbours and shares from tables{lanes}"

    @property
    def _function(self) -> str:
        return "utvm_bilinear_coarse" if self.is_coarse else "utvm_bilinear"

    def texts(self, core: str) -> tuple[str, ...]:
        texts = [shared_text("utvm_word"), shared_text("utvm_blend")]
        driver = shared_text("utvm_bilinear")
        if self.is_coarse:
            texts.append(shared_text("utvm_blend_lanes"))
            names = ("utvm_bilinear", self._function, 1), ("utvm_blend", "utvm_blend_lanes", 1)
            driver = replaced(driver, *names)
        return (*texts, driver)


def lower_resize_bilinear(graph: Graph, operator: Operator) -> KernelCall:
    """RESIZE_BILINEAR of int8 or int16."""
    a = operator.attributes
    assert isinstance(a, ResizeBilinear)
    position, source = input_of(graph, operator, 0)
    output, result = output_of(graph, operator)
    n, h, w, c = source.shape
    rows, columns = result.shape[1:3]
    tables = neighbours(h, rows, a), neighbours(w, columns, a)
    sizes = (n, h, w, c), rows, columns
    is_coarse = c >= 4 and not any((table[:, 2] % (ONE // 16)).any() for table in tables)
    is_int16 = source.dtype == "int16"
    return KernelCall(
        Int16Bilinear(*sizes) if is_int16 else Bilinear(*sizes, is_coarse),
        (
            operand_of(position, source),
            ConstantArgument("rows", tables[0]),
            ConstantArgument("columns", tables[1]),
            TensorArgument(output),
        ),
    )


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
