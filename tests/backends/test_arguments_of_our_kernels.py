"""What `docs/guides/backends.md` says of the arguments of our kernels holds for a real model."""

from __future__ import annotations

import numpy as np

from utvm_deploy.backends import Match
from utvm_deploy.base.paths import data_dir
from utvm_deploy.frontend.tflite import load_model


def test_the_bias_has_the_input_zero_point_in_it() -> None:
    graph = load_model(data_dir("models") / "digits.tflite")
    kinds = set()
    for operator in graph.operators:
        if operator.kind not in ("CONV_2D", "DEPTHWISE_CONV_2D", "FULLY_CONNECTED"):
            continue
        match = Match(graph, (operator,), "cortex-m7")
        weights = match.first.constant(1).astype(np.int64)
        axis = (0, 1, 2) if operator.kind == "DEPTHWISE_CONV_2D" else None
        sums = weights.sum(axis) if axis else weights.reshape(len(weights), -1).sum(1)
        zero_point = match.first.ends[0].zero_point
        expected = match.first.bias(len(sums)) - zero_point * sums
        np.testing.assert_array_equal(match.our_tables["bias"], expected)
        kinds.add((operator.kind, zero_point != 0))
    assert any(moved for _, moved in kinds)
