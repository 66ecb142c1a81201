"""Files whose batch is only known at runtime, as TensorFlow's converter writes them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from tflite_writer import ModelWriter

from utvm_deploy.base.errors import ModelError
from utvm_deploy.cli.main import main
from utvm_deploy.frontend.files import tflite_schema as schema
from utvm_deploy.frontend.tflite import load_model

pytestmark = pytest.mark.tools


def _dilated(batch: int) -> bytes:
    """A convolution over time with dilation 2: SPACE_TO_BATCH_ND, CONV_2D, BATCH_TO_SPACE_ND.

    The file has ``batch`` where there are two, and a signature that does not know it.
    """
    rng = np.random.default_rng(4)
    m = ModelWriter()
    x = m.input((1, 12, 4), 0.05, 0)
    blocks, edges = (m.constant(np.array(one, np.int32)) for one in ([2], [[2, 2]]))
    options = ("SpaceToBatchNDOptions", {})
    y = m.node("SPACE_TO_BATCH_ND", [x, blocks, edges], (2, 8, 4), options)
    image = m.tensor((2, 1, 8, 4), "int8", 0.05, 0)
    m.operator("EXPAND_DIMS", [y, m.constant(np.array(1, np.int32))], [image])
    weights = rng.integers(-99, 99, (6, 1, 3, 4), dtype=np.int8)
    y = m.conv2d(image, weights, np.zeros(6, np.int32), padding="VALID")
    row = m.tensor((2, 6, 6), "int8", 0.1, 0)
    m.operator("SQUEEZE", [y], [row], ("SqueezeOptions", {"SqueezeDims": [1]}))
    crops = m.constant(np.zeros((1, 2), np.int32))
    m.output(m.node("BATCH_TO_SPACE_ND", [row, blocks, crops], (1, 12, 6), options))
    model = schema.read_model(m.to_bytes())
    for tensor in model.subgraphs[0].tensors:
        if schema.constant(model, tensor) is None:
            tensor.shapeSignature = np.array([-1, *tensor.shape[1:]], np.int32)
            tensor.shape = np.array([min(batch, tensor.shape[0]), *tensor.shape[1:]], np.int32)
    return schema.model_bytes(model)


def test_batches_follow_from_the_operators(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "dilated.tflite"
    path.write_bytes(_dilated(1))
    graph = load_model(path)
    found = {graph.tensors[op.outputs[0]].shape[0] for op in graph.operators}
    assert found == {1, 2} and graph.tensors[graph.outputs[0]].shape == (1, 12, 6)
    assert main(["verify", str(path), "--board", "host", "--samples", "2"]) == 0
    assert "all equal" in capsys.readouterr().out


def test_a_known_batch_stays_as_the_file_has_it(tmp_path: Path) -> None:
    path = tmp_path / "wrong.tflite"
    model = schema.read_model(_dilated(1))
    for tensor in model.subgraphs[0].tensors:
        tensor.shapeSignature = None
    path.write_bytes(schema.model_bytes(model))
    with pytest.raises(ModelError, match="but the file says"):
        load_model(path)
