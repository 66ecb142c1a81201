"""The formulas of signal operators, compared with what TFLite Micro made."""

from __future__ import annotations

import importlib.metadata
import importlib.util
from collections.abc import Iterator, Mapping
from pathlib import Path

import numpy as np
import pytest
from signal_cases import SignalCase, front_end, signal_cases
from signal_vectors import MICRO, VECTORS, micro_outputs

from utvm_deploy.frontend.signals.importers import SIGNAL_OPERATORS
from utvm_deploy.frontend.tflite import load_model
from utvm_deploy.graph.model import Array
from utvm_deploy.graph.signals.attributes import SignalSpectrogram
from utvm_deploy.oracle.signals.formulas import computed
from utvm_deploy.oracle.with_custom import run_oracle

CASES = signal_cases()


@pytest.fixture(scope="module")
def vectors() -> Mapping[str, Array]:
    with np.load(VECTORS) as file:
        return dict(file)


def test_micro_has_made_vectors_of_each_of_its_operators() -> None:
    signals = {kind for kind in SIGNAL_OPERATORS if kind.startswith("Signal")}
    assert {case.kind for case in CASES.values()} == signals - {"SignalSpectrogram"}


@pytest.mark.parametrize("is_power", [False, True])
def test_spectrogram_and_numpy(is_power: bool) -> None:
    rng = np.random.default_rng(4)
    x, window = (rng.standard_normal(size).astype(np.float32) for size in ((2, 100), (30,)))
    (made,) = computed("SignalSpectrogram", SignalSpectrogram(36, 30, 11, is_power), [x, window])
    frames = np.stack([x[:, at : at + 30] for at in range(0, 71, 11)], axis=1).astype(np.float64)
    exact = np.fft.rfft(frames * window, 36)
    if is_power:
        assert made.shape == (2, 7, 19)
        np.testing.assert_allclose(made, np.abs(exact) ** 2, rtol=1e-5, atol=1e-4)
    else:
        pairs = np.stack([exact.real, exact.imag], axis=-1).reshape(2, 7, 38)
        np.testing.assert_allclose(made, pairs, atol=8 * np.log2(36) * 2.0**-24 * 40)


@pytest.mark.parametrize("name", CASES)
def test_formula(name: str, vectors: Mapping[str, Array], tmp_path: Path) -> None:
    case = CASES[name]
    for run, made in enumerate(_runs(case, tmp_path)):
        for number in case.counting(vectors, name, run):
            expected = vectors[f"{name}/{number}"][run]
            assert (made[number].dtype, made[number].shape) == (expected.dtype, expected.shape)
            assert made[number].tobytes() == expected.tobytes(), f"run {run}, output {number}"


def _runs(case: SignalCase, folder: Path) -> Iterator[list[Array]]:
    """The outputs of each run; the state follows from run to run."""
    graph = load_model(case.save(folder / "model.tflite"))
    (operator,) = graph.operators
    states = [np.zeros(graph.tensors[n].shape, graph.tensors[n].dtype) for n, _ in graph.states]
    for sample in zip(*case.inputs, strict=True):
        made = computed(operator.kind, operator.attributes, [*sample, *case.constants, *states])
        states = list(made[len(case.outputs) :])
        yield list(made[: len(case.outputs)])


@pytest.mark.tools
def test_front_end(vectors: Mapping[str, Array], tmp_path: Path) -> None:
    path, sound = front_end(tmp_path / "front.tflite")
    run = run_oracle(path, sound)
    assert run.reference.endswith("and our formulas of TFLite Micro's signal library")
    stacks, valid = vectors["front end/0"], vectors["front end/1"]
    assert [bool(outputs[1]) for outputs in run.outputs] == valid.tolist()
    assert 0 < valid.sum() < len(sound)
    for (stack, _), expected, counts in zip(run.outputs, stacks, valid, strict=True):
        assert stack.tolist() == (expected * counts).tolist()
    # Each sample for itself: the frames of the first one are there, and no stack is complete.
    apart = run_oracle(path, sound[:2], outputs_only=True, apart=1)
    assert [bool(outputs[1]) for outputs in apart.outputs] == [False] * 2


@pytest.mark.tools
def test_vectors_are_those_of_micro(vectors: Mapping[str, Array]) -> None:
    if importlib.util.find_spec("tflite_micro") is None:
        pytest.skip("TFLite Micro is not installed (pip install '.[micro]')")
    assert importlib.metadata.version("tflite-micro") == MICRO
    found = micro_outputs()
    assert set(found) == set(vectors)
    for name, expected in vectors.items():
        case, number = name.rsplit("/", 1)
        if (valid := vectors.get(f"{case}/1")) is not None and valid.dtype == bool:
            expected, found[name] = expected[valid], found[name][valid]
        assert found[name].tobytes() == expected.tobytes(), f"{case}, output {number}"
