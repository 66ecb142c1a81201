"""RESIZE_BILINEAR: four neighbours, weighted in 1/1024 along each axis, by tables made here."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from utvm_deploy.graph.attributes import ResizeBilinear
from utvm_deploy.graph.model import Array, Graph, Operator
from utvm_deploy.kernels.contract.c_texts import replaced, shared_text
from utvm_deploy.kernels.contract.call import KernelCall
from utvm_deploy.kernels.contract.driver import buffers
from utvm_deploy.kernels.contract.extents import label
from utvm_deploy.kernels.contract.operands import input_of, kernel_call, output_of
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
        parameters = buffers(input="int8", rows="int32", columns="int32", output="int8")
        sizes = height, width, channels, self.rows, self.columns, batch
        return RoutineCall(self._function, parameters, sizes)

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
    _, source = input_of(graph, operator, 0)
    _, result = output_of(graph, operator)
    n, h, w, c = source.shape
    rows, columns = result.shape[1:3]
    tables = {"rows": neighbours(h, rows, a), "columns": neighbours(w, columns, a)}
    has_words = c >= 4
    is_coarse = has_words and not any((t[:, 2] % (ONE // 16)).any() for t in tables.values())
    kernel: Int16Bilinear | Bilinear = Bilinear((n, h, w, c), rows, columns, is_coarse)
    if source.dtype == "int16":
        kernel = Int16Bilinear((n, h, w, c), rows, columns)
    return kernel_call(graph, operator, kernel, tables)


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
