"""Measures inferences over a line that loses or changes bytes by chance.

    python benchmarks/sessions/lossy_line.py                      the table: 100 inferences each
    python benchmarks/sessions/lossy_line.py --board mps2_an386 --count 20 --baud 115200

The noise is in both directions, each byte on its own, from the first byte of HELLO on. So the
handshake and the loading of the model have it, too. An inference that a link error ended counts as
failed; the next one begins a session again if it has to.
"""

from __future__ import annotations

import argparse
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

import utvm_deploy  # noqa: E402
from tests.link.fakes import NoisyStream  # noqa: E402
from utvm_deploy.base.errors import DeviceError, LinkError, UtvmError  # noqa: E402
from utvm_deploy.boards.board import Board, load_board  # noqa: E402
from utvm_deploy.device import Device  # noqa: E402
from utvm_deploy.device.link.deadlines import speeds_of  # noqa: E402
from utvm_deploy.device.link.monitor import MonitorLink  # noqa: E402
from utvm_deploy.device.probe import start  # noqa: E402
from utvm_deploy.device.probe.launcher import PlaceOf, StartedBoard, _LocalBoard  # noqa: E402
from utvm_deploy.device.probe.links import ThrottledStream  # noqa: E402
from utvm_deploy.project import Image  # noqa: E402

MODEL = ROOT / "models" / "digits.tflite"
HELD_OUT = ROOT / "models" / "digits_test.npz"
#: Chance that a byte is changed, and that it is lost.
LINES = ((0.0, 0.0), (0.001, 0.0), (0.0, 0.001), (0.01, 0.0), (0.0, 0.01), (0.01, 0.01))


@dataclass(frozen=True)
class NoisyLauncher:
    """A ``probe.Launcher`` whose line has noise; ``baud`` slows it down as well."""

    board: Board
    corrupted: float
    lost: float
    baud: int | None = None
    seed: int = 0
    with_cycle_model: bool = False
    streams: list[NoisyStream] = field(default_factory=list)

    def check_ready(self) -> None:
        pass

    def start(self, image: Image, place_of: PlaceOf) -> StartedBoard:
        running = start(self.board, image, has_line=True)
        stream = ThrottledStream(running.stream, self.baud) if self.baud else running.stream
        noisy = NoisyStream(stream, self.seed + len(self.streams), self.corrupted, self.lost)
        self.streams.append(noisy)
        link = MonitorLink(noisy, place_of=place_of, speeds=speeds_of(self.board))
        return _LocalBoard(running, link)


def measure(launcher: NoisyLauncher, count: int) -> str:
    """A row of the table."""
    held_out = np.load(HELD_OUT)
    compiled = utvm_deploy.compile(MODEL, launcher.board)
    right = wrong = failed = 0
    with Device(launcher.board, launcher) as device:
        began = time.monotonic()
        model = device.load(compiled)
        device.sync()
        loaded_s = time.monotonic() - began
        began = time.monotonic()
        for n in range(count):
            at = n % len(held_out["inputs"])
            try:
                if model is None:
                    model = device.load(compiled)
                found = model(held_out["inputs"][at])
            except (LinkError, DeviceError) as error:
                failed, model = failed + 1, None
                print(f"  {n}: {error}", file=sys.stderr)
                continue
            is_right = np.array_equal(found, held_out["outputs"][at])
            right, wrong = right + is_right, wrong + (not is_right)
        took_s = time.monotonic() - began
    frames, again, moved = (
        sum(getattr(one, name) for one in launcher.streams)
        for name in ("frames", "again", "bytes_passed")
    )
    return (
        f"| {launcher.corrupted:.1%} | {launcher.lost:.1%} | {right} | {wrong} | {failed} | "
        f"{loaded_s:.1f} | {took_s:.1f} | {frames} | {again} | {moved} |"
    )


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--board", default="host")
    parser.add_argument("--count", type=int, default=100, help="inferences for each line")
    parser.add_argument("--baud", type=int, help="slow the line down to this rate")
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    names = "changed lost right wrong failed load_s inferences_s frames again bytes"
    print(f"| {names.replace(chr(32), ' | ')} |")
    print("|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|")
    for corrupted, lost in LINES:
        launcher = NoisyLauncher(load_board(args.board), corrupted, lost, args.baud, args.seed)
        try:
            print(measure(launcher, args.count), flush=True)
        except UtvmError as error:
            print(f"| {corrupted:.1%} | {lost:.1%} | {error} |", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
