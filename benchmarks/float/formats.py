"""Flash, modelled cycles and accuracy of float32 models by the format of their numbers.

    python benchmarks/float/formats.py MODEL[=DATA]... --board BOARD [--samples N]
        [--format NAME|FILE.py]...

Prints a row for each model and format. The accuracy is that of ``utvm eval`` on the labelled data;
without data, it is how far the outputs of ``utvm run`` are from those of float32, as a share of the
largest of them.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np

TIMEOUT_S = 1800
FORMATS = ("bfloat16", "float16", "examples/number_formats/posit16.py")


def told(verb: str, path: Path, *options: str) -> dict[str, Any]:
    """The JSON object of a verb."""
    command = [sys.executable, "-m", "utvm_deploy", verb, str(path), *options, "--json"]
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True, timeout=TIMEOUT_S)
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def outputs(path: Path, options: list[str]) -> np.ndarray:
    """What the model makes of a random sample on this computer, as one array."""
    made = told("run", path, "--board", "host", *options)["outputs"]
    return np.concatenate([np.ravel(one["values"]) for one in made])


def accuracy(path: Path, data: str, samples: str, options: list[str]) -> str:
    """A metric of the reference, or the distance from float32."""
    if data:
        metrics = told("eval", path, "--data", data, "--samples", samples, *options)["metrics"]
        name = "accuracy" if "accuracy" in metrics else "rmse"
        return f"{name} {metrics[name]:.4f}"
    floats, ours = outputs(path, []), outputs(path, options)
    return f"{np.abs(ours - floats).max() / np.abs(floats).max():.1e} from float32"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("models", metavar="MODEL[=DATA]", nargs="+")
    parser.add_argument("--board", required=True)
    parser.add_argument("--samples", default="100")
    parser.add_argument("--format", action="append", default=[])
    args = parser.parse_args()
    print("| model | numbers | weights | flash | modelled cycles | accuracy |")
    print("|---|---|--:|--:|--:|---|")
    for given in args.models:
        name, _, data = given.partition("=")
        for numbers in ("", *(args.format or FORMATS)):
            options = ["--format", numbers] if numbers else []
            path = Path(name)
            made = told("profile", path, "--board", args.board, "--no-store", *options)
            cells = [path.stem, Path(numbers).stem or "float32"]
            cells += [f"{made[key]:,}" for key in ("weights_bytes", "flash_bytes", "ticks")]
            cells.append(accuracy(path, data, args.samples, options))
            print(f"| {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    main()
