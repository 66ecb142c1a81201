"""LSTMs of float32, run after run, within their bound of the reference."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from float_writer import FloatWriter

import utvm_deploy
from utvm_deploy.base.errors import ModelError, UnsupportedOperator
from utvm_deploy.device import Device
from utvm_deploy.frontend.tflite import load_model
from utvm_deploy.graph.float_bounds import FLOAT_BOUNDS, outside
from utvm_deploy.oracle.reference import run_reference

KIND = "UNIDIRECTIONAL_SEQUENCE_LSTM"
RUNS = 4
#: Layers of the random models: in a usual run, and in the long one.
QUICK, LONG = 10, 200
LAYERS_OF_A_MODEL = 10


def lstm(
    m: FloatWriter,
    x: int,
    cells: int,
    *,
    seed: int = 1,
    time_major: bool = False,
    couples: bool = False,
    peeps: bool = False,
    norms: bool = False,
    outputs: int = 0,
    projection_bias: bool = True,
    clips: tuple[float, float] = (0.0, 0.0),
    weights_type: str = "float32",
) -> int:
    """UNIDIRECTIONAL_SEQUENCE_LSTM of random weights; ``outputs`` are those of a projection."""
    rng = np.random.default_rng(seed)
    outer, inner, inputs = m.tensors[x].shape
    batch, made = inner if time_major else outer, outputs or cells

    def constant(*shape: int) -> int:
        return m.constant(rng.normal(0, 0.5, shape).astype(np.float32))

    def weights(*shape: int) -> int:
        if weights_type == "float32":
            return constant(*shape)
        return m.constant(rng.integers(-127, 128, shape).astype(weights_type), 0.01)

    def vectors(count: int, *, are_there: bool) -> list[int]:
        return [constant(cells) if are_there else -1 for _ in range(count)]

    def state(width: int) -> int:
        number = m.tensor((batch, width), "float32")
        m.tensors[number].is_variable = True
        return number

    operands = [x, *(weights(cells, inputs) for _ in range(4))]
    operands += [weights(cells, made) for _ in range(4)]
    operands += vectors(3, are_there=peeps) + vectors(4, are_there=True)
    operands.append(weights(outputs, cells) if outputs else -1)
    operands.append(constant(outputs) if outputs and projection_bias else -1)
    operands += [state(made), state(cells), *vectors(4, are_there=norms)]
    for position in (1, 5, 9, 12, 20) if couples else ():
        operands[position] = -1
    fields = {
        "FusedActivationFunction": 4,
        "TimeMajor": time_major,
        "CellClip": clips[0],
        "ProjClip": clips[1],
    }
    out = m.tensor((outer, inner, made), "float32")
    m.operator(KIND, operands, [out], ("UnidirectionalSequenceLSTMOptions", fields))
    return out


def variants(m: FloatWriter, *, every: bool) -> None:
    """Coupled gates, peepholes, norms and projections, alone and together; both orders; clips.

    Without ``every``: of the first three, none and each two.
    """
    for seed, flags in enumerate(itertools.product((False, True), repeat=3), 20):
        couples, peeps, norms = flags
        if not every and sum(flags) % 2:
            continue
        x = m.input((2, 3, 5))
        m.output(lstm(m, x, 6, couples=couples, peeps=peeps, norms=norms, seed=seed))
        outputs = 4 if seed % 2 else 9
        m.output(
            lstm(m, x, 6, couples=couples, peeps=peeps, norms=norms, outputs=outputs, seed=seed)
        )
    x = m.input((3, 2, 5))
    m.output(lstm(m, x, 7, time_major=True, seed=40))
    m.output(lstm(m, x, 7, outputs=9, time_major=True, clips=(0.2, 0.1), seed=41))
    m.output(lstm(m, x, 3, outputs=2, projection_bias=False, seed=42))
    m.output(lstm(m, lstm(m, m.input((1, 4, 3)), 5, seed=43), 33, seed=44))


def random_layers(m: FloatWriter, rng: np.random.Generator) -> None:
    """Layers of any sizes and parts."""
    for _ in range(LAYERS_OF_A_MODEL):
        cells = int(rng.integers(1, 21))
        x = m.input([int(rng.integers(1, most)) for most in (4, 7, 25)])
        flags = ("time_major", "couples", "peeps", "norms", "projection_bias")
        chosen = {name: bool(rng.random() < 0.4) for name in flags}
        # Of one cell and 19 outputs, LiteRT overwrites the tensors of other operators.
        outputs = int(rng.integers(1, cells + 1)) if rng.random() < 0.5 else 0
        clips = [
            float(np.float32(rng.uniform(0.1, 2))) if rng.random() < 0.4 else 0.0 for _ in "ab"
        ]
        seed = int(rng.integers(1 << 31))
        m.output(
            lstm(m, x, cells, seed=seed, outputs=outputs, clips=(clips[0], clips[1]), **chosen)
        )


def check(m: FloatWriter, device: Device, path: Path) -> None:
    """Run a model several times, twice, and compare all outputs with the reference's."""
    m.save(path)
    rng = np.random.default_rng(15)
    shapes = [m.tensors[number].shape for number in m.inputs]
    samples = [[rng.normal(size=s).astype(np.float32) for s in shapes] for _ in range(RUNS)]
    expected = run_reference(path, samples).outputs
    assert len({outputs[0].tobytes() for outputs in expected}) == RUNS
    model = device.load(utvm_deploy.compile(path, device.board), into="ram")
    assert model.compiled.states
    for _ in range(2):
        for sample, outputs in zip(samples, expected, strict=True):
            got, _ = model.run(sample)
            for ours, theirs in zip(got, outputs, strict=True):
                assert not outside(FLOAT_BOUNDS[KIND], np.asarray(ours), theirs).any()
        model.reset_state()


@pytest.mark.spread(1)
def test_every_form_continues_from_run_to_run(device: Device, tmp_path: Path) -> None:
    m = FloatWriter()
    # GCC takes seconds for all of them: boards get fewer, of the same C.
    variants(m, every=device.board.is_host)
    check(m, device, tmp_path / "model.tflite")


def random_models(count: int) -> Iterator[FloatWriter]:
    for seed in range(count // LAYERS_OF_A_MODEL):
        m = FloatWriter()
        random_layers(m, np.random.default_rng(seed))
        yield m


@pytest.mark.tools
def test_random_layers(tmp_path: Path) -> None:
    with utvm_deploy.connect("host") as device:
        for number, m in enumerate(random_models(QUICK)):
            check(m, device, tmp_path / f"{number}.tflite")


@pytest.mark.soak
def test_many_random_layers(tmp_path: Path) -> None:
    with utvm_deploy.connect("host") as device:
        for number, m in enumerate(random_models(LONG)):
            check(m, device, tmp_path / f"{number}.tflite")


def refused(m: FloatWriter, tmp_path: Path, error: type[ModelError], match: str) -> None:
    with pytest.raises(error, match=match):
        load_model(m.save(tmp_path / "model.tflite"))


def test_hybrid_weights_are_refused(tmp_path: Path) -> None:
    m = FloatWriter()
    m.output(lstm(m, m.input((1, 2, 5)), 6, weights_type="int8"))
    refused(m, tmp_path, UnsupportedOperator, "start from the float model")


def test_other_activations_are_refused(tmp_path: Path) -> None:
    m = FloatWriter()
    m.output(lstm(m, m.input((1, 2, 5)), 6))
    m.operators[-1].options[1]["FusedActivationFunction"] = 1
    refused(m, tmp_path, UnsupportedOperator, "activation is not TANH")


def test_a_gate_without_its_bias(tmp_path: Path) -> None:
    m = FloatWriter()
    m.output(lstm(m, m.input((1, 2, 5)), 6))
    m.operators[-1].inputs[13] = -1
    refused(m, tmp_path, ModelError, "lacks the bias of a gate")
