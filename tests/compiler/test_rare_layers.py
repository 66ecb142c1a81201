"""At level size, kinds of layers that hardly count are in plain C, and others share one routine."""

from __future__ import annotations

import re

import pytest

import utvm_deploy
from utvm_deploy.base.paths import data_dir
from utvm_deploy.boards.board import load_board
from utvm_deploy.compiler.compiled.model import CompiledModel
from utvm_deploy.compiler.options import STACK, Objective
from utvm_deploy.compiler.planning.choice import WHY_RARE
from utvm_deploy.compiler.planning.rare_layers import rare_kinds
from utvm_deploy.frontend.tflite import load_model
from utvm_deploy.graph.passes.simplify import simplify
from utvm_deploy.kernels.choose.lowering import lower
from utvm_deploy.kernels.native.dense import DenseLayer
from utvm_deploy.kernels.native.dsp.dense_six_outputs import SixOutputs
from utvm_deploy.records.candidate import COMPACT_MOST, GENERIC, Candidate

MODEL = data_dir("models") / "cifar10_cnn.tflite"
BOARD = load_board("mps2_an500")
ROUTINES = re.compile(r"^\w.* (utvm_(?:gemm|dense|columns)_\w+)\(", re.MULTILINE)


def routines(compiled: CompiledModel) -> set[str]:
    return {name for text in compiled.sources.values() for name in ROUTINES.findall(text)}


@pytest.mark.tools
def test_what_hardly_counts_is_plain_c_at_level_size() -> None:
    small, fast = (
        utvm_deploy.compile(MODEL, BOARD, optimize=level, scratch=STACK)
        for level in (Objective.SIZE, Objective.TIME)
    )
    plain = [one for one in small.layers if one.engine == GENERIC]
    assert [one.kind for one in plain] == ["AVERAGE_POOL_2D", "AVERAGE_POOL_2D", "FULLY_CONNECTED"]
    assert WHY_RARE in plain[-1].why
    assert not any(one.engine == GENERIC for one in fast.layers)
    # One routine is left for all convolutions.
    assert routines(small) == {"utvm_gemm_8_unshifted"}


def test_a_layer_that_sets_the_peak_writes_onto_its_input_still() -> None:
    graph = simplify(load_model(MODEL))
    assert rare_kinds(graph) == {"AVERAGE_POOL_2D", "FULLY_CONNECTED"}


def test_fully_connected_layers_share_a_routine_at_level_size() -> None:
    graph = simplify(load_model(MODEL))
    dense = next(one for one in graph.operators if one.kind == "FULLY_CONNECTED")
    own = Candidate("dsp")
    call = lower(graph, dense, "cortex-m7", own, compact=COMPACT_MOST)
    assert isinstance(call.kernel, DenseLayer)
    routine = call.kernel.routine
    assert isinstance(routine, SixOutputs)
    assert (routine.step, routine.tail) == (8, 0)
    assert lower(graph, dense, "cortex-m7", Candidate(GENERIC)).family == GENERIC
