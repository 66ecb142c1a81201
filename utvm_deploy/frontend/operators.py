"""TFLite operator -> our operator: the table of supported operators and their constraints.

An importer checks that the operator is a variant that the kernels compute exactly (element types,
ranks, quantization), resolves its padding and turns its fused activation into a clamp. Shapes are
checked afterwards, by ``graph.check``. Each module of importers has its part of the table.
"""

from __future__ import annotations

from collections.abc import Mapping

from utvm_deploy.frontend import (
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
from utvm_deploy.frontend.supported_operator import SupportedOperator

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
