"""MLPerf Tiny's own runner, unchanged, against an emulated board.

    python benchmarks/mlperf_tiny/run.py MODEL.tflite --benchmark kws01 --board mps2_an500
        --runner TINY/benchmark/runner --python RUNNER_PYTHON [--golden SAMPLES.npz]

Writes the bundle, builds it, and starts the board's emulator behind a pseudo-terminal. The runner
(of mlcommons/tiny, in a checkout) takes that for the board's serial port, first in its mode of
accuracy, then of performance. RUNNER_PYTHON has the runner's packages: pyserial, pyusb, pyyaml,
numpy, scikit-learn and matplotlib. The classes of the samples are the reference's, so an accuracy
of 100 % says that every answer was right. Throughput is modelled where the board has a cycle
model; nothing here is a result of the benchmark.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import pty
import select
import subprocess
import sys
import tempfile
import threading
import tty
from collections.abc import Iterator
from pathlib import Path

import utvm_deploy
from utvm_deploy.base.errors import UtvmError
from utvm_deploy.boards.board import load_board
from utvm_deploy.device.probe.running import RunningBoard, start
from utvm_deploy.project import Image

VENDOR, PRODUCT = 0x1209, 0x0001  # of pid.codes, for tests
POLL_S, WRITE_S = 0.05, 10.0
#: Runs the runner's main.py with one serial port: the pseudo-terminal.
BOOTSTRAP = f"""
import runpy, sys, types
import serial.tools.list_ports as ports, usb.core
port = types.SimpleNamespace(device=sys.argv.pop(1), vid={VENDOR}, pid={PRODUCT}, description="")
ports.comports = lambda include_links=False: [port]
usb.core.find = lambda **_: []
sys.path.insert(0, ".")
sys.argv[0] = "main.py"
runpy.run_path("main.py", run_name="__main__")
"""


@contextlib.contextmanager
def terminal_of(running: RunningBoard) -> Iterator[str]:
    """A pseudo-terminal whose other end is the board's line."""
    ours, theirs = pty.openpty()
    tty.setraw(theirs)
    ended = threading.Event()

    def to_board() -> None:
        while not ended.is_set():
            if select.select([ours], [], [], POLL_S)[0]:
                running.stream.write(os.read(ours, 256), WRITE_S)

    def from_board() -> None:
        while not ended.is_set():
            data = running.stream.read(4096, POLL_S)
            if data:
                os.write(ours, data)

    copying = [threading.Thread(target=copy, daemon=True) for copy in (to_board, from_board)]
    for thread in copying:
        thread.start()
    try:
        yield os.ttyname(theirs)
    finally:
        ended.set()
        for thread in copying:
            thread.join(WRITE_S)
        os.close(ours)
        os.close(theirs)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("model", type=Path)
    parser.add_argument("--benchmark", required=True)
    parser.add_argument("--board", default="mps2_an500")
    parser.add_argument("--runner", type=Path, required=True, help="benchmark/runner of a checkout")
    parser.add_argument("--python", default=sys.executable, help="with the runner's packages")
    parser.add_argument("--golden", type=Path, help="samples, as utvm bundle takes them")
    parser.add_argument("--samples", type=int, default=16)
    options = parser.parse_args()
    board = load_board(options.board)
    with tempfile.TemporaryDirectory() as folder:
        bundle, build = Path(folder) / "bundle", Path(folder) / "build"
        utvm_deploy.bundle(
            options.model,
            board,
            bundle,
            format="mlperf-tiny",
            benchmark=options.benchmark,
            golden=options.golden,
            samples=options.samples,
            latency=False,
        )
        for argv in (["cmake", "-S", bundle, "-B", build], ["cmake", "--build", build]):
            subprocess.run(argv, check=True, stdout=subprocess.DEVNULL)
        devices = Path(folder) / "devices.yaml"
        devices.write_text(
            f"- name: {board.name}\n  type: dut\n  baud: 115200\n"
            f"  usb:\n    0x{VENDOR:04x}: 0x{PRODUCT:04x}\n"
        )
        running = start(board, Image(build / "image.elf", board), with_cycle_model=True)
        with running, terminal_of(running) as port:
            for mode, script in (("a", "tests_accuracy.yaml"), ("p", "tests_performance.yaml")):
                print(f"mode {mode}", flush=True)
                argv = [options.python, "-c", BOOTSTRAP, port, "-d", devices]
                argv += ["-s", bundle / "dataset", "-t", script, "-m", mode]
                subprocess.run(argv, check=True, cwd=options.runner)
    return 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except UtvmError as error:
        sys.exit(f"error: {error}")
