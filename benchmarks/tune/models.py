"""What tuning does for whole models: its time, its curve, and the models before and after.

    python benchmarks/tune/models.py MODEL.tflite... --board BOARD [--minutes 5] [--cmsis-nn DIR]

Each model is tuned from an empty records file, with the shipped records as hints. Then the whole
model runs with the shipped records, with its own records, and with CMSIS-NN if that is given.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import utvm_deploy
from utvm_deploy.backends.cmsis_nn.library import CmsisNn
from utvm_deploy.boards.board import Board, load_board
from utvm_deploy.device import Device, connect
from utvm_deploy.frontend.tflite import load_model
from utvm_deploy.graph.passes.simplify import simplify
from utvm_deploy.oracle.samples import random_samples
from utvm_deploy.project import find_cmsis_nn_builds
from utvm_deploy.records.candidate import CMSIS_NN
from utvm_deploy.results.comparing.engines import run_engine
from utvm_deploy.tuning.measuring.place import fastest_link
from utvm_deploy.tuning.measuring.workload import workload
from utvm_deploy.tuning.records_file import RecordsFile
from utvm_deploy.tuning.tuner import Tuning, tune

#: Shares of the tuning's time at which the curve is printed.
STEPS = (0.05, 0.1, 0.2, 0.4, 0.7, 1.0)
#: A tuning is near its end when all layers take at most the best ticks over this share.
NEAR = 0.95


@dataclass
class Curve:
    """Seconds, trials and ticks of all layers, after each batch."""

    points: list[tuple[float, int, int]] = field(default_factory=list)
    default: int | None = None
    first_s: float | None = None  # until the first candidate was measured

    def __call__(self, tuning: Tuning) -> None:
        if self.first_s is None and tuning.trials > tuning.trials_before:
            self.first_s = tuning.seconds
        best, default = tuning.total(tuned=True), tuning.total(tuned=False)
        if best is not None and default is not None:
            self.points.append((tuning.seconds, tuning.trials, best))
            self.default = default
        print(f"\r{tuning.trials} trials, {tuning.seconds:.0f} s ", end="", file=sys.stderr)

    def at(self, seconds: float) -> tuple[int, int] | None:
        """Trials and ticks after this many seconds."""
        past = [point for point in self.points if point[0] <= seconds]
        return past[-1][1:] if past else None

    def near(self) -> tuple[float, int] | None:
        """Seconds and trials until ``NEAR`` of the best was reached."""
        for seconds, trials, ticks in self.points:
            if NEAR * ticks <= self.points[-1][2]:
                return seconds, trials
        return None

    def text(self, seconds: float) -> str:
        """How far it was at each of ``STEPS`` of all seconds."""
        told = [(share * seconds, self.at(share * seconds)) for share in STEPS]
        return "; ".join(
            f"{past:.0f} s: {one[0]} trials, {self.default / one[1]:.3f} times"
            for past, one in told
            if one is not None and self.default is not None
        )


def whole(device: Device, path: Path, board: Board, **options: object) -> int:
    """Ticks of the model in one call."""
    compiled = utvm_deploy.compile(path, board, **options)  # type: ignore[arg-type]
    samples = random_samples(load_model(path), 1)
    return run_engine(device, compiled, samples).profile.ticks


def all_ways(
    path: Path, board: Board, records: Path, builds: Sequence[CmsisNn]
) -> tuple[int, int, int | None]:
    """Ticks with the shipped records, with these, and by the fastest build of CMSIS-NN, if any."""
    with connect(board) as device:
        theirs = [whole(device, path, board, kernels=CMSIS_NN, cmsis_nn=one) for one in builds]
        ours = whole(device, path, board), whole(device, path, board, records=records)
        return *ours, min(theirs, default=None)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("models", nargs="+", type=Path)
    parser.add_argument("--board", required=True)
    parser.add_argument("--minutes", type=float, default=5.0)
    parser.add_argument("--trials", type=int)
    parser.add_argument(
        "--cmsis-nn", type=Path, help="the folder of yours, with its builds for the board's core"
    )
    parser.add_argument(
        "--cmsis-nn-library",
        type=Path,
        action="append",
        default=[],
        help="one build in place of all in the folder; give it again for more",
    )
    parser.add_argument("--keep", type=Path, help="folder for each model's records")
    parser.add_argument("--json", type=Path, help="file for all figures")
    options = parser.parse_args()
    board = load_board(options.board)
    builds: Sequence[CmsisNn] = ()
    if options.cmsis_nn:
        builds = find_cmsis_nn_builds(options.cmsis_nn, board, options.cmsis_nn_library)
    print(f"{board.name}, {os.cpu_count()} cores of this computer, at most {options.minutes} min")
    print(
        "| model | kernels | trials | failed | seconds | a second | untuned | tuned | times "
        "| CMSIS-NN | untuned, times | tuned, times |"
    )
    print("|---|---|---|---|---|---|---|---|---|---|---|---|")
    rows = []
    curves, near = [], []
    with tempfile.TemporaryDirectory() as folder:
        for path in options.models:
            records = (options.keep or Path(folder)) / f"{path.stem}.jsonl"
            works = workload([simplify(load_model(path))], board.cpu.kernel_core)
            trials = options.trials or sum(work.trials for work in works)
            curve = Curve()
            with connect(board, link=fastest_link(board)) as device, RecordsFile(records) as file:
                found = tune(
                    works, device, file, trials=trials, minutes=options.minutes, watch=curve
                )
                print(file=sys.stderr)
            untuned, tuned, theirs = all_ways(path, board, records, builds)
            against = (
                f"{theirs:,} | {theirs / untuned:.2f} | {theirs / tuned:.2f}" if theirs else " | | "
            )
            print(
                f"| {path.stem} | {len(works)} | {found.trials} | {found.errors} "
                f"| {found.seconds:.0f} | {found.per_second:.1f} | {untuned:,} | {tuned:,} "
                f"| {untuned / tuned:.3f} | {against} |",
                flush=True,
            )
            reached = curve.near()
            told = "never" if reached is None else f"{reached[0]:.1f} s, {reached[1]} trials"
            near.append(f"{path.stem}: {curve.first_s or 0.0:.1f} s; {told}")
            curves.append(f"{path.stem}: {curve.text(found.seconds)}")
            rows.append(
                {
                    "model": path.stem,
                    "trials": found.trials,
                    "seconds": found.seconds,
                    "candidates_per_second": found.per_second,
                    "untuned": untuned,
                    "tuned": tuned,
                    "cmsis_nn": theirs,
                    "default_layers": curve.default,
                    "curve": curve.points,
                }
            )
    print(f"\nSeconds until the first candidate; seconds and trials until {NEAR:.0%} of the best:")
    print("\n".join(near))
    print("\nAll layers against their families' own choices, while tuning runs:")
    print("\n".join(curves))
    if options.json is not None:
        options.json.write_text(json.dumps({"board": board.name, "models": rows}, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
