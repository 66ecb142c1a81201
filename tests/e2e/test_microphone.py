"""A microphone's whole way: WAV files, log-mel columns, a DS-CNN as a stream, and its answers.

The files hold sounds of four kinds. The front end makes a column of 80 samples, and the classifier
takes two columns a run. Its last layer is fitted to some of the files.
"""

from __future__ import annotations

import wave
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
from numpy.lib.stride_tricks import sliding_window_view
from signal_cases import features
from stream_nets import random_net
from tflite_writer import ModelWriter

import utvm_deploy
from utvm_deploy.device import Device
from utvm_deploy.frontend.files.given_shapes import Chosen, Stream, given_only
from utvm_deploy.oracle.with_custom import run_oracle

KINDS = ("tone", "chirp", "noise", "voice")
RATE, STEP, COLUMNS, WINDOW, HOP = 8000, 80, 48, 32, 2
CHANNELS = 12
FILES, FITTED = 4, 3  # of each kind, and those that the last layer is fitted to


def sound(kind: str, rng: np.random.Generator) -> np.ndarray:
    """The samples of ``COLUMNS`` columns."""
    t = np.arange(COLUMNS * STEP) / RATE
    low = rng.uniform(300, 900)
    if kind == "tone":
        made = np.sin(2 * np.pi * low * t)
    elif kind == "chirp":
        made = np.sin(2 * np.pi * (low * t + rng.uniform(1500, 2500) * t**2))
    elif kind == "noise":
        made = rng.uniform(-1, 1, len(t))
    else:  # pulses of a voice, which two formants let ring
        pulses = (np.diff(np.floor(rng.uniform(90, 140) * t), prepend=0) > 0).astype(float)
        ring = np.arange(200) / RATE
        formants = (rng.uniform(500, 800), rng.uniform(1200, 2000))
        rings = sum(np.sin(2 * np.pi * f * ring) for f in formants) * np.exp(-60 * ring)
        made = np.convolve(pulses, rings)[: len(t)]
    return np.round(made / np.abs(made).max() * rng.uniform(4000, 9000)).astype(np.int16)


def written(path: Path, samples: np.ndarray) -> Path:
    with wave.open(str(path), "wb") as file:
        file.setnchannels(1)
        file.setsampwidth(2)
        file.setframerate(RATE)
        file.writeframes(samples.astype("<i2").tobytes())
    return path


def heard(path: Path) -> list[np.ndarray]:
    """What a microphone gives of a file: ``STEP`` samples at a time."""
    with wave.open(str(path), "rb") as file:
        samples = np.frombuffer(file.readframes(file.getnframes()), "<i2").astype(np.int16)
    return np.split(samples, COLUMNS)


def front_end(path: Path) -> Path:
    m = ModelWriter()
    x = features(m, np.random.default_rng(3))
    m.tensors[x].scales, m.tensors[x].zero_points = (1.0,), (0,)
    m.output(m.reshape(m.quantize(x, scale=80, zero_point=-128), (1, 1, 7, 1)))
    return m.save(path)


def classifier(path: Path, columns: int, head: tuple[np.ndarray, np.ndarray] | None) -> Path:
    """A DS-CNN; without a head, its output is what that would take."""
    m, rng = ModelWriter(), np.random.default_rng(4)

    def layer(x: int, taps: tuple[int, int], *, deep: bool = False, stride: int = 1) -> int:
        channels = m.tensors[x].shape[3]
        shape = (1, *taps, channels) if deep else (CHANNELS, *taps, channels)
        weights, bias = rng.integers(-90, 91, shape), rng.integers(-900, 900, CHANNELS)
        write = m.depthwise_conv2d if deep else m.conv2d
        scale = {"weight_scale": 0.01, "scale": 0.1 if m.tensors[x].scales[0] < 9 else 25}
        return write(x, weights, bias, **scale, zero_point=-128, activation="RELU", stride=stride)

    x = m.input((1, columns, 7, 1), scale=80, zero_point=-128)
    x = layer(x, (6, 3), stride=2)
    for _ in range(2):
        x = layer(layer(x, (3, 3), deep=True), (1, 1))
    if head is not None:
        x = m.average_pool(x, tuple(m.tensors[x].shape[1:3]))
        x = m.reshape(x, (1, CHANNELS))
        x = m.softmax(m.fully_connected(x, *head, weight_scale=2e-4, scale=0.05))
    m.output(x)
    return m.save(path)


def fitted(pooled: np.ndarray, kinds: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The weights and biases that tell kinds by the means of channels, by least squares."""
    wanted = np.where(kinds.reshape(-1, 1) == np.arange(len(KINDS)), 3.0, -3.0)
    steps = np.hstack([pooled + 128, np.ones((len(pooled), 1))])
    found = np.linalg.solve(steps.T @ steps + 4 * np.eye(steps.shape[1]), steps.T @ wanted)
    found = np.round(found / (2e-4 * 25))
    return np.clip(found[:-1].T, -127, 127), found[-1]


@dataclass(frozen=True)
class Story:
    front: Path
    classifier: Path
    sounds: list[list[np.ndarray]]  # of each file
    columns: np.ndarray  # of each file, by the reference
    answers: np.ndarray  # of each run of the stream for each file, by the reference


@pytest.fixture(scope="module")
def story(tmp_path_factory: pytest.TempPathFactory) -> Story:
    folder, rng = tmp_path_factory.mktemp("microphone"), np.random.default_rng(8)
    sounds = [
        heard(written(folder / f"{kind}{i}.wav", sound(kind, rng)))
        for kind in KINDS
        for i in range(FILES)
    ]
    front = front_end(folder / "front.tflite")
    made = run_oracle(
        front, [[part] for one in sounds for part in one], outputs_only=True, apart=COLUMNS
    )
    columns = np.concatenate([one[0] for one in made.outputs], 1).reshape(-1, 1, COLUMNS, 7, 1)
    trunk = classifier(folder / "trunk.tflite", COLUMNS, None)
    deep = np.stack([one[0][0] for one in run_oracle(trunk, list(columns)).outputs])
    pooled = np.round(sliding_window_view(deep[:, 3:-3], WINDOW // 2, axis=1).mean((2, 4)))
    kinds = np.repeat(np.arange(len(KINDS)), FILES * pooled.shape[1])
    is_fitted = np.arange(len(pooled)) % FILES < FITTED
    head = fitted(
        pooled[is_fitted].reshape(-1, CHANNELS), kinds.reshape(pooled.shape[:2])[is_fitted]
    )
    whole = classifier(folder / "classifier.tflite", WINDOW, head)
    runs = [[part] for one in columns for part in np.split(one, COLUMNS // HOP, 1)]
    with given_only(Chosen({}, stream=Stream(HOP))):
        found = run_oracle(whole, runs, outputs_only=True, apart=COLUMNS // HOP).outputs
    answers = np.stack([one[0] for one in found]).reshape(len(sounds), -1, len(KINDS))
    return Story(front, whole, sounds, columns, answers)


@pytest.mark.slow
def test_the_last_answers_are_right(story: Story) -> None:
    wanted = np.repeat(np.arange(len(KINDS)), FILES)
    assert (story.answers[:, -1].argmax(1) == wanted).mean() >= 0.8


@pytest.mark.spread(1, among=("mps2_an500",))
@pytest.mark.parametrize("files", [(FITTED, 2 * FILES - 1)])
def test_what_a_board_hears(files: tuple[int, ...], story: Story, device: Device) -> None:
    """Its columns and answers equal those of the reference, run by run."""
    front = device.load(utvm_deploy.compile(story.front, device.board))
    columns = []
    for number in files:
        front.reset_state()
        made = [front.run([part])[0][0] for part in story.sounds[number]]
        columns.append(np.concatenate(made, axis=1))
        assert columns[-1].tobytes() == story.columns[number].tobytes()
    stream = device.load(utvm_deploy.compile(story.classifier, device.board, stream=HOP))
    for number, one in zip(files, columns, strict=True):
        stream.reset_state()
        answers = [stream.run([part])[0][0] for part in np.split(one, COLUMNS // HOP, 1)]
        assert np.concatenate(answers).tobytes() == story.answers[number].tobytes()


@pytest.mark.spread(1, among=("mps2_an500", "qemu_rv32imc"))
@pytest.mark.parametrize("seed", [5, 17])
def test_delays_and_padding_before_a_recording(seed: int, device: Device, tmp_path: Path) -> None:
    """All layers of nets with delays, run after run, the first of which find padding."""
    path = tmp_path / "net.tflite"
    path.write_bytes(random_net(seed, 48))
    found = utvm_deploy.verify(path, device, samples=3, stream=16)
    assert found.ok
