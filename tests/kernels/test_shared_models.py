"""Every layer of the MLPerf Tiny models, against the reference."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from kernel_harness import check_model

from utvm_deploy.frontend.tflite import load_model


@pytest.mark.parametrize(
    "name", ["ad01_int8", "kws_ref_model", "pretrainedResnet_quant", "vww_96_int8"]
)
def test_every_layer_is_byte_exact(name: str, shared_models: Path, tmp_path: Path) -> None:
    path = shared_models / f"{name}.tflite"
    graph = load_model(path)
    rng = np.random.default_rng(7)
    inputs = [
        [rng.integers(-128, 128, graph.tensors[i].shape, dtype=np.int8) for i in graph.inputs]
        for _ in range(2)
    ]
    assert check_model(path, inputs, tmp_path, core="cortex-m7") == len(graph.operators)
