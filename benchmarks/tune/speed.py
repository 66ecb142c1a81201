"""Candidates per second of utvm tune, over each link, and where the time goes.

    python benchmarks/tune/speed.py MODEL.tflite... --board BOARD [--link LINK...] [--trials N]

Every link begins with an empty cache of compiled candidates and an empty records file. What is
compiled, loaded and run overlaps, so the parts add up to more than the whole on several cores.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from utvm_deploy.boards.board import load_board
from utvm_deploy.device import connect
from utvm_deploy.frontend.tflite import load_model
from utvm_deploy.graph.passes.simplify import simplify
from utvm_deploy.kernels.choose.lowering import candidates_in, lower
from utvm_deploy.kernels.contract.strategy import Layer
from utvm_deploy.project import build_image
from utvm_deploy.records.candidate import GENERIC
from utvm_deploy.tuning.measuring.place import fastest_link
from utvm_deploy.tuning.measuring.workload import Work, workload
from utvm_deploy.tuning.records_file import RecordsFile
from utvm_deploy.tuning.tuner import Tuning, tune


def portable_layer(work: Work) -> Layer:
    return Layer(work.graph, work.operator, GENERIC, lower(work.graph, work.operator))


def measured(board_name: str, works: Sequence[Work], link: str, trials: int) -> Tuning:
    """One tuning from nothing, the board's image aside, which is built once for all."""
    with tempfile.TemporaryDirectory() as folder:
        os.environ["UTVM_CACHE"] = folder
        board = load_board(board_name)
        build_image(None, board)
        with (
            connect(board, link=link) as device,
            RecordsFile(Path(folder) / "records.jsonl") as file,
        ):
            # TVM's and the image's first steps are not the candidates'.
            tune(works[:1], device, file, trials=1)
            return tune(works, device, file, trials=trials)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("models", nargs="+", type=Path)
    parser.add_argument("--board", required=True)
    parser.add_argument("--link", nargs="+", help="default: the board's fastest")
    parser.add_argument("--trials", type=int, default=100)
    parser.add_argument("--plain", action="store_true", help="plain C in all shapes of its loops")
    options = parser.parse_args()
    board = load_board(options.board)
    works = workload([simplify(load_model(path)) for path in options.models], board.cpu.kernel_core)
    if options.plain:
        works = tuple(
            replace(work, candidates=candidates_in(GENERIC, portable_layer(work))) for work in works
        )
    print(f"{len(works)} kernels on {board.name}, {os.cpu_count()} cores of this computer")
    print("| link | trials | failed | seconds | a second | s each | lower | load | run |")
    print("|---|---|---|---|---|---|---|---|---|")
    for link in options.link or [fastest_link(board)]:
        found = measured(options.board, works, link, options.trials)
        new = found.trials - found.trials_before
        print(
            f"| {link} | {new} | {found.errors} | {found.seconds:.1f} | {found.per_second:.1f} "
            f"| {found.seconds / new:.2f} | {found.lower_s:.1f} | {found.load_s:.1f} "
            f"| {found.run_s:.1f} |",
            flush=True,
        )
    return 0


if __name__ == "__main__":
    sys.exit(main())
