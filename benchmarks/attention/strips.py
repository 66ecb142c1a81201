"""Attention in strips of rows: arena and modelled cycles with and without them, in one run.

    python benchmarks/attention/strips.py [--board BOARD...]

The nets are blocks of transformers with random weights, of int8 unless their name says float32:
attention with a mask, then two dense layers in most. "whole" has no strips, "time" is the default
level, and "least" is the smallest budget that can be met.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path

import utvm_deploy
from utvm_deploy.compiler.budgets import Budget, OverBudget
from utvm_deploy.compiler.options import CompileOptions, Objective
from utvm_deploy.compiler.stages.pipeline import compile_model
from utvm_deploy.frontend.tflite import load_model
from utvm_deploy.oracle.samples import random_samples

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tests"))
from attention_net import AttentionNet

NETS = {
    "encoder, 64 tokens": AttentionNet(64, 64, 4, 4, "rows", hidden=256),
    "encoder, 128 tokens": AttentionNet(128, 128, 4, 4, "rows", adj_y=True, hidden=512),
    "grouped queries, 32 tokens": AttentionNet(32, 96, 6, 2, "rows", hidden=256),
    "grouped queries, 64 tokens": AttentionNet(64, 96, 6, 2, "rows", hidden=256),
    "attention in float32, 64 tokens": AttentionNet(64, 64, 4, 4, "rows", is_float=True),
}
BOARDS = ("mps2_an500", "mps3_an547", "qemu_rv32imc")


def main() -> None:
    """Print a table."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--board", nargs="+", default=BOARDS)
    args = parser.parse_args()
    print("| board | net | plan | arena | ticks |\n|---|---|---|--:|--:|")
    with tempfile.TemporaryDirectory() as folder:
        for name in args.board:
            for net, made in NETS.items():
                measure(name, net, made.written().save(Path(folder) / "net.tflite"))


def measure(name: str, net: str, path: Path) -> None:
    """The rows of a net on a board."""
    board, inputs = utvm_deploy.load_board(name), random_samples(load_model(path), 1).inputs[0]
    try:
        compile_model(path, board, CompileOptions(budget=Budget(ram=1)))
        raise SystemExit(f"{net} fits a single byte")
    except OverBudget as error:
        least = error.least_bytes
    plans = {
        "whole": CompileOptions(whole_layers=True),
        "time": CompileOptions(),
        "ram": CompileOptions(objective=Objective.RAM),
        "least": CompileOptions(budget=Budget(ram=least)),
    }
    for plan, options in plans.items():
        compiled = compile_model(path, board, options)
        with utvm_deploy.connect(board) as device:
            _, ticks = device.load(compiled).run(inputs)
            cycles = next(iter(device.figures([ticks])[0].values()))
        print(f"| {name} | {net} | {plan} | {compiled.arena_bytes:,} | {cycles:,} |", flush=True)


if __name__ == "__main__":
    main()
