"""TFLite operator -> our operator: the table of supported operators and their constraints.

An importer checks that the operator is a variant that the kernels compute exactly (element types,
ranks, quantization), resolves its padding and turns its fused activation into a clamp. Shapes are
checked afterwards, by ``graph.check``. Each module of importers has its part of the table.
"""

from __future__ import annotations

from collections.abc import Mapping

from utvm_deploy.frontend.files.source import SourceOperator, custom_name
from utvm_deploy.frontend.files.supported_operator import SupportedOperator
from utvm_deploy.frontend.operators import (
    blocks,
    booleans,
    conversions,
    float_elementwise,
    float_products,
    float_recurrent,
    float_reductions,
    gathering,
    integers,
    layout,
    pointwise,
    recurrent,
    reductions,
    windowed,
)
from utvm_deploy.frontend.signals.importers import SIGNAL_OPERATORS

_MODULES = (
    blocks,
    booleans,
    conversions,
    gathering,
    integers,
    layout,
    pointwise,
    recurrent,
    reductions,
    windowed,
)

#: Kind -> how it is imported; the list of what is supported.
IMPORTERS: Mapping[str, SupportedOperator] = {
    kind: row for module in _MODULES for kind, row in module.OPERATORS.items()
}

_FLOAT_MODULES = (float_elementwise, float_products, float_recurrent, float_reductions)

#: Kind -> how it is imported if it computes in float32.
FLOAT_IMPORTERS: Mapping[str, SupportedOperator] = {
    kind: row for module in _FLOAT_MODULES for kind, row in module.FLOAT_OPERATORS.items()
}

#: All operators that are imported, for some element types at least.
IMPORTED = frozenset({*IMPORTERS, *FLOAT_IMPORTERS, *SIGNAL_OPERATORS})

_CONVERSIONS = ("QUANTIZE", "DEQUANTIZE")


def works_in_float(op: SourceOperator) -> bool:
    """Whether an operator reads or makes float32, conversions from and to integers aside."""
    numbers = (*op.inputs, *op.outputs)
    return op.kind not in _CONVERSIONS and any(
        op.tensors[number].dtype == "float32" for number in numbers if number is not None
    )


def importer_of(op: SourceOperator) -> SupportedOperator | None:
    """The row of the table that imports an operator; None if there is none.

    Operators that only move elements have one row for all types.
    """
    if name := custom_name(op.kind):
        return SIGNAL_OPERATORS.get(name)
    if works_in_float(op) and op.kind in FLOAT_IMPORTERS:
        return FLOAT_IMPORTERS[op.kind]
    return IMPORTERS.get(op.kind)
