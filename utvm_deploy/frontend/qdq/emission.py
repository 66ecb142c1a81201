"""Operators of a QDQ model, written in integers where TFLite has them so, else in float32."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

import numpy as np

from utvm_deploy.frontend.qdq import elementwise as qdq_elementwise
from utvm_deploy.frontend.qdq import float_functions as qdq_float_functions
from utvm_deploy.frontend.qdq import functions as qdq_functions
from utvm_deploy.frontend.qdq import norms as qdq_norms
from utvm_deploy.frontend.qdq import spectra as qdq_spectra
from utvm_deploy.frontend.qdq import transposed as qdq_transposed
from utvm_deploy.frontend.qdq import weighted as qdq_weighted
from utvm_deploy.frontend.qdq.functions import LOGIC
from utvm_deploy.frontend.qdq.job import (
    NONE,
    Job,
    fused_activation,
    steps_of,
)
from utvm_deploy.frontend.qdq.values import (
    FLOAT,
    Constant,
    Flattened,
    Pending,
    Quantized,
    Scale,
    Storage,
    Value,
)

EMITTERS = {
    **qdq_weighted.EMITTERS,
    **qdq_transposed.EMITTERS,
    **qdq_elementwise.EMITTERS,
    **qdq_float_functions.EMITTERS,
    **qdq_functions.EMITTERS,
    **qdq_norms.EMITTERS,
    **qdq_spectra.EMITTERS,
}
#: Kinds that are written in float32, and those of which TFLite has int8 but not int16.
FLOAT_ONLY = (
    qdq_elementwise.FLOAT_ONLY
    | qdq_float_functions.FLOAT_ONLY
    | qdq_functions.FLOAT_ONLY
    | qdq_norms.FLOAT_ONLY
    | qdq_spectra.FLOAT_ONLY
)
INT8_ONLY = qdq_elementwise.INT8_ONLY | qdq_functions.INT8_ONLY
#: What else an operator needs to be written in integers.
NEEDS: Mapping[str, Callable[[Storage, Pending], bool]] = {
    **qdq_weighted.NEEDS,
    **qdq_transposed.NEEDS,
    **qdq_functions.NEEDS,
}


@dataclass(frozen=True, eq=False)
class Operators:
    """Writes operators into the file of a storage."""

    store: Storage
    shapes: Mapping[str, tuple[int, ...]]

    def _implied_scale(self, pending: Pending) -> Scale | None:
        """The scale of what nothing quantizes; None if its operands have none for it."""
        kind, source = pending.node.kind, pending.arguments[0]
        if isinstance(source, Flattened):
            source = source.image
        if kind in ("Add", "Sub", "Mul") and (plain := self._integers_of(pending)) is not None:
            return plain
        if not isinstance(source, Quantized) or not self.store.scale_of(source).is_quantized:
            return None
        if kind in qdq_elementwise.FIXED_RANGES:
            return qdq_elementwise.fixed_range(kind, self.store.scale_of(source))
        if kind in qdq_elementwise.RANGE_KEEPING:
            scale = self.store.scale_of(source)
            low, high = ((one - scale.zero_point) * scale.scale for one in scale.limits)
            # A Clip may move all values to a limit that the scale of its input does not reach.
            return scale if pending.low <= high and pending.high >= low else None
        return None

    def _integers_of(self, pending: Pending) -> Scale | None:
        """The plain integers that all operands are, such as places; None if they are others."""
        found = set()
        for value in pending.arguments:
            if isinstance(value, Quantized):
                found.add(self.store.scale_of(value))
            elif not isinstance(value, Constant) or value.data.dtype.kind != "i":
                return None
        is_plain = len(found) == 1 and all(one.dtype in ("int32", "int64") for one in found)
        return found.pop() if is_plain else None

    def emitted(self, pending: Pending, name: str, scale: Scale | None = None) -> Quantized:
        """Write an operator, in integers where TFLite has it so, else in float32.

        Without the scale of its result, it has that of its operands if they say one.
        """
        scale = scale or self._implied_scale(pending) or FLOAT
        if scale.is_quantized and not self._is_integer(pending, scale):
            made = self.emitted(pending, f"{name}_float", FLOAT)
            return self.store.requantized(made, scale, name)
        if not scale.is_quantized and pending.node.kind not in LOGIC:
            arguments = tuple(self._real(value) for value in pending.arguments)
            pending = replace(pending, arguments=arguments)
        kind, low, high = pending.node.kind, pending.low, pending.high
        fused = fused_activation(low, high, scale)
        can_fuse = kind in qdq_elementwise.CLAMPING
        number = fused if can_fuse and fused is not None else NONE
        is_clamped = fused == NONE or (can_fuse and fused is not None) or kind in ("Relu", "Clip")
        given = (self.store, pending.node, pending.arguments, self.shapes, name)
        made = EMITTERS[kind](Job(*given, scale, number, low, high))
        made = self.store.requantized(made, scale, f"{name}_requantized")
        if kind in ("Relu", "Clip"):
            simple = low == 0.0 and high in (6.0, math.inf)
            is_clamped = simple or fused == NONE
        return made if is_clamped else self._limited(made, pending, scale, name)

    def _is_integer(self, pending: Pending, scale: Scale) -> bool:
        """Whether an operator is written in integers."""
        kind, dtypes = pending.node.kind, {scale.dtype}
        for value in pending.arguments:
            if isinstance(value, Flattened):
                value = value.image
            if isinstance(value, Quantized):
                dtypes.add(self.store.scale_of(value).dtype)
        if "float32" in dtypes or kind in FLOAT_ONLY or ("int16" in dtypes and kind in INT8_ONLY):
            return False
        needs = NEEDS.get(kind)
        return needs is None or needs(self.store, pending)

    def _real(self, value: Value | None) -> Value | None:
        """An argument in float32, if it is quantized."""
        if isinstance(value, Flattened):
            return replace(value, image=self._in_float(value.image))
        return self._in_float(value) if isinstance(value, Quantized) else value

    def _in_float(self, value: Quantized) -> Quantized:
        return self.store.real(value) if self.store.scale_of(value).is_quantized else value

    def _limited(self, made: Quantized, pending: Pending, scale: Scale, name: str) -> Quantized:
        for kind, bound in (("MAXIMUM", pending.low), ("MINIMUM", pending.high)):
            if math.isinf(bound):
                continue
            called, limit = f"{name}_{kind.lower()}", np.full((1,), steps_of(bound, scale))
            numbers = [made.tensor, self.store.operand(limit, scale, f"{called}_limit")]
            made = self.store.apply(kind, numbers, called, made.shape, scale, is_last=made.is_last)
        return made
