"""Ten families of float models by way of Relax: error, modelled cycles, memory, seconds.

python benchmarks/relax/families.py [FAMILY...]

Each is compiled for both boards, loaded into the RAM of the emulated board and run once. The second
figure of cycles is that of TVM's own loops: without our operators, and without a schedule.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np

import utvm_deploy
from utvm_deploy.frontend.relax import passes
from utvm_deploy.kernels.portable.call_tir import TirKernel

sys.path.insert(0, str(Path(__file__).parents[2] / "tests" / "relax"))
from model_families import FAMILIES
from relax_operators import expected, inputs_of, module_of

BOARDS = ("mps2_an500", "mps3_an547")


def main() -> None:
    """Print one row for each family and board."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("families", nargs="*")
    wanted = parser.parse_args().families
    print("| family | board | error | cycles | TVM's loops | ratio | RAM | flash | seconds |")
    print("|---|---|---|---|---|---|---|---|---|")
    for case in FAMILIES:
        if wanted and case.name not in wanted:
            continue
        module, inputs = module_of([case]), inputs_of([case], 4)
        (right,) = expected(module, inputs)
        for board in BOARDS:
            began = time.perf_counter()
            compiled = utvm_deploy.compile(module, board, name="family")
            seconds = time.perf_counter() - began
            made, cycles = run(compiled, board, inputs)
            with tvms_loops():
                plain = utvm_deploy.compile(module, board, name="family")
            _, plain_cycles = run(plain, board, inputs)
            error = np.abs(made - right).max() / np.abs(right).max()
            print(
                f"| {case.name} | {board} | {error:.1e} | {cycles:,} | {plain_cycles:,} "
                f"| {cycles / plain_cycles:.2f} | {compiled.arena_bytes:,} "
                f"| {compiled.weights_bytes:,} | {seconds:.1f} |",
                flush=True,
            )


def run(compiled: Any, board: str, inputs: Any) -> tuple[Any, int]:
    """The output, and the modelled cycles of all layers."""
    with utvm_deploy.connect(board) as device:
        model = device.load(compiled)
        return model(*inputs), sum(model.run_timed(inputs))


@contextmanager
def tvms_loops() -> Iterator[None]:
    """PrimFuncs as TVM's passes leave them, no operators of ours, and no products for all rows."""

    def unscheduled(_kernel: TirKernel, _schedule: Any, _core: str) -> str:
        return "TVM's loops"

    with (
        patch.object(TirKernel, "schedule", unscheduled),
        patch.object(passes, "with_our_operators", lambda module, _main: module),
        patch.object(passes, "with_shared_products", lambda module, _main: module),
    ):
        yield


if __name__ == "__main__":
    main()
