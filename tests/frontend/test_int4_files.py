"""Files with weights of int4 by other people's tools (``make_int4_files.py`` has how)."""

from __future__ import annotations

from pathlib import Path

import pytest

import utvm_deploy
from utvm_deploy.base.errors import ModelError, UnsupportedOperator
from utvm_deploy.frontend.tflite import load_model

HERE = Path(__file__).resolve().parent
LAYERS = ("CONV_2D", "DEPTHWISE_CONV_2D", "FULLY_CONNECTED")


@pytest.mark.tools
@pytest.mark.parametrize("name", ["converter", "static", "static_ai16", "weight_only"])
def test_all_bytes_are_those_of_the_reference(name: str) -> None:
    path = HERE / f"int4_{name}.tflite"
    graph = load_model(path)
    layers = [one for one in graph.operators if one.kind in LAYERS]
    weights = [graph.tensors[one.inputs[1] or 0] for one in layers]
    is_float = {"converter": 0, "weight_only": 4}.get(name, 1)  # of the quantizer: depthwise
    assert sorted(one.dtype for one in weights) == is_float * ["float32"] + (4 - is_float) * [
        "int4"
    ]
    for board in ("host", "mps2_an500"):
        assert utvm_deploy.verify(path, board, samples=2).ok


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("dynamic", "the weights are int4, but activations are float32.*start from the float mode"),
        ("dynamic_blocks", "scales of blocks, .*; quantize the model with one scale for each chan"),
        ("int2", "is int2, which has no kernel; quantize it to 4 or 8 bits"),
    ],
)
def test_what_has_no_kernel_is_one_sentence(name: str, told: str) -> None:
    with pytest.raises((ModelError, UnsupportedOperator), match=told) as caught:
        load_model(HERE / f"int4_{name}.tflite")
    assert "\n" not in str(caught.value)


@pytest.mark.tools
@pytest.mark.parametrize("name", ["torchao_blocks", "torchao_dynamic"])
def test_files_of_torchao_are_float_models(name: str) -> None:
    """Their weights become the float32 that they mean. Torch computes the same."""
    pytest.importorskip("torchao", reason="torchao is missing (pip install 'utvm-deploy[torch]')")
    found = utvm_deploy.verify(HERE / f"int4_{name}.pt2", "host", samples=2)
    assert found.ok
