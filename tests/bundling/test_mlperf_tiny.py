"""Firmware for MLPerf Tiny: built as its README says, and measured as the consortium's runner does.

``Runner`` sends what ``device_under_test.py`` of mlcommons/tiny's runner sends, and matches what
its ``script.py`` matches. The runner itself was tried by benchmarks/mlperf_tiny/run.py.
"""

from __future__ import annotations

import re
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from tflite_writer import ModelWriter

import utvm_deploy
from utvm_deploy.base.errors import BundleError
from utvm_deploy.base.paths import data_dir
from utvm_deploy.boards.board import load_board
from utvm_deploy.device.probe.running import RunningBoard, start
from utvm_deploy.oracle.reference import run_reference
from utvm_deploy.project import Image

DIGITS = data_dir("models") / "digits.tflite"
TIMEOUT_S = 120.0
_CHUNK = 31  # bytes of input in a command


class Runner:
    """The other end of the line."""

    def __init__(self, running: RunningBoard) -> None:
        self._running = running
        self.first = self._answer()

    def send(self, command: str) -> list[str]:
        """The lines of the answer, without the last one."""
        self._running.stream.write(f"{command}%".encode(), TIMEOUT_S)
        return self._answer()

    def load(self, data: bytes) -> list[str]:
        self.send(f"db load {len(data)}")
        answer = []
        for at in range(0, len(data), _CHUNK):
            answer = self.send(f"db {data[at : at + _CHUNK].hex()}")
        return answer

    def infer(self, count: int, warmups: int) -> tuple[list[float], int]:
        """The results, and the microseconds of all runs."""
        lines = self.send(f"infer {count} {warmups}")
        laps = [int(found[1]) for one in lines if (found := re.match(r"^m-lap-us-([0-9]+)$", one))]
        found = [found[1] for one in lines if (found := re.match(r"^m-results-\[([^]]+)\]$", one))]
        return [float(one) for one in found[0].split(",")], laps[1] - laps[0]

    def _answer(self) -> list[str]:
        text, deadline = "", time.monotonic() + TIMEOUT_S
        while not text.endswith("m-ready\r\n"):
            assert time.monotonic() < deadline, text
            text += self._running.stream.read(4096, 0.1).decode()
        return text.split("\r\n")[:-2]


def autoencoder(folder: Path) -> Path:
    """As AD of MLPerf Tiny: the outputs are to be equal to the inputs."""
    rng = np.random.default_rng(3)
    m = ModelWriter()
    x = m.input((1, 24), scale=0.39, zero_point=19)
    for width, inputs in ((8, 24), (24, 8)):
        weights = rng.integers(-127, 128, (width, inputs), dtype=np.int8)
        x = m.fully_connected(x, weights, np.zeros(width, np.int32), scale=0.7, zero_point=-5)
    m.output(x)
    return m.save(folder / "auto.tflite")


def built(model: Path, board: str, benchmark: str, folder: Path) -> Path:
    """The ELF file, by the commands of the bundle's README."""
    bundle = folder / "bundle"
    utvm_deploy.bundle(
        model, board, bundle, format="mlperf-tiny", benchmark=benchmark, latency=False
    )
    utvm_deploy.bundling.check_bundle(bundle)
    build = folder / "build"
    for argv in (["cmake", "-S", bundle, "-B", build], ["cmake", "--build", build]):
        subprocess.run(argv, check=True, timeout=TIMEOUT_S, stdout=subprocess.DEVNULL)
    return build / "image.elf"


def labels(folder: Path) -> Sequence[tuple[bytes, int]]:
    rows = [line.split(",") for line in (folder / "y_labels.csv").read_text().splitlines()]
    return [((folder / file).read_bytes(), int(of_class)) for file, _, of_class, *_ in rows]


@pytest.mark.parametrize(
    ("board_name", "benchmark"), [("mps2_an500", "kws01"), ("qemu_rv32imc", "ic01")]
)
def test_classes_are_the_references(board_name: str, benchmark: str, tmp_path: Path) -> None:
    board = load_board(board_name)
    elf = built(DIGITS, board_name, benchmark, tmp_path)
    with start(board, Image(elf, board), with_cycle_model=True) as running:
        runner = Runner(running)
        assert runner.first[-1] == "m-init-done"
        time = ", modelled time" if board.has_cycle_model else ""
        assert runner.send("name") == [f"m-name-dut-[{board_name}{time}]"]
        assert f"m-model-[{benchmark}]" in runner.send("profile")
        for data, of_class in labels(tmp_path / "bundle" / "dataset" / benchmark):
            assert runner.load(data)[-1] == "m-load-done"
            results, _ = runner.infer(1, 0)
            assert int(np.argmax(results)) == of_class
        # Each run has its input again, although the arena may have put results there.
        again, one = runner.infer(1, 0)
        several, five = runner.infer(5, 2)
        assert again == results == several
        assert 4.5 * one < five < 5.5 * one


def test_an_autoencoder_is_judged_by_its_error(tmp_path: Path) -> None:
    model, board = autoencoder(tmp_path), load_board("mps2_an386")
    elf = built(model, board.name, "ad01", tmp_path)
    with start(board, Image(elf, board), with_cycle_model=True) as running:
        runner = Runner(running)
        for data, _ in labels(tmp_path / "bundle" / "dataset" / "ad01"):
            wanted = np.frombuffer(data, np.float32)
            runner.load(data)
            (error,), _ = runner.infer(1, 0)
            taken = np.round(wanted / np.float32(0.39)).astype(np.int8) + np.int8(19)
            output = run_reference(model, [[taken[None].astype(np.int8)]]).outputs[0][0]
            real = np.float32(0.7) * (output.astype(np.float32).ravel() + 5)
            assert error == pytest.approx(np.mean((real - wanted) ** 2), rel=1e-5, abs=6e-4)
        assert runner.send("results") == [f"m-results-[{error:.3f}]"]
        # What is no number has an error that no threshold takes for a small one.
        runner.load(np.full(24, np.nan, np.float32).tobytes())
        assert runner.send("infer 1 0")[-1] == "m-results-[4000000.000]"


def test_nonsense_on_the_line_is_answered(tmp_path: Path) -> None:
    board = load_board("mps2_an385")
    elf = built(DIGITS, board.name, "ic01", tmp_path)
    with start(board, Image(elf, board), with_cycle_model=True) as running:
        runner = Runner(running)
        for command, answer in (
            ("infer 1 0", "e-[0 bytes are loaded, and the model takes 64]"),
            ("bogus", "e-[Unknown command: bogus]"),
            ("x" * 300, "e-[Unknown command: " + 80 * "x" + "]"),
            ("db", "e-[Command 'db' requires a subcommand]"),
            ("db zz", "e-[Invalid hex digit]"),
            ("db 123", "e-[Insufficent number of hex digits]"),
            ("db load 65", "e-[db load takes 1 to 64 bytes]"),
            ("db load -1", "e-[db load takes 1 to 64 bytes]"),
            ("infer 0", "e-[Inference iterations must be >0]"),
            ("infer 1 x", "e-[Inference warmup must be >=0]"),
        ):
            assert runner.send(command)[-1] == answer
        assert runner.send("") == []
        # More than was announced is ignored.
        runner.send("db load 2")
        assert runner.send("db 0a0b0c") == ["m-load-done"]
        assert runner.send("db print") == ["m-buffer-0a-0b"]


@pytest.mark.parametrize(
    ("where", "options", "words"),
    [
        ("mps2_an500", {}, "no benchmark is given; give --benchmark ad01, ic01, kws01, vww01"),
        ("mps2_an500", {"benchmark": "sww01"}, "no benchmark 'sww01'"),
        ("host", {"benchmark": "ic01"}, "choose a board with the template 'baremetal'"),
        ("mps2_an500", {"benchmark": "ad01"}, "compares outputs with inputs"),
        ("mps2_an500", {"benchmark": "ic01", "format": "cmake"}, "is for the format 'mlperf-tiny'"),
        ("mps2_an500", {"benchmark": "ic01", "input_rows": 1}, "compile it without --input-rows"),
    ],
)
def test_what_does_not_fit_is_refused(
    where: str, options: dict[str, object], words: str, tmp_path: Path
) -> None:
    with pytest.raises(BundleError, match=re.escape(words)):
        utvm_deploy.bundle(
            DIGITS, where, tmp_path / "b", **{"format": "mlperf-tiny", "latency": False, **options}
        )
    assert not list(tmp_path.iterdir())


def test_an_energy_measurement_has_its_own_baud_rate_and_no_times(tmp_path: Path) -> None:
    built(DIGITS, "mps2_an385", "ic01", tmp_path)
    build = tmp_path / "energy"
    argv = ["cmake", "-S", tmp_path / "bundle", "-B", build, "-DENERGY=ON"]
    subprocess.run(argv, check=True, timeout=TIMEOUT_S, stdout=subprocess.DEVNULL)
    subprocess.run(["cmake", "--build", build], check=True, timeout=TIMEOUT_S)
    board = load_board("mps2_an385")
    with start(board, Image(build / "image.elf", board), with_cycle_model=True) as running:
        runner = Runner(running)
        assert runner.first == ["m-timestamp-mode-energy", "m-init-done"]
        assert runner.send("timestamp") == []
