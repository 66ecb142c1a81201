"""AVERAGE_POOL_2D, MAX_POOL_2D and L2_POOL_2D of float32.

Positions outside of the image do not count. A border of zeros changes no sum that begins with 0.
One of the lowest finite number changes no maximum: in the reference it begins with that number.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from utvm_deploy.graph.attribute_values import FLOAT_MAX, Limits
from utvm_deploy.graph.attributes import Pool
from utvm_deploy.kernels.contract.call import KernelCall
from utvm_deploy.kernels.contract.lazy_tvm import te, tirx
from utvm_deploy.kernels.contract.operation import Lowering, Operation
from utvm_deploy.kernels.contract.window import Window
from utvm_deploy.kernels.portable.integers.pool import schedule_pool
from utvm_deploy.kernels.portable.schedules.float_values import largest, limited, limits_label
from utvm_deploy.kernels.portable.schedules.tiling import choose_tile


@dataclass(frozen=True)
class FloatPool2D:
    """Shape parameters of a pool; ``kind`` is average, max or l2."""

    window: Window
    channels: int
    kind: str
    limits: Limits

    @property
    def name(self) -> str:
        label = limits_label(self.limits)
        return f"{self.kind}_pool_float_{self.window.label}_{self.channels}{label}"

    def prim_func(self) -> Any:
        w, is_max = self.window, self.kind == "max"
        image = te.placeholder(w.input_shape(self.channels), "float32", "input")
        padded = w.pad(image, tirx.const(-FLOAT_MAX if is_max else 0.0, "float32"))
        ky, kx = w.taps()
        reduce = largest() if is_max else te.sum

        def total(n: Any, y: Any, x: Any, c: Any) -> Any:
            value = padded[n, w.row(y, ky), w.column(x, kx), c]
            return reduce(value * value if self.kind == "l2" else value, axis=[ky, kx])

        def element(n: Any, y: Any, x: Any, c: Any) -> Any:
            value = reduced[n, y, x, c]
            if not is_max:
                count = w.covered(y, x)
                value = value / (
                    tirx.const(count, "float32")
                    if isinstance(count, int)
                    else count.astype("float32")
                )
            return limited(tirx.sqrt(value) if self.kind == "l2" else value, self.limits)

        shape = w.output_shape(self.channels)
        reduced = te.compute(shape, total, name="pool")
        output = te.compute(shape, element, name="output")
        return te.create_prim_func([image, output])

    def schedule(self, sch: Any, core: str) -> str:
        channels = choose_tile(1, self.channels).channels
        return schedule_pool(sch, self.window, channels, "output")


def lower_pool(op: Operation) -> KernelCall:
    """The three pools."""
    a, source, result = op.attributes(Pool), op.source, op.result
    window = Window.of(source.shape, result.shape, a.window, a.strides, (1, 1), a.padding)
    kind = op.kind.split("_")[0].lower()
    return op.call(FloatPool2D(window, source.shape[3], kind, a.limits))


FLOAT_LOWERINGS: Mapping[str, Lowering] = {
    "AVERAGE_POOL_2D": lower_pool,
    "L2_POOL_2D": lower_pool,
    "MAX_POOL_2D": lower_pool,
}
