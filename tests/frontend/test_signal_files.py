"""Signal operators in files: their options, what is refused, and other custom operators."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from signal_cases import SignalCase, options_of, signal_cases

from utvm_deploy.base.errors import ModelError
from utvm_deploy.frontend.signals.options import read_options
from utvm_deploy.frontend.tflite import load_model
from utvm_deploy.graph.signals.attributes import SignalFramer

CASES = signal_cases()
#: Of two runs: each has one number, in no dimension.
NUMBERS = np.zeros(2, np.int16)


def changed(name: str, **options: int | bool) -> SignalCase:
    return replace(CASES[name], options={**CASES[name].options, **options})


def table(name: str, number: int, position: int, value: int) -> SignalCase:
    """A case with another number in one of its constants."""
    constants = [one.copy() for one in CASES[name].constants]
    constants[number][position] = value
    return replace(CASES[name], constants=constants)


@pytest.mark.parametrize(
    "options",
    [
        {"a": 1},
        {"a": -1, "b": 300, "c": -70_000, "d": 2**31 - 1},
        {"T": 7, "on": True, "off": False},
    ],
)
def test_options(options: dict[str, int]) -> None:
    assert read_options(options_of(options)) == options


def test_damaged_options_are_refused() -> None:
    data = options_of({"delay_length": 3, "on": True})
    for end in range(len(data)):
        with pytest.raises(ModelError):
            read_options(data[:end])
    rng = np.random.default_rng(1)
    for _ in range(2000):
        damaged = bytearray(data)
        damaged[rng.integers(len(data))] = rng.integers(256)
        try:
            found = read_options(bytes(damaged))
        except ModelError:
            continue
        assert all(isinstance(one, int) for one in found.values())


@pytest.mark.parametrize(
    ("case", "why"),
    [
        (changed("rfft int16 64", fft_length=66), "only even lengths from 4 on, whose half has no"),
        (changed("rfft int16 64", fft_length=2), "only even lengths from 4 on"),
        (changed("rfft int16 64", fft_length=32), "64 samples for a transform of 32"),
        (changed("window", shift=32), "its option shift is 32, not from 0 to 31"),
        (changed("energy", end_index=16), "its option end_index is 16, not from 0 to 15"),
        (changed("energy", start_index=16), "its option start_index is 16, not from 0 to 15"),
        (changed("framer 10 4 False", frame_step=3), "8 samples are not a multiple of its step 3"),
        (changed("framer 3 4 False", prefill=True), "frames of 3 samples and steps of 4"),
        (changed("overlap add int16", frame_step=9), "frames of 8 samples are shorter than its"),
        (changed("stacker 1 1 2", stacker_step=4), "its option stacker_step is 4, not from 1 to 3"),
        (changed("stacker 1 1 2", num_channels=4), "its option num_channels is 4, not from 8 to 8"),
        (table("filter bank", 2, 0, 15), "its channels use energies beyond the 17"),
        (table("filter bank", 3, 4, 16), "its channels use weights beyond the 17"),
        (replace(CASES["pcan"], constants=[np.zeros(99, np.int16)]), "its table has 99 gains"),
        (replace(CASES["log"], options={"output_scale": 1}), "lacks its option input_correction"),
        (replace(CASES["log"], options={}), "lacks its option output_scale"),
        (
            replace(CASES["delay 3"], outputs=[("int32", (2, 8))]),
            "is int32; TFLite Micro takes only int16",
        ),
        (
            replace(CASES["window"], constants=[]),
            "its inputs are 1 and its outputs 1, but this operator has 2 and 1",
        ),
        (
            replace(CASES["auto scale"], outputs=[("int16", (23,)), ("int32", ())]),
            r"computes the shape \(24,\), but the file says \(23,\)",
        ),
        *(
            (replace(CASES[name], inputs=[NUMBERS], **changes), "'tensor_0' has no dimension")
            for name, changes in (
                ("delay 3", {}),
                ("framer 10 4 False", {}),
                ("overlap add int16", {}),
                ("window", {"constants": [NUMBERS[:1]]}),
            )
        ),
        (
            replace(
                CASES["delay 3"], inputs=[np.zeros((1, 0), np.int16)], outputs=[("int16", (0,))]
            ),
            "has the dynamic or empty shape",
        ),
        (
            replace(
                changed("delay 3", delay_length=2**24),
                inputs=[np.zeros((1, 200, 8), np.int16)],
                outputs=[("int16", (200, 8))],
            ),
            "would keep 3,355,443,200 numbers from run to run; 67,108,864 are the most",
        ),
        (
            replace(CASES["delay 3"], kind="SignalUnknown"),
            "custom operators are not part of the format",
        ),
        (replace(CASES["delay 3"], kind="CUMSUM2"), "custom operators are not part of the format"),
    ],
)
def test_what_is_refused(case: SignalCase, why: str, tmp_path: Path) -> None:
    with pytest.raises(ModelError, match=why):
        load_model(case.save(tmp_path / "model.tflite"))


def test_state_is_part_of_the_graph(tmp_path: Path) -> None:
    graph = load_model(CASES["framer 10 4 False"].save(tmp_path / "model.tflite"))
    (operator,), ((before, after),) = graph.operators, graph.states
    assert operator.attributes == SignalFramer(size=10, step=4, prefill=False)
    assert (operator.inputs[-1], operator.outputs[-1]) == (before, after)
    # Eight samples of two rows, and a count.
    assert graph.tensors[before].shape == graph.tensors[after].shape == (17,)
