"""Make the records that ship for a core: tune models and a zoo of common shapes on its board.

    python benchmarks/tune/default_records.py --board BOARD [MODEL.tflite...] --keep TRIALS.jsonl

Writes utvm_deploy/kernels/data/CORE.jsonl: of every kernel the fastest few and the default. The
same command with the same ``--keep`` continues an interrupted run. It repeats only trials of
kernels whose code or cycle model has changed. Ctrl-C and the end of ``--minutes`` write the records
that exist by then. ``--only PREFIX`` tunes the kernels whose names begin so, and may be given
several times. The records of all others stay as they are.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from zoo import zoo

from utvm_deploy.base.files import write_text
from utvm_deploy.base.paths import data_dir, records_file
from utvm_deploy.boards.board import Board, load_board
from utvm_deploy.compiler.planning.decision import model_of
from utvm_deploy.device import connect
from utvm_deploy.frontend.tflite import load_model
from utvm_deploy.graph.passes.simplify import simplify
from utvm_deploy.records import Record, Records, is_modelled, read_records
from utvm_deploy.tuning.measuring.current import current
from utvm_deploy.tuning.measuring.place import fastest_link
from utvm_deploy.tuning.measuring.workload import Work, workload
from utvm_deploy.tuning.records_file import RecordsFile
from utvm_deploy.tuning.shipping import worth_shipping
from utvm_deploy.tuning.tuner import Tuning, tune

#: Models of this repository that are always tuned: a test looks for their kernels.
MODELS = ("cifar10_cnn.tflite", "digits.tflite")
#: Each kernel gets the number of layers that together have ``EVEN_MACS`` operations.
#: A layer with fewer operations than ``LEAST_MACS`` counts as one with that many.
EVEN_MACS = 10**10
LEAST_MACS = 10**5
PROGRESS_S = 10.0


def _current(records: Records, works: Sequence[Work], board: Board) -> Iterator[Record]:
    """Those of today's code, cycle model and candidates; the default may have changed."""
    by_kernel: dict[str, list[Record]] = {}
    for record in records:
        model = model_of(board) if is_modelled(record.setting.unit) else ""
        if record.setting.model == model:
            by_kernel.setdefault(record.kernel.key, []).append(record)
    for work in works:
        for record in current(work, by_kernel.get(work.kernel.key, []), board.cpu.kernel_core):
            if work.admits(record.candidate):
                yield replace(record, is_default=record.candidate == work.default)


def _evenly(works: Sequence[Work]) -> Iterator[Work]:
    """As if each took the same time: which of them a user's model has most of, nobody knows."""
    for work in works:
        cost = max(work.kernel.macs, LEAST_MACS)
        yield replace(work, layers=max(EVEN_MACS // cost, 1))


class _Progress:
    """A line now and then."""

    def __init__(self) -> None:
        self._told = 0.0

    def __call__(self, tuning: Tuning) -> None:
        now = time.monotonic()
        if now < self._told + PROGRESS_S and tuning.trials < tuning.trials_wanted:
            return
        self._told = now
        known = sum(state.default_ticks is not None for state in tuning.states)
        better = sum(state.gain >= 1.01 for state in tuning.states)
        left = "" if tuning.seconds_left is None else f", {tuning.seconds_left / 60:.1f} min left"
        print(
            f"{tuning.trials} of {tuning.trials_wanted} trials, {tuning.per_second:.1f} a second, "
            f"{tuning.errors} failed; {known} of {len(tuning.states)} kernels have their default, "
            f"{better} something better{left}",
            flush=True,
        )


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("models", nargs="*", type=Path)
    parser.add_argument("--board", required=True)
    parser.add_argument("--trials", type=int, default=4000)
    parser.add_argument("--minutes", type=float)
    parser.add_argument("--keep", type=Path, help="file with every trial; default: a temporary one")
    parser.add_argument(
        "--only",
        metavar="PREFIX",
        action="append",
        help="of the kernels' names; may be given several times",
    )
    parser.add_argument("--output", type=Path, help="default: where the package looks for them")
    options = parser.parse_args()
    board = load_board(options.board)
    ours = (data_dir("models") / name for name in MODELS)
    graphs = [simplify(load_model(path)) for path in (*options.models, *ours)]
    works = tuple(_evenly(workload([*graphs, *zoo()], board.cpu.kernel_core)))
    prefixes = tuple(options.only or [""])
    works = tuple(work for work in works if work.kernel.name.startswith(prefixes))
    print(f"{len(works)} kernels for {board.cpu.kernel_core} on {board.name}", flush=True)
    with tempfile.TemporaryDirectory() as folder:
        path = options.keep or Path(folder) / "records.jsonl"
        with connect(board, link=fastest_link(board)) as device, RecordsFile(path) as file:
            limits = {"trials": options.trials, "minutes": options.minutes}
            try:
                tune(works, device, file, **limits, watch=_Progress())
            except KeyboardInterrupt:
                print("interrupted; writing what there is", flush=True)
            kept = list(worth_shipping(_current(file.records, works, board)))
    target = options.output or records_file(board.cpu.kernel_core)
    if options.only:
        tuned = {record.kernel.key for record in kept}
        others = read_records(records_file(board.cpu.kernel_core))
        kept = list(worth_shipping([*(r for r in others if r.kernel.key not in tuned), *kept]))
    target.parent.mkdir(exist_ok=True)
    write_text(target, "".join(record.to_line() + "\n" for record in kept))
    print(f"{target}: {len(kept)} records of {len(works)} kernels")
    return 0


if __name__ == "__main__":
    sys.exit(main())
