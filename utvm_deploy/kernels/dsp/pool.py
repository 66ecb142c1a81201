"""AVERAGE_POOL_2D and MAX_POOL_2D for cores with the DSP extension: four channels in a word."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np

from utvm_deploy.graph.model import Array
from utvm_deploy.kernels.call import ConstantArgument, KernelCall
from utvm_deploy.kernels.dsp import pool_code as code
from utvm_deploy.kernels.micro.tensor_ir import (
    ANY_CORE,
    Buffers,
    Operand,
    extern,
    import_c,
    prim_func,
    script,
)
from utvm_deploy.kernels.window import Window

_WORD = 4


@dataclass(frozen=True)
class DspPool:
    """Shape parameters of a pooling layer."""

    window: Window
    channels: int
    is_average: bool

    family: ClassVar[str] = "dsp"
    why: ClassVar[str] = "DSP assembly, four channels in a word"

    @property
    def name(self) -> str:
        kind = "average" if self.is_average else "max"
        return f"{kind}_pool_{self.window.label}_{self.channels}_{self.family}"

    @property
    def driver(self) -> str:
        """The C function for an image."""
        return code.driver_of(self.is_average)

    def text(self, core: str) -> str:
        """The C text of it."""
        return code.pool_text(core, self.is_average)

    @property
    def geometry(self) -> Array:
        """As ``utvm_pool`` reads it."""
        w = self.window
        values = (w.height, w.width, self.channels, w.output_height, w.output_width, *w.kernel)
        return np.array([*values, *w.strides, w.top, w.left], dtype=np.int32)

    def prim_func(self) -> Any:
        w = self.window
        image = Operand("image", (w.batch, w.height, w.width, self.channels), "int8")
        geometry = Operand("geometry", (self.geometry.size,), "int32")
        output = Operand(
            "output", (w.batch, w.output_height, w.output_width, self.channels), "int8"
        )

        def body(buffers: Buffers) -> None:
            with script.grid(w.batch, 1) as (n, one), script.sblock("pool"):
                vn, _ = script.axis.remap("SS", [n, one])

                def whole(operand: Operand) -> Any:
                    place = (vn, *(slice(0, extent) for extent in operand.shape[1:]))
                    return buffers[operand.name][place]

                script.reads(whole(image), geometry.region(buffers))
                script.writes(whole(output))
                call = extern(
                    self.driver,
                    script.address_of(buffers["image"][vn, 0, 0, 0]),
                    script.address_of(buffers["output"][vn, 0, 0, 0]),
                    geometry.start(buffers),
                    *(buffers["low"], buffers["high"]),
                )
                script.evaluate(call)

        return prim_func(
            [image, geometry, "low", "high", output],
            [],
            body,
            helpers=[self.text(ANY_CORE)],
        )

    def schedule(self, sch: Any, core: str) -> str:
        import_c(sch, self.text(core))
        return self.why


def dsp_pool_call(
    call: KernelCall, window: Window, channels: int, is_average: bool
) -> KernelCall | str:
    """The call instead of the generic one."""
    if channels < _WORD:
        return "less than a word of channels"
    return pool_call(call, DspPool(window, channels, is_average))


def pool_call(call: KernelCall, kernel: DspPool) -> KernelCall | str:
    """The call of ``kernel``, unless sums of its windows need more than halfwords."""
    positions = math.prod(kernel.window.kernel)
    if kernel.is_average and positions > code.MOST_POSITIONS:
        return f"a window of {positions} positions"
    image, *others = call.arguments
    geometry = ConstantArgument("geometry", kernel.geometry)
    return replace(call, kernel=kernel, arguments=(image, geometry, *others))
