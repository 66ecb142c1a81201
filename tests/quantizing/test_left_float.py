"""What stays float is what `utvm inspect` foretells, and never what no kernel of ours computes."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from float_writer import FloatWriter

import utvm_deploy
from utvm_deploy.frontend.tflite import load_model
from utvm_deploy.results.inspecting.quantizable import quantizable

KINDS = ("RELU", "EXP", "RSQRT", "SIN", "ABS", "DIV", "SQUARE", "HARD_SWISH", "FLOOR")


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    m = FloatWriter()
    x = m.input((1, 4))
    for kind in KINDS:
        operands = [x]
        if kind == "DIV":
            operands.append(m.constant(np.full((1, 4), 2, np.float32)))
        options = {"EXP": "ExpOptions", "ABS": "AbsOptions"}.get(kind)
        fused = {"FusedActivationFunction": 0}
        x = m.node(
            kind,
            operands,
            (1, 4),
            ("DivOptions", fused) if kind == "DIV" else options and (options, {}),
        )
    m.output(x)
    return m.save(tmp_path_factory.mktemp("model") / "net.tflite")


@pytest.mark.tools
@pytest.mark.parametrize("scheme", ["int8", "int16x8"])
def test_inspect_foretells_what_stays_float(model: Path, scheme: str) -> None:
    told = quantizable(load_model(model))
    assert told is not None and told.operators == len(KINDS)
    expected = told.float_int8 if scheme == "int8" else told.float_int16
    samples = np.random.default_rng(0).normal(0, 1, (64, 4)).astype(np.float32)
    done = utvm_deploy.quantize(model, samples, scheme=scheme)
    assert tuple(one.kind for one in done.float_operators) == expected
    assert {"SIN", "FLOOR"} <= set(expected)
