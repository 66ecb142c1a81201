"""How many cycles a model takes within ten RAM budgets: a table, and curves as a picture.

python benchmarks/ram_against_time.py MODEL... [--board BOARD] [--svg FILE]

The budgets go in equal steps from the smallest arena that is possible to that of the fastest plan.
Each arena is compiled and run once. Cycles are those of the board's cycle model, and the first
output must be equal under all budgets.
"""

from __future__ import annotations

import argparse
import html
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

import utvm_deploy
from utvm_deploy.boards.board import Board
from utvm_deploy.compiler.budgets import Budget, OverBudget
from utvm_deploy.compiler.compiled.model import CompiledModel
from utvm_deploy.compiler.options import CompileOptions, Objective
from utvm_deploy.compiler.stages.pipeline import compile_model
from utvm_deploy.frontend.tflite import load_model
from utvm_deploy.graph.model import Array
from utvm_deploy.oracle.samples import random_samples

BUDGETS = 10
COLORS = ("#4878a8", "#d1605e", "#59a14f", "#b07aa1", "#e69f00", "#17becf")


@dataclass(frozen=True)
class Point:
    """An arena, in bytes, and the cycles of a run."""

    budget: int
    arena_bytes: int
    cycles: int


def main() -> None:
    """Measure all models; print a table for each and write the picture."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("models", type=Path, nargs="+")
    parser.add_argument("--board", default="mps2_an500")
    parser.add_argument("--svg", type=Path)
    args = parser.parse_args()
    board = utvm_deploy.load_board(args.board)
    curves = {}
    for path in args.models:
        curves[path.stem] = curve(path, board)
        print(table(path.stem, curves[path.stem]), flush=True)
    if args.svg:
        args.svg.write_text(picture(curves, board))


def curve(path: Path, board: Board) -> list[Point]:
    """The points of a model's budgets, the smallest first."""
    try:
        compile_model(path, board, CompileOptions(objective=Objective.RAM, budget=Budget(ram=1)))
        raise SystemExit(f"{path} fits a single byte; give a model with activations")
    except OverBudget as error:
        least, most = error.least_bytes, error.fastest[0]
    inputs = random_samples(load_model(path), 1).inputs[0]
    points, expected = [], None
    for budget in np.linspace(least, most, BUDGETS).astype(int).tolist():
        compiled = compile_model(
            path, board, CompileOptions(objective=Objective.RAM, budget=Budget(ram=budget))
        )
        outputs, cycles = run(compiled, board, inputs)
        if expected is not None and any(
            not np.array_equal(one, other) for one, other in zip(outputs, expected, strict=True)
        ):
            raise SystemExit(f"{path} gives another output within {budget} bytes")
        expected = outputs
        points.append(Point(budget, compiled.arena_bytes, cycles))
    return points


def run(
    compiled: CompiledModel, board: Board, inputs: Sequence[Array]
) -> tuple[Sequence[Array], int]:
    """The outputs of a run, and its cycles."""
    with utvm_deploy.connect(board) as device:
        outputs, ticks = device.load(compiled).run(inputs)
        return outputs, next(iter(device.figures([ticks])[0].values()))


def table(name: str, points: Sequence[Point]) -> str:
    """A model's points as a table in Markdown."""
    fastest = min(point.cycles for point in points)
    lines = [f"{name}:", "", "| budget | arena | cycles | slower |", "|--:|--:|--:|--:|"]
    for one in points:
        slower = one.cycles / fastest - 1
        lines.append(f"| {one.budget:,} | {one.arena_bytes:,} | {one.cycles:,} | {slower:.1%} |")
    return "\n".join(lines) + "\n"


def picture(curves: Mapping[str, Sequence[Point]], board: Board) -> str:
    """Curves of time against RAM, both as a share of the fastest plan's, as SVG."""
    left, top, width, height = 60, 40, 420, 260
    slowest = max(
        one.cycles / min(p.cycles for p in points) for points in curves.values() for one in points
    )
    highest = max(np.ceil(slowest * 10) / 10, 1.1)
    drawn = []
    for tick in range(0, 101, 20):
        x = left + width * tick / 100
        drawn.append(f'<line x1="{x:.0f}" y1="{top}" x2="{x:.0f}" y2="{top + height}"/>')
        drawn.append(
            f'<text x="{x:.0f}" y="{top + height + 18}" text-anchor="middle">{tick} %</text>'
        )
    for share in np.arange(1.0, highest + 0.01, 0.1 if highest <= 1.6 else 0.2):
        y = top + height * (highest - share) / (highest - 1)
        drawn.append(f'<line x1="{left}" y1="{y:.0f}" x2="{left + width}" y2="{y:.0f}"/>')
        drawn.append(f'<text x="{left - 6}" y="{y + 4:.0f}" text-anchor="end">{share:.1f}</text>')
    for number, (name, points) in enumerate(curves.items()):
        color = COLORS[number % len(COLORS)]
        fastest, most = min(p.cycles for p in points), max(p.arena_bytes for p in points)
        places = [
            (
                left + width * one.arena_bytes / most,
                top + height * (highest - one.cycles / fastest) / (highest - 1),
            )
            for one in sorted(points, key=lambda p: p.arena_bytes)
        ]
        line = " ".join(f"{x:.1f},{y:.1f}" for x, y in places)
        drawn.append(f'<polyline points="{line}" fill="none" stroke="{color}" stroke-width="2"/>')
        drawn += [f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3" fill="{color}"/>' for x, y in places]
        drawn.append(
            f'<text x="{left + width + 14}" y="{top + 14 + 20 * number}" style="fill:{color}">'
            f"{html.escape(name)} ({most:,} bytes)</text>"
        )
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{left + width + 270}" '
        f'height="{top + height + 48}" font-family="sans-serif" font-size="13">\n'
        "<style>text{fill:#333}line{stroke:#8884}"
        "@media(prefers-color-scheme:dark){text{fill:#ddd}}</style>\n"
        f'<text x="4" y="18">{html.escape(board.name)}: modelled cycles of a run, times the '
        "fastest</text>\n"
        f'<text x="{left + width / 2:.0f}" y="{top + height + 40}" text-anchor="middle">'
        "arena, as a share of the fastest plan's</text>\n" + "\n".join(drawn) + "\n</svg>\n"
    )


if __name__ == "__main__":
    main()
