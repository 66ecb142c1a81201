"""The bound of a layer, worked out by hand."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from tflite_writer import ModelWriter

from utvm_deploy.boards.board import load_board
from utvm_deploy.compiler.options import STACK, CompileOptions, Objective
from utvm_deploy.compiler.stages.pipeline import compile_model
from utvm_deploy.frontend.tflite import load_model
from utvm_deploy.graph.passes.simplify import simplify
from utvm_deploy.results.profiling.bound import Bound, bound, layer_bounds
from utvm_deploy.targets.emulator import CycleModel
from utvm_deploy.targets.table import TIMINGS


@pytest.mark.parametrize(
    ("name", "macs", "inputs", "weights", "outputs", "expected"),
    [
        # A convolution lives from its multiplications: 1000 SMLAD, one a cycle.
        ("mps2_an500", 2000, 64, 64, 64, Bound(1000, 1000, "multiply")),
        # A dense layer from its weights: 16384 SMLAD and 8192 + 32 words and 64 stores, two
        # instructions a cycle; 1024 lines of weights, of which the cache may have kept 128.
        (
            "mps2_an500", 32768, 128, 32768, 256,
            Bound(16384, 16384 + 22 * (1024 - 128), "multiply"),
        ),
        # Pooling from its input, two words a cycle beside each other.
        ("mps2_an500", 0, 4000, 0, 1000, Bound(625, 625, "issue")),
        ("mps2_an500", 0, 4000, 0, 4, Bound(501, 501, "issue")),
        # One instruction a cycle: everything adds up.
        ("mps2_an386", 2000, 64, 64, 64, Bound(1000 + 32 + 16, 1048, "issue")),
        # No SMLAD, and two cycles for MLA.
        ("mps2_an385", 2000, 64, 64, 64, Bound(4000 + 32 + 16, 4048, "issue")),
        # Eight products in a cycle, and eight bytes.
        ("mps3_an547", 2000, 64, 64, 64, Bound(250, 250, "multiply")),
        # Two products by MUL of three cycles and an addition; loads and stores take two cycles.
        ("qemu_ibex", 2000, 64, 64, 64, Bound(1000 * 4 + 32 * 2 + 16 * 2, 4096, "issue")),
    ],
)  # fmt: skip
def test_bound(
    name: str, macs: int, inputs: int, weights: int, outputs: int, expected: Bound
) -> None:
    found = load_board(name)
    got = bound(
        TIMINGS[found.cpu.core],
        CycleModel.for_board(found),
        macs_each=max(TIMINGS[found.cpu.core].products, 2 if found.cpu.dsp else 1),
        macs=macs,
        input_bytes=inputs,
        weight_bytes=weights,
        output_bytes=outputs,
    )
    assert got == expected


def test_a_winograd_kernel_multiplies_less_often(tmp_path: Path) -> None:
    """3 x 3 tiles of 36 products instead of 12 x 11 outputs of 9, for each pair of channels."""
    path = tmp_path / "model.tflite"
    rng = np.random.default_rng(4)
    m = ModelWriter()
    x = m.input((1, 12, 11, 16), 0.05, 3)
    weights = rng.integers(-128, 128, (16, 3, 3, 16), dtype=np.int8)
    bias = rng.integers(-999, 999, 16, dtype=np.int32)
    m.output(m.conv2d(x, weights, bias, padding="SAME", scale=1.5))
    m.save(path)
    board, graph = load_board("mps2_an500"), simplify(load_model(path))
    found = []
    for level in (Objective.TIME, Objective.SIZE):
        compiled = compile_model(
            path, board, CompileOptions(objective=Objective(level), scratch=STACK)
        )
        bounds = layer_bounds(compiled, graph, board)
        assert bounds is not None and bounds[0] is not None
        found.append((compiled.layers[0].products, bounds[0].core))
    winograd, sums = 3 * 3 * 36 * 16 * 16, 12 * 11 * 9 * 16 * 16
    assert found == [(winograd, winograd // 2), (None, sums // 2)]
