"""The shadow: operators of a quantized model in float32, from the same inputs."""

from __future__ import annotations

from dataclasses import asdict, replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from small_models import build_model, sample_inputs
from tflite_writer import ModelWriter

from utvm_deploy.cli.main import main
from utvm_deploy.oracle.allowances import ALLOWANCES, NO_SHADOW, STEPS, allowed_steps, no_shadow
from utvm_deploy.oracle.reference import ReferenceRun, run_reference
from utvm_deploy.oracle.shadow import FloatGap, Shadow, loaded, saved
from utvm_deploy.results.verifying.on_board import Verification
from utvm_deploy.results.verifying.summary import verification_summary


def _shadowed(m: ModelWriter, folder: Path) -> ReferenceRun:
    samples = [sample_inputs(m, seed) for seed in range(2)]
    return run_reference(m.save(folder / "model.tflite"), samples, with_shadow=True)


def _negated(zero_point: int) -> ModelWriter:
    """LiteRT's integer kernel of NEG ignores the zero point."""
    m = ModelWriter()
    x = m.input((1, 6), 0.5, zero_point)
    m.output(m.node("NEG", [m.relu(x, scale=0.5, zero_point=zero_point)], (1, 6)))
    return m


@pytest.mark.parametrize("name", ["branches", "softmax", "two_inputs"])
def test_layers_are_near_float(name: str, tmp_path: Path) -> None:
    m = build_model(name)
    shadow = _shadowed(m, tmp_path).shadow
    assert shadow is not None
    assert (shadow.compared, shadow.gaps) == (len(m.operators), ())


def test_weights_by_channel_and_states(tmp_path: Path) -> None:
    m = ModelWriter()
    rng = np.random.default_rng(5)
    x = m.input((1, 5, 5, 3), 0.05, -7)
    weights = rng.integers(-127, 128, (4, 3, 3, 3)).astype(np.int8)
    bias = rng.integers(-900, 900, 4).astype(np.int32)
    scales = [0.01, 0.002, 0.03, 0.005]
    y = m.conv2d(x, weights, bias, weight_scale=scales, scale=0.2, zero_point=3)
    m.output(y)
    shadow = _shadowed(m, tmp_path).shadow
    assert shadow is not None and (shadow.compared, shadow.gaps) == (1, ())


def test_a_condition_that_is_constant(tmp_path: Path) -> None:
    m = ModelWriter()
    x, made = m.input((1, 4), 0.05, 3), m.tensor((1, 4), "int8", 0.05, 3)
    condition = m.constant(np.array([[True, False, True, True]]))
    low = m.constant(np.array([-128], np.int8), 0.05, 3)
    m.operator("SELECT_V2", [condition, x, low], [made], ("SelectV2Options", {}))
    m.output(made)
    shadow = _shadowed(m, tmp_path).shadow
    assert shadow is not None and (shadow.compared, shadow.gaps) == (1, ())


@pytest.mark.parametrize(("count", "end"), [(1, "-1"), (3, "-1; further gaps: 2")])
def test_the_worst_gap_is_told(count: int, end: str) -> None:
    gap = FloatGap("NEG", "x", 2, 9.0, STEPS, 0, (0, 1), 1.0, -1.0)
    made = SimpleNamespace(shadow=Shadow(count, {}, (gap,) * count))
    told = Verification.float_gap.fget(made)  # type: ignore[attr-defined]
    assert told.startswith("FLOAT GAP: NEG 'x' is 9 steps") and told.endswith(end)


def test_a_kernel_that_is_wrong_everywhere(tmp_path: Path) -> None:
    shadow = _shadowed(_negated(20), tmp_path).shadow
    assert shadow is not None and shadow.compared == 2
    (gap,) = shadow.gaps
    assert (gap.operator, gap.tensor, gap.allowed) == ("NEG", 2, STEPS)
    assert gap.steps > 2 and abs(gap.truth - gap.in_float) > 1
    near = _shadowed(_negated(0), tmp_path).shadow
    assert near is not None and near.gaps == ()


def test_what_has_no_shadow_is_counted(tmp_path: Path) -> None:
    m = ModelWriter()
    x = m.input((1, 4), 0.1, 0)
    m.output(m.node("BITWISE_XOR", [x, m.relu(x)], (1, 4)))
    shadow = _shadowed(m, tmp_path).shadow
    assert shadow is not None and shadow.compared == 1
    assert shadow.skipped == {f"BITWISE_XOR: {NO_SHADOW['BITWISE_XOR']}": 1}


def test_a_float_model_and_no_question_have_no_shadow(tmp_path: Path) -> None:
    m = build_model("softmax")
    assert run_reference(m.save(tmp_path / "model.tflite"), [sample_inputs(m, 0)]).shadow is None


def test_allowances() -> None:
    assert allowed_steps("ADD", "int8", (1, 4)) == STEPS
    assert allowed_steps("SOFTMAX", "int8", (1, 10)) == STEPS
    assert allowed_steps("SOFTMAX", "int16", (1, 10)) == STEPS + 22
    assert allowed_steps("RESIZE_BILINEAR", "int8", (1, 2, 2, 1)) < 3.1
    assert no_shadow("EXP", "int16") and not no_shadow("EXP", "int8")
    assert all(one.reason for one in ALLOWANCES)


def test_verify_puts_a_gap_first(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = str(_negated(20).save(tmp_path / "model.tflite"))
    argv = ["verify", path, "--board", "host", "--samples", "2", "--allow-float-gap"]
    assert main(argv) == 0
    first, second = capsys.readouterr().out.splitlines()[:2]
    assert first.startswith("FLOAT GAP: NEG 'tensor_2' is ") and "rounding explains 2" in first
    assert "all equal to" in second


def test_a_gap_is_not_ok_unless_it_is_allowed() -> None:
    gap = FloatGap("NEG", "n", 2, 40.0, STEPS, 0, (0, 1), 3.0, -1.0)
    shadow = Shadow(2, {"CAST: why": 1}, (gap, replace(gap, name="m", steps=3.0)))
    found = Verification("host", "m", "r", "random", 1, 6, 6, (), False, (), shadow=shadow)
    assert found.is_right and not found.ok
    assert replace(found, allows_float_gap=True).ok
    assert found.float_gap is not None and "'n' is 40 steps" in found.float_gap
    assert found.float_gap.endswith("; further gaps: 1")
    assert found.headline.startswith("FLOAT GAP: NEG 'n'")
    assert verification_summary(found)["shadow"] == asdict(shadow)
    assert loaded(saved(shadow)) == shadow
