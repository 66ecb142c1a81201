"""Layers of which most weights are zeros: all forms, odd shapes, against the reference."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from kernel_harness import check
from tflite_writer import ModelWriter

from utvm_deploy.frontend.tflite import load_model
from utvm_deploy.kernels.choose.lowering import lower
from utvm_deploy.kernels.choose.space import space
from utvm_deploy.kernels.native.sparse.packing import FORMS

CORES = ("generic", "cortex-m0plus", "cortex-m7", "rv32imc_zve32x")


def pruned(
    rng: np.random.Generator, shape: tuple[int, int], zeros: float, block: int = 1
) -> object:
    """Weights in which whole blocks of neighbours are zeros."""
    outputs, inputs = shape
    values = rng.integers(-128, 128, shape).astype(np.int8)
    is_kept = rng.random((outputs, -(-inputs // block))) >= zeros
    return values * np.repeat(is_kept, block, axis=1)[:, :inputs].astype(np.int8)


def made() -> ModelWriter:
    """Dense and pointwise layers of odd sizes; rows without any weight, and far blocks."""
    rng = np.random.default_rng(7)
    m = ModelWriter()

    def scales(channels: int) -> list[float]:
        return [float(one) for one in rng.uniform(0.01, 0.1, channels).astype(np.float32)]

    def bias(channels: int) -> np.ndarray:
        return rng.integers(-900, 900, channels).astype(np.int32)

    dense = [
        ((1, 128), 40, 0.9, 4),
        ((3, 75), 23, 0.7, 1),
        ((2, 1300), 5, 0.999, 4),
        ((1, 700), 6, 0.995, 1),
        ((1, 96), 50, 0.85, 2),
        ((1, 512), 3, 1.0, 4),
    ]
    for (rows, inputs), outputs, zeros, block in dense:
        values = pruned(rng, (outputs, inputs), zeros, block)
        for w in (scales(outputs), 0.02):
            x = m.input((rows, inputs), scale=0.05, zero_point=7)
            y = m.fully_connected(x, values, bias(outputs), weight_scale=w, scale=0.5)
            m.output(y)
    for (rows, columns, inputs), outputs, zeros, block in [
        ((5, 3, 64), 32, 0.9, 4),
        ((3, 3, 33), 41, 0.7, 1),
        ((1, 1, 128), 17, 0.95, 1),
        ((2, 7, 68), 19, 0.9, 4),
    ]:
        values = pruned(rng, (outputs, inputs), zeros, block).reshape(outputs, 1, 1, inputs)
        x = m.input((1, rows, columns, inputs), scale=0.05, zero_point=-9)
        given = {"scale": 0.3, "zero_point": -4, "weight_scale": scales(outputs)}
        m.output(m.conv2d(x, values, bias(outputs), activation="RELU", **given))
    return m


@pytest.mark.tools
@pytest.mark.parametrize("core", CORES)
def test_bytes_are_those_of_the_reference(core: str, tmp_path: Path) -> None:
    assert check(made(), tmp_path, core=core, samples=2) == len(made().operators)


@pytest.mark.tools
@pytest.mark.parametrize("form", FORMS)
def test_each_form(form: str, tmp_path: Path) -> None:
    check(made(), tmp_path, core="cortex-m7", family=f"sparse form={form}", samples=2)


def test_all_layers_are_packed(tmp_path: Path) -> None:
    graph = load_model(made().save(tmp_path / "model.tflite"))
    assert {lower(graph, one, "cortex-m7").family for one in graph.operators} == {"sparse"}
    for one in graph.operators:
        listed = space(graph, one, "cortex-m7")
        assert listed[0].family == "sparse" and len({one.family for one in listed}) == 3
