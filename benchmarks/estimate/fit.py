"""Fits the constants of estimates to measured nets, and states the error on others.

python benchmarks/estimate/fit.py MEASURED.jsonl --board mps2_an500

MEASURED.jsonl is of measure.py. Nets whose seed is HELD_OUT or more are held out: no constant is
fitted to them, and all of them give the error. The constants go to utvm_deploy/targets/estimates.
"""

from __future__ import annotations

import argparse
import json
import logging
import sys
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from scipy.optimize import nnls

import utvm_deploy
from utvm_deploy.base.paths import estimates_file
from utvm_deploy.boards.board import Board
from utvm_deploy.frontend.tflite import load_model
from utvm_deploy.results.estimating.formulas import (
    ANY,
    FEATURES,
    Errors,
    Formulas,
    code_features,
    features_of,
    layer_classes,
)
from utvm_deploy.results.estimating.shape_plan import ShapePlan, shape_plan, shaped

sys.path.insert(0, str(Path(__file__).parent))

from nets import write

#: The first seed of nets that give the error.
HELD_OUT = 100_000
#: Ticks that are added to a layer's before its error is weighed: small layers matter less.
SMALL = 200
#: Features of the formula for all layers of a family.
OF_ANY = ("call", "products", "outputs", "inputs")
#: Layers that a class must have for a formula of its own.
LEAST_LAYERS = 4
#: Layers that a form of a kernel must have for one, as the class of its kernel knows it otherwise.
LEAST_OF_FORM = 2 * len(FEATURES)


@dataclass(frozen=True)
class Case:
    """A net, what it took, and its plan by shapes."""

    seed: int
    measured: dict
    plan: ShapePlan

    @property
    def ticks(self) -> list[float]:
        """Of each layer of the plan; 0 for one that the board did not run."""
        known = {layer[0]: layer[4] for layer in self.measured["layers"]}
        return [known.get(one.operator.sources[0], 0.0) for one in self.plan.layers]


def main() -> None:
    """Fit, and write the file."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("measured", type=Path)
    parser.add_argument("--board", default="mps2_an500")
    args = parser.parse_args()
    logging.disable(logging.WARNING)
    board = utvm_deploy.load_board(args.board)
    cases = read(args.measured, board)
    fitted_on = [one for one in cases if one.seed < HELD_OUT]
    others = [one for one in cases if one.seed >= HELD_OUT]
    made = fitted(fitted_on, board)
    # Of layers that no formula knows, an estimate states no error.
    others = [one for one in others if is_known(one.plan, made)]
    errors = {name: errors_of(others, made, name) for name in ("ticks", "ram", "flash")}
    made = replace(made, nets=len(others), errors=errors)
    core = board.cpu.kernel_core
    write_file(estimates_file(core), made, len(fitted_on))
    for name, one in errors.items():
        print(f"{core} {name}: median {one.median:.2%}, worst {one.worst:.2%}, {len(others)} nets")


def read(path: Path, board: Board) -> list[Case]:
    """The nets that fit the board."""
    cases = []
    with tempfile.TemporaryDirectory() as folder:
        for line in path.read_text().splitlines():
            measured = json.loads(line)
            if "error" in measured:
                continue
            file = write(measured["seed"], Path(folder) / "net.tflite")
            plan = shape_plan(shaped(load_model(file)), board)
            cases.append(Case(measured["seed"], measured, plan))
    return cases


def is_known(plan: ShapePlan, made: Formulas) -> bool:
    """Whether there are formulas for all layers of a net."""
    return all(made.ticks_of(plan.graph, one)[1] for one in plan.layers)


def fitted(cases: Sequence[Case], board: Board) -> Formulas:
    """Constants for all layers, classes and kernels of the nets."""
    rows: dict[str, list[tuple[Sequence[float], float]]] = {}
    chosen = [name in OF_ANY for name in FEATURES]
    for case in cases:
        for layer, ticks in zip(case.plan.layers, case.ticks, strict=True):
            if not ticks:
                continue
            row = features_of(case.plan.graph, layer)
            for name in layer_classes(layer):
                rows.setdefault(name, []).append((row, ticks))
            few = [value if is_taken else 0.0 for value, is_taken in zip(row, chosen, strict=True)]
            rows.setdefault(f"{ANY}/{layer.call.family}", []).append((few, ticks))
    ticks = {
        name: least_squares([row for row, _ in some], [1 / (one + SMALL) for _, one in some],
                            [one for _, one in some])
        for name, some in sorted(rows.items())
        if len(some) >= (LEAST_OF_FORM if name.count("/") == 3 else LEAST_LAYERS)
        and len(some) != len(rows.get(name.rpartition("/")[0], ()))
    }  # fmt: skip
    unit = cases[0].measured["unit"]
    bases = [m["ram"] - m["arena"] - m["pool"] for m in (case.measured for case in cases)]
    base = int(np.median(bases))
    return Formulas(board.name, unit, 0, ticks, code_of(cases), base, {})


def code_of(cases: Sequence[Case]) -> dict[str, list[float]]:
    """Bytes of code by class of kernel: what is left of flash without the constants."""
    found = [code_features(case.plan.layers) for case in cases]
    names = sorted({name for one in found for name in one})
    count = len(next(iter(found[0].values())))
    absent = (0.0,) * count
    rows = [[1.0, *(size for name in names for size in one.get(name, absent))] for one in found]
    sizes = [case.measured["flash"] - case.plan.constants_bytes for case in cases]
    weights = [1 / case.measured["flash"] for case in cases]
    base, *constants = least_squares(rows, weights, sizes)
    code = {name: constants[count * i : count * (i + 1)] for i, name in enumerate(names)}
    typical = [float(np.median([one[i] for one in code.values()])) for i in range(count)]
    return {"": [base], ANY: typical, **code}


def least_squares(
    rows: Sequence[Sequence[float]], weights: Sequence[float], wanted: Sequence[float]
) -> list[float]:
    """Constants that are not negative; ``weights`` are of the rows."""
    weighted = np.array(rows, float) * np.array(weights)[:, None]
    scale = np.abs(weighted).max(axis=0)
    scale[scale == 0] = 1
    found, _ = nnls(weighted / scale, np.array(wanted) * np.array(weights))
    return [float(f"{one:.5g}") for one in found / scale]


def errors_of(cases: Sequence[Case], made: Formulas, name: str) -> Errors:
    """Of one figure, over all nets."""
    estimate: dict[str, Callable[[ShapePlan], float]] = {
        "ticks": lambda plan: sum(made.ticks_of(plan.graph, one)[0] for one in plan.layers),
        "ram": lambda plan: made.ram_base + plan.arena_bytes + plan.pool_bytes,
        "flash": lambda plan: made.code_bytes(plan.layers) + plan.constants_bytes,
    }
    shares = [abs(estimate[name](case.plan) / case.measured[name] - 1) for case in cases]
    for share, case in sorted(zip(shares, cases, strict=True), key=lambda one: -one[0])[:3]:
        print(f"  {name}: net {case.seed} is {share:.2%} away", file=sys.stderr)
    return Errors(round(float(np.median(shares)), 5), round(max(shares), 5))


def write_file(path: Path, made: Formulas, fitted_nets: int) -> None:
    """The constants as JSON, a line for each class."""
    path.parent.mkdir(exist_ok=True)
    errors = {name: vars(one) for name, one in made.errors.items()}
    how = f"benchmarks/estimate: fitted to {fitted_nets} nets, errors on others"
    parts = {**vars(made), "errors": errors, "how": how}
    lines = []
    for key, value in parts.items():
        if key in ("ticks", "code"):
            inner = ",\n".join(f"  {json.dumps(k)}: {json.dumps(v)}" for k, v in value.items())
            lines.append(f" {json.dumps(key)}: {{\n{inner}\n }}")
        else:
            lines.append(f" {json.dumps(key)}: {json.dumps(value)}")
    path.write_text("{\n" + ",\n".join(lines) + "\n}\n")


if __name__ == "__main__":
    main()
