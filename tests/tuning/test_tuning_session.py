"""What a measuring process elsewhere is told of the kernels of a tuning."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.tuning.test_template_free import graph_of, model
from utvm_deploy.boards.board import load_board
from utvm_deploy.tuning.measuring.messages import Session, packed, session_of, unpacked
from utvm_deploy.tuning.measuring.workload import workload


@pytest.mark.parametrize("sketches", [False, True])
def test_tables_are_where_a_tuning_here_has_them(sketches: bool, tmp_path: Path) -> None:
    """Weights in RAM would make a worker's ticks differ from those of the model."""
    graphs = [graph_of(model(tmp_path, name)) for name in ("float_dense", "convolution")]
    works = workload(graphs, "cortex-m7", sketches=sketches)
    assert [work.tables_in_image for work in works] == [work.free is not None for work in works]
    board = load_board("mps2_an500")
    session = unpacked(packed(session_of(board, works, "time")))
    assert isinstance(session, Session)
    assert [one.tables_in_image for one in session.works] == [True, sketches]
