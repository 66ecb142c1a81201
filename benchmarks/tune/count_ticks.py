"""Count the ticks of kernels on the emulated board of a core, as this tree's package makes them.

    python benchmarks/tune/count_ticks.py CORE < candidates.json > ticks.json

The candidates are a list of pairs: a kernel's key, and a candidate as records have it. The answer
has the ticks of each, or null for one that has none. ``recount.py`` asks an older tree this way.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "benchmarks" / "replay"))
from emission import board_of, graphs_of, model_files  # noqa: E402


@dataclass(frozen=True)
class Counted:
    """What a record says of a kernel's C."""

    ticks: int
    code_bytes: int
    scratch_bytes: int


def count(core: str, candidates: Sequence[tuple[str, Any]]) -> Iterator[Counted | None]:
    """The ticks and sizes of each kernel and candidate; None for one that did not run."""
    from utvm_deploy.base.errors import UtvmError
    from utvm_deploy.device import connect
    from utvm_deploy.records.candidate import Candidate
    from utvm_deploy.tuning.measuring.build import Builder
    from utvm_deploy.tuning.measuring.inputs import Job
    from utvm_deploy.tuning.measuring.measure import Measurer
    from utvm_deploy.tuning.measuring.place import fastest_link
    from utvm_deploy.tuning.measuring.workload import workload

    works = {work.kernel.key: work for work in workload(graphs_of(model_files()), core)}
    board = board_of(core)
    with Builder(board, 0, 1) as builder, connect(board, link=fastest_link(board)) as device:
        measurer = Measurer(device)
        for key, candidate in candidates:
            try:
                work, one = works[key], Candidate.from_json(candidate)
                built = builder.start(work.graph, work.operator, one).result()
            except (KeyError, ValueError, UtvmError) as error:
                print(f"{key}: {error}", file=sys.stderr)
                yield None
                continue
            # Each alone, so that it has the same address in both trees.
            (found,) = measurer.measure([Job(work, built)], is_compared=False)
            sizes = built.module.size_bytes, built.function.scratch_bytes
            yield Counted(found.ticks_min, *sizes) if found.is_ok else None


def main() -> None:
    import utvm_deploy

    where = Path(utvm_deploy.__file__).resolve().parents[1]
    if where != ROOT:
        raise SystemExit(f"imported the package of {where}, not of {ROOT}")
    # What the generators print does not belong to the answer.
    answer, sys.stdout = sys.stdout, sys.stderr
    found = count(sys.argv[1], json.load(sys.stdin))
    json.dump([one.ticks if one is not None else None for one in found], answer)


if __name__ == "__main__":
    main()
