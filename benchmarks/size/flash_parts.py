"""What images at a level take of flash besides the runtime and the weights: code, and tables.

    python benchmarks/size/flash_parts.py [--board B] [--optimize LEVEL] MODEL...

Of each model one row of a table: the image's flash; the runtime alone; int8 and int16 weights and
biases of the graph that is left after the passes; and the rest. The rest is the model's code, and
tables: multipliers and shifts, geometry, padding of weights, tables of functions.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import utvm_deploy
from utvm_deploy.boards.board import Board, load_board
from utvm_deploy.compiler.options import LEVELS
from utvm_deploy.frontend.tflite import load_model
from utvm_deploy.graph.model import Graph
from utvm_deploy.graph.passes import simplify
from utvm_deploy.project import build_image

_HEADS = "model", "image", "runtime", "weights", "biases", "rest", "code", "tables"


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("models", nargs="+", type=Path)
    parser.add_argument("--board", default="mps2_an500")
    parser.add_argument("--optimize", default="size", choices=LEVELS)
    args = parser.parse_args()
    board = load_board(args.board)
    print(f"| {' | '.join(_HEADS)} |")
    print(f"|---|{'--:|' * (len(_HEADS) - 1)}")
    for path in args.models:
        numbers = parts(path, board, args.optimize)
        print(f"| {path.stem} | {' | '.join(f'{one:,}' for one in numbers)} |")


def parts(path: Path, board: Board, level: str) -> tuple[int, ...]:
    """The numbers of a row, in bytes."""
    compiled = utvm_deploy.compile(path, board, optimize=level)
    image = build_image(compiled, board).flash_bytes
    runtime = build_image(None, board).flash_bytes
    weights, biases = graph_bytes(simplify(load_model(path)))
    tables = compiled.weights_bytes - weights - biases
    rest = image - runtime - weights - biases
    return image, runtime, weights, biases, rest, rest - tables, tables


def graph_bytes(graph: Graph) -> tuple[int, int]:
    """Bytes of the constants that operators read: weights, and biases of 32 and 64 bits."""
    used = {index for operator in graph.operators for index in operator.inputs if index is not None}
    sizes = {"weights": 0, "biases": 0}
    for index in used:
        tensor = graph.tensors[index]
        if tensor.data is not None:
            is_bias = tensor.dtype in ("int32", "int64")
            sizes["biases" if is_bias else "weights"] += tensor.data.nbytes
    return sizes["weights"], sizes["biases"]


if __name__ == "__main__":
    main()
