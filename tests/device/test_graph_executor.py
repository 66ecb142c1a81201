"""Models layer by layer from the host, with layers replaced, to find the one that is wrong."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

import numpy as np
import pytest

from utvm_deploy.base.errors import ModelError
from utvm_deploy.base.paths import data_dir
from utvm_deploy.boards.board import Board
from utvm_deploy.compiler.compiled.model import CompiledModel
from utvm_deploy.device import Device, DeviceModel
from utvm_deploy.frontend.tflite import load_model
from utvm_deploy.oracle.reference import run_reference
from utvm_deploy.oracle.samples import random_samples

Digits = Callable[[Board], CompiledModel]
DIGITS = data_dir("models") / "digits.tflite"


@pytest.fixture(scope="module")
def sample() -> np.ndarray:
    ((x,),) = random_samples(load_model(DIGITS), 1).inputs
    return x


@pytest.fixture(scope="module")
def reference(sample: np.ndarray) -> Mapping[int, np.ndarray]:
    return run_reference(DIGITS, [sample]).tensors[0]


def broken(compiled: CompiledModel, *layers: int) -> CompiledModel:
    """The model, with one wrong byte at the start of what these layers write."""
    patch = ""
    for index in layers:
        offset = compiled.layers[index].outputs[0].offset
        patch += f"    if (index == {index}) {{ arena[{offset}] ^= 1; }}\n"
    source = compiled.sources[f"{compiled.name}.c"]
    call = "        layers[index](arena);\n    }\n}\n"
    assert source.count(call) >= 1
    head, tail = source.split(call, 1)
    sources = {**compiled.sources, f"{compiled.name}.c": head + call[:-2] + patch + "}\n" + tail}
    return replace(compiled, sources=sources)


@pytest.mark.spread(1, among=("mps2_an500",))
def test_layers_can_be_replaced(
    device: Device, digits: Digits, sample: np.ndarray, reference: Mapping[int, np.ndarray]
) -> None:
    model = device.load(digits(device.board), into="ram")
    plain = model.run_layers(sample)
    same = model.run_layers(sample, replace={1: "reference"}, reference=reference)
    assert same[1].is_replaced and same[1].ticks == 0 and not same[0].is_replaced
    for a, b in zip(plain, same, strict=True):
        np.testing.assert_array_equal(a.outputs[0], b.outputs[0])
    # Another tensor there makes another answer.
    zeros = np.zeros_like(plain[-2].outputs[0])
    other = model.run_layers(sample, replace={len(plain) - 2: zeros})
    assert (other[-1].outputs[0] != plain[-1].outputs[0]).any()
    np.testing.assert_array_equal(model(sample), plain[-1].outputs[0])


def test_replacements_that_do_not_fit(host: Device, digits: Digits, sample: np.ndarray) -> None:
    model: DeviceModel = host.load(digits(host.board), into="ram")
    shape = model.compiled.layers[0].outputs[0].shape
    for given, reference, says in (
        ({99: np.zeros(1, np.int8)}, None, "no layer 99 to replace; its layers are 0 to"),
        ({0: "reference"}, None, "layer 0 .* give reference="),
        ({0: "reference"}, {}, "the model file has no tensor"),
        ({0: "other"}, None, "by 'reference' or by arrays, not 'other'"),
        ({0: np.zeros(3, np.int8)}, None, "the replacement of layer 0 .* has shape"),
        ({0: np.zeros(shape)}, None, "the replacement of layer 0 .* the array is float64"),
        ({0: [np.zeros(shape, np.int8)] * 2}, None, r"1 output\(s\), 2 given"),
    ):
        with pytest.raises(ModelError, match=says):
            model.run_layers(sample, replace=given, reference=reference)  # type: ignore[arg-type]


def test_unloaded_models_say_so(host: Device, digits: Digits) -> None:
    compiled = digits(host.board)
    model = host.load(compiled, into="ram")
    model.unload()
    with pytest.raises(ModelError, match="model digits was unloaded"):
        model(np.zeros(compiled.inputs[0].shape, np.int8))
    assert host.session.memory.free_bytes == host.session.memory.size
