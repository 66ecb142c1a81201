"""The shadow of a quantized model: what each of its operators makes in float32.

A kernel may be wrong, and every comparison with it right. So LiteRT computes each operator in
float32, too, from the numbers that its quantized inputs mean. In the steps of its output, the truth
may be as far from that as rounding explains.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass

from utvm_deploy.graph.names import short_name


@dataclass(frozen=True)
class FloatGap:
    """A result that is further from its shadow than rounding explains, at its worst element."""

    operator: str
    name: str  # of the tensor
    tensor: int  # its number in the file
    steps: float
    allowed: float
    sample: int
    element: tuple[int, ...]
    truth: float  # what the bytes mean
    in_float: float

    @property
    def text(self) -> str:
        """For people."""
        return (
            f"{self.operator} '{short_name(self.name)}' is {self.steps:,.4g} steps of its scale "
            f"from float32, and rounding explains {self.allowed:g}: {list(self.element)} of "
            f"sample {self.sample} is {self.truth:.4g}, and in float32 {self.in_float:.4g}"
        )


@dataclass(frozen=True)
class Shadow:
    """What came of comparing the operators of a model with their shadows."""

    compared: int  # operators
    skipped: Mapping[str, int]  # "KIND: why" -> operators without a shadow
    gaps: tuple[FloatGap, ...]


def saved(shadow: Shadow) -> str:
    """As text, for the parent."""
    return json.dumps(asdict(shadow))


def loaded(text: str) -> Shadow:
    """What ``saved`` wrote."""
    found = json.loads(text)
    gaps = tuple(FloatGap(**(one | {"element": tuple(one["element"])})) for one in found["gaps"])
    return Shadow(found["compared"], found["skipped"], gaps)
