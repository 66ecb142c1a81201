"""Profiles random nets on an emulated board: one line of JSON for each.

python benchmarks/estimate/measure.py OUT.jsonl --board mps2_an500 --first 0 --count 600

With ``--step len(KINDS)``, all of them are of one kind.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from pathlib import Path

import utvm_deploy
from utvm_deploy.results.profiling.layer_costs import Profile

sys.path.insert(0, str(Path(__file__).parent))

from nets import write


def main() -> None:
    """Measure the nets that the file does not have yet."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("out", type=Path)
    parser.add_argument("--board", default="mps2_an500")
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--count", type=int, default=600)
    parser.add_argument("--step", type=int, default=1)
    parser.add_argument("--jobs", type=int, default=1)
    args = parser.parse_args()
    lines = args.out.read_text().splitlines() if args.out.exists() else []
    known = {json.loads(line)["seed"] for line in lines}
    every = range(args.first, args.first + args.count * args.step, args.step)
    seeds = [one for one in every if one not in known]
    with args.out.open("a") as out, ProcessPoolExecutor(args.jobs) as pool:
        for made in pool.map(partial(measured, args.board), seeds):
            print(json.dumps(made), file=out, flush=True)


def measured(board: str, seed: int) -> dict[str, object]:
    """What a seed's net takes; of one that does not fit the board, why."""
    with tempfile.TemporaryDirectory() as folder:
        path = write(seed, Path(folder) / "net.tflite")
        try:
            found = utvm_deploy.profile(path, board).found
        except utvm_deploy.UtvmError as error:
            return {"seed": seed, "error": str(error)}
    return {"seed": seed, **_facts(found)}


def _facts(found: Profile) -> dict[str, object]:
    return {
        "unit": found.tick_unit,
        "ticks": found.ticks,
        "ram": found.ram_bytes,
        "flash": found.flash_bytes,
        "arena": found.arena_bytes,
        "pool": found.pool_bytes,
        "weights": found.weights_bytes,
        "layers": [
            [
                *(one.layer.operators[0], one.layer.kernel, one.layer.engine, one.layer.origin),
                *(one.ticks, one.layer.scratch_bytes, one.layer.weights_bytes),
            ]
            for one in found.layers
        ],
    }


if __name__ == "__main__":
    main()
