"""What the records of other shapes do for a kernel: each kernel compiled as if it had none itself.

    python benchmarks/tune/leave_one_out.py TRIALS.jsonl [--board BOARD]

Of every kernel the candidate that ``Records.choices`` takes from its neighbours is compared with
the default. Where nobody measured that candidate, ``--board`` does so now, and adds it to the file.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from zoo import zoo

from utvm_deploy.base.errors import UnsupportedOperator
from utvm_deploy.boards.board import load_board
from utvm_deploy.device import connect
from utvm_deploy.frontend.tflite import load_model
from utvm_deploy.graph.passes.simplify import simplify
from utvm_deploy.kernels.choose.lowering import lower
from utvm_deploy.records import Record, Records, Setting
from utvm_deploy.records.candidate import Candidate
from utvm_deploy.tuning.measuring.current import current
from utvm_deploy.tuning.measuring.place import fastest_link
from utvm_deploy.tuning.measuring.workload import Work, workload
from utvm_deploy.tuning.records_file import RecordsFile
from utvm_deploy.tuning.tuner import tune

#: What is slower than the default by more is a fault of the rule.
MOST_LOSS = 0.02


def proposed(work: Work, records: Sequence[Record], core: str) -> Candidate | None:
    """What the others' records say; None if the default stays."""
    others = Records(record for record in records if record.kernel.key != work.kernel.key)
    for candidate, _ in others.choices(work.kernel, core):
        try:
            lower(work.graph, work.operator, core, candidate)
        except UnsupportedOperator:
            continue
        return candidate
    return None


def of_today(works: Sequence[Work], records: Sequence[Record], core: str) -> Iterator[Record]:
    """Records of the C that is emitted today."""
    for work in works:
        of_kernel = [record for record in records if record.kernel.key == work.kernel.key]
        yield from current(work, of_kernel, core)


def ticks_of(records: Sequence[Record], setting: Setting) -> dict[tuple[str, Candidate], int]:
    return {
        (record.kernel.key, record.candidate): record.measurement.ticks_min
        for record in records
        if record.setting == setting and record.measurement.is_ok
    }


def report(works: Sequence[Work], choices: Mapping[str, Candidate], records: Sequence[Record],
           setting: Setting) -> None:  # fmt: skip
    ticks = ticks_of(records, setting)
    faster = slower = same = unknown = 0
    default_sum = chosen_sum = best_sum = 0
    for work in works:
        key = work.kernel.key
        default = ticks.get((key, work.default))
        if default is None:
            continue
        candidate = choices.get(key)
        taken = default if candidate is None else ticks.get((key, candidate))
        if taken is None:
            unknown += 1
            continue
        change = taken / default - 1
        faster += change < -0.001
        slower += change > 0.001
        same += abs(change) <= 0.001
        default_sum += default
        chosen_sum += taken
        best_sum += min(t for (other, _), t in ticks.items() if other == key)
        if change > MOST_LOSS:
            label = candidate.label if candidate else ""
            print(f"slower by {change:.1%}: {work.kernel.name} with {label}")
    print(
        f"{faster} kernels faster, {same} the same, {slower} slower, {unknown} not measured; all "
        f"of them take {chosen_sum / max(default_sum, 1):.4f} of what the defaults do, and "
        f"{best_sum / max(default_sum, 1):.4f} with their own records"
    )


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("trials", type=Path)
    parser.add_argument("models", nargs="*", type=Path, help="beside the zoo")
    parser.add_argument("--board", help="measure what is not in the file")
    parser.add_argument("--any-code", action="store_true", help="count records of older kernels")
    options = parser.parse_args()
    with RecordsFile(options.trials) as file:
        records = list(file.records)
        settings = [record.setting for record in records]
        if not settings:
            print(f"there are no records in {options.trials}")
            return 1
        setting = max(set(settings), key=settings.count)
        # Ticks of another unit or cycle model cannot be compared with these.
        records = [record for record in records if record.setting.scale == setting.scale]
        graphs = [*(simplify(load_model(path)) for path in options.models), *zoo()]
        keys = {record.kernel.key for record in records}
        works = [w for w in workload(graphs, setting.core) if w.kernel.key in keys]
        if not options.any_code:
            records = list(of_today(works, records, setting.core))
        found = {work.kernel.key: proposed(work, records, setting.core) for work in works}
        choices = {key: candidate for key, candidate in found.items() if candidate is not None}
        known = ticks_of(records, setting)
        chosen = [(work, choices[work.kernel.key]) for work in works if work.kernel.key in choices]
        missing = [(work, one) for work, one in chosen if (work.kernel.key, one) not in known]
        if options.board and missing:
            board = load_board(options.board)
            with connect(board, link=fastest_link(board)) as device:
                pairs = [replace(w, candidates=(w.default, c), free=None) for w, c in missing]
                # What the file has of these kernels counts as trials, too.
                tune(pairs, device, file, trials=len(file.records) + 2 * len(pairs))
                records = [one for one in file.records if one.setting.scale == setting.scale]
    report(works, choices, records, setting)
    return 0


if __name__ == "__main__":
    sys.exit(main())
