"""How kernels of the scalar family round: once (``single_rounding.py``), twice (``scaling.py``).

Dense layers are rounded once in 64 bits. Then an offset has two words.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from utvm_deploy.kernels.contract.c_texts import family_text, shared_text
from utvm_deploy.kernels.native.layer_tables import ConvolutionTables
from utvm_deploy.kernels.native.scaling import REACH_LIMIT, Scaling
from utvm_deploy.kernels.native.single_rounding import single_scaling


@dataclass(frozen=True)
class Rounding:
    """A way from sums to outputs, and the numbers of a channel that it takes."""

    label: str  # part of names
    #: The rows of a table of scaling: bias, multiplier, offset (and its high word h), shift.
    numbers: str
    limits: int  # words of the limits
    expression: str  # the C of an output, of the sum t and the slot c
    family: str = ""  # that has the C text; empty: it is shared
    text_name: str = "utvm_scale"

    def scaled(self, total: str, slot: int | str = "") -> str:
        """The C of an output, before the layer's limits."""
        return self.expression.format(t=f"(int32_t){total}", c=slot)

    @property
    def text(self) -> str:
        """The C that ``scaled`` calls."""
        name = self.text_name
        return family_text(self.family, name) if self.family else shared_text(name)


ONCE = Rounding(
    *("_once", "bmos", 2, "utvm_scalar_once({t}, m{c}, o{c}, s{c})"), "scalar", "utvm_scalar_once"
)
TWICE = Rounding("", "bmos", 2, "utvm_scale({t}, m{c}, o{c}, s{c})")
_WIDE = "utvm_scale_wide"
WIDE = Rounding(
    "_wide",
    "b",
    6,
    f"{_WIDE}({{t}}, {', '.join(f'limits[{n}]' for n in range(2, 6))})",
    text_name=_WIDE,
)
WIDE_EACH = Rounding(
    "_wide_each", "bmohs", 2, f"{_WIDE}({{t}}, m{{c}}, o{{c}}, h{{c}}, s{{c}})", text_name=_WIDE
)


def short_rounding(
    tables: ConvolutionTables, factor_bits: int = 0
) -> tuple[Rounding, Scaling] | str:
    """The rounding of a convolution and its tables, or why neither would be exact.

    The kernel sums up 2**factor_bits times each sum; so does the bias.
    """
    twice = tables.short_scaling(REACH_LIMIT >> max(factor_bits - 1, 0))
    if isinstance(twice, str):
        return twice
    quantized = tables.zero_point, tables.limits
    once = single_scaling(twice, tables.weights, *quantized, factor_bits=factor_bits)
    if once is not None:
        return ONCE, once
    return TWICE, twice._replace(bias=twice.bias * np.int32(1 << factor_bits))
