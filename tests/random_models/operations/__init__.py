"""One generator for each operator: the table that random models are made from."""

from __future__ import annotations

from collections.abc import Mapping

from random_models.operations import (
    blocks,
    booleans,
    elementwise,
    movement,
    products,
    recurrent,
    reductions,
    variables,
    windows,
)
from random_models.operations.operation import Operation

#: TFLite's name -> how to think of one and how to write it. Operators that are not imported yet may
#: stand here already: models are made of what is in IMPORTERS.
OPERATIONS: Mapping[str, Operation] = {
    **windows.OPERATIONS,
    **products.OPERATIONS,
    **elementwise.OPERATIONS,
    **movement.OPERATIONS,
    **blocks.OPERATIONS,
    **reductions.OPERATIONS,
    **recurrent.OPERATIONS,
    **booleans.OPERATIONS,
    **variables.OPERATIONS,
}

#: Operators that are imported but have no generator yet, and why.
PENDING: Mapping[str, str] = {}
