"""Warns of weights that are NaN or infinite: the model is read, and its results are useless."""

from __future__ import annotations

import logging

import numpy as np

from utvm_deploy.graph.model import Graph
from utvm_deploy.graph.names import short_name

_log = logging.getLogger(__name__)


def warn_of_weights(graph: Graph, what: str) -> None:
    """Log a warning that names the first constant with NaN, or the first infinite weights.

    ``what`` is what the message calls the model. Infinite numbers that are only added or compared,
    as in the mask of attention, cause no warning.
    """
    for operator in graph.operators:
        for place, number in enumerate(operator.inputs):
            tensor = graph.tensors[number] if number is not None else None
            data = None if tensor is None else tensor.data
            if tensor is None or data is None or data.dtype.kind != "f":
                continue
            is_nan = bool(np.isnan(data).any())
            is_weight = place == 1 and operator.kind in _WEIGHTED
            if is_nan or (is_weight and not np.isfinite(data).all()):
                _log.warning(
                    "%s: the constant '%s' of operator %d (%s) holds %s, and so will the results; "
                    "train the model again, or repair the constant",
                    what,
                    short_name(tensor.name),
                    operator.sources[0],
                    operator.kind,
                    "NaN" if is_nan else "infinity",
                )
                return


_WEIGHTED = frozenset(
    ("BATCH_MATMUL", "CONV_2D", "DEPTHWISE_CONV_2D", "FULLY_CONNECTED", "TRANSPOSE_CONV")
)
