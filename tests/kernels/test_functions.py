"""Functions of every byte, at many scales, against the reference."""

from __future__ import annotations

import itertools
from pathlib import Path

import numpy as np
import pytest
from kernel_harness import check_model
from tflite_writer import ModelWriter

from utvm_deploy.base.errors import UnsupportedOperator
from utvm_deploy.frontend.tflite import load_model

EVERY = np.arange(-128, 128, dtype=np.int8)
SCALES = (0.0003, 0.004, 1 / 128, 0.0235, 0.05, 0.11, 0.6)


def _check(m: ModelWriter, tmp_path: Path) -> None:
    path = m.save(tmp_path / "model.tflite")
    count = len(m.inputs)
    assert check_model(path, [[EVERY] * count], tmp_path) == count


@pytest.mark.parametrize("approximates", [False, True])
def test_gelu(approximates: bool, tmp_path: Path) -> None:
    m = ModelWriter()
    options = ("GeluOptions", {"Approximate": approximates})
    for scale, zero_point, factor in itertools.product(SCALES, (-128, -3, 127), (0.5, 1.0)):
        x = m.input((256,), scale, zero_point)
        m.output(m.node("GELU", [x], (256,), options, scale=scale * factor, zero_point=-11))
    _check(m, tmp_path)


def test_elu(tmp_path: Path) -> None:
    m = ModelWriter()
    for scale, zero_point, factor in itertools.product(SCALES, (-128, -3, 127), (0.5, 1.0)):
        x = m.input((256,), scale, zero_point)
        m.output(m.node("ELU", [x], (256,), scale=scale * factor, zero_point=-11))
    _check(m, tmp_path)


def test_exp_and_log(tmp_path: Path) -> None:
    m = ModelWriter()
    for scale, zero_point in itertools.product(SCALES, (-128, 0, 127)):
        x = m.input((256,), scale, zero_point)
        for factor in (1.0, 0.02):
            largest = scale * (127 - zero_point)
            made = float(np.exp(min(largest, 80))) * factor / 255
            if largest < 80:
                m.output(
                    m.node("EXP", [x], (256,), ("ExpOptions", {}), scale=made, zero_point=-128)
                )
        m.output(m.node("LOG", [x], (256,), scale=0.05, zero_point=30))
    path = m.save(tmp_path / "model.tflite")
    assert check_model(path, [[EVERY] * len(m.inputs)], tmp_path) == len(m.operators)


def test_roots(tmp_path: Path) -> None:
    m = ModelWriter()
    for scale, factor in itertools.product((*SCALES, 3.7, 900.0), (0.1, 1.0, 1.7)):
        x = m.input((256,), scale, -128)
        made = float(np.sqrt(scale * 255)) / 255 * factor
        m.output(m.node("SQRT", [x], (256,), scale=made, zero_point=-128))
        made = factor / float(np.sqrt(scale * 3)) / 255
        m.output(m.node("RSQRT", [x], (256,), scale=made, zero_point=-110))
    path = m.save(tmp_path / "model.tflite")
    assert check_model(path, [[EVERY] * len(m.inputs)], tmp_path) == 2 * len(m.inputs)


@pytest.mark.parametrize(
    ("kind", "scales", "zero_point", "why"),
    [
        ("ELU", (1.0, 1e-10), 0, "2\\*\\*31"),
        ("EXP", (1.0, 0.1), 0, "2\\*\\*31"),
        ("SQRT", (0.1, 0.1), -127, "negative"),
        ("RSQRT", (0.1, 0.1), 0, "negative"),
        ("RSQRT", (1e6, 1e3), -128, "shift"),
        ("RSQRT", (1e-9, 1e-5), -128, "2\\*\\*31"),
        ("LOG", (1e-9, 1e-9), 0, "2\\*\\*31"),
    ],
)
def test_what_the_reference_leaves_open_is_refused(
    kind: str, scales: tuple[float, float], zero_point: int, why: str, tmp_path: Path
) -> None:
    m = ModelWriter()
    x = m.input((4,), scales[0], zero_point)
    m.output(m.node(kind, [x], (4,), scale=scales[1], zero_point=0))
    with pytest.raises(UnsupportedOperator, match=why):
        load_model(m.save(tmp_path / "model.tflite"))
