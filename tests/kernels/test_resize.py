"""RESIZE_BILINEAR and RESIZE_NEAREST_NEIGHBOR on emulated boards: no byte outside, none wrong."""

from __future__ import annotations

import itertools
from pathlib import Path

import numpy as np
import pytest
from fenced import fenced_device
from test_bounds import compare_behind_fence
from tflite_writer import ModelWriter

from utvm_deploy.frontend.tflite import load_model
from utvm_deploy.kernels.choose.lowering import lower

#: Rows and columns of the input and of the output.
SIZES = (((3, 4), (9, 12)), ((5, 6), (7, 9)), ((2, 7), (4, 14)), ((6, 9), (4, 5)))
CHANNELS = (6, 7, 16)


@pytest.mark.emulator
@pytest.mark.parametrize("on", ["mps2_an500", "mps2_an386"])
def test_images_are_the_reference(on: str, tmp_path: Path) -> None:
    model = ModelWriter()
    for kind, (image, size), channels in itertools.product(
        ("Bilinear", "NearestNeighbor"), SIZES, CHANNELS
    ):
        x = model.input((1, *image, channels), 0.05, -3)
        inputs = [x, model.constant(np.array(size, np.int32))]
        options = {"AlignCorners": channels == 6, "HalfPixelCenters": channels == 7}
        name = "RESIZE_BILINEAR" if kind == "Bilinear" else "RESIZE_NEAREST_NEIGHBOR"
        fields = (f"Resize{kind}Options", options)
        model.output(model.node(name, inputs, (1, *size, channels), fields))
    path = model.save(tmp_path / "model.tflite")
    graph = load_model(path)
    names = [lower(graph, one, "").kernel.name for one in graph.operators]
    assert any(one.endswith("_pixels") for one in names)
    assert any(one.startswith("resize_nearest") for one in names)
    with fenced_device(on) as rig:
        compare_behind_fence(rig, path, model, [(one, None) for one in graph.operators], graph)
