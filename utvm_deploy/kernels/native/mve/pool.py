"""AVERAGE_POOL_2D and MAX_POOL_2D in Helium: the pools of the DSP family, by another pixel."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from utvm_deploy.kernels.contract.c_texts import family_text, replaced
from utvm_deploy.kernels.native.dsp.pool import DspPool
from utvm_deploy.kernels.native.mve import pool_code as code


@dataclass(frozen=True)
class MvePool(DspPool):
    """Shape parameters of a pooling layer."""

    family: ClassVar[str] = "mve"
    why: ClassVar[str] = "Helium assembly, 16 channels in a vector"

    @property
    def driver(self) -> str:
        return f"utvm_mve_pool_{'average' if self.is_average else 'max'}"

    def text(self, core: str) -> str:
        names = ("UTVM_POOL", self.driver, 1), ("UTVM_PIXEL", code.name_of(self.is_average), 1)
        driver = replaced(family_text("dsp", "utvm_pool"), *names)
        return f"{code.pixel_text(self.is_average)}\n{driver}"
