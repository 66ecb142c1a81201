"""Traces of TVM's searches as candidates: what is replayed, what is refused, and the example."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tvm import s_tir
from tvm.s_tir.schedule import Trace

import utvm_deploy
from tests.tuning.test_template_free import graph_of, model, work_of
from utvm_deploy.base.errors import TuneError, UnsupportedOperator
from utvm_deploy.boards.board import load_board
from utvm_deploy.compiler.lowering.kernel_function import candidate_function, record_code
from utvm_deploy.compiler.options import CompileOptions
from utvm_deploy.compiler.stages.pipeline import compile_model
from utvm_deploy.kernels.choose.lowering import lower
from utvm_deploy.kernels.choose.space import identity_of
from utvm_deploy.kernels.portable.schedules.given_trace import TRACE, candidate_with
from utvm_deploy.oracle.reference import run_reference
from utvm_deploy.records import RECORD, Measurement, Record, Records, Setting
from utvm_deploy.records.candidate import GENERIC, Candidate

EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "tune_relax" / "tune_relax.py"


def searched(func: Any) -> Trace:
    """A schedule that no rule of ours makes: the outputs in reverse order, unrolled by two."""
    sch = s_tir.Schedule(func)
    rows, columns, depth = sch.get_loops(sch.get_sblock("sums"))
    sch.reorder(columns, rows, depth)
    sch.decompose_reduction(sch.get_sblock("sums"), depth)
    _, inner = sch.split(columns, [None, 2])
    sch.unroll(inner)
    return sch.trace


@pytest.mark.tools
def test_a_record_with_a_trace_is_compiled_and_exact(tmp_path: Path) -> None:
    path = model(tmp_path, "float_dense")
    graph = graph_of(path)
    (operator,) = graph.operators
    candidate = candidate_with(searched(lower(graph, operator).kernel.prim_func()))
    code = record_code(candidate_function(graph, operator, "host", candidate)[1])
    assert code != record_code(candidate_function(graph, operator, "host", Candidate(GENERIC))[1])
    setting = Setting("host", "gcc", "", "0.1.0", "nanoseconds")
    line = Record(identity_of(graph, operator), setting, candidate, Measurement(5, 5.0), code=code)
    known = Records([Record.from_line(line.to_line())])
    compiled = compile_model(path, load_board("host"), CompileOptions(records=known))
    (layer,) = compiled.layers
    assert len(candidate.label) < 80  # as tables show it
    assert layer.origin == RECORD and "TVM's search" in layer.why
    given = np.random.default_rng(1).normal(size=(2, 40)).astype(np.float32)
    ((expected,),) = run_reference(path, [given]).outputs
    with utvm_deploy.connect("host") as device:
        found = device.load(compiled, into="ram")(given)
    assert np.asarray(found).tobytes() == expected.tobytes()


def changed(trace: Trace, instruction: list[Any]) -> str:
    instructions, decisions = json.loads(str(candidate_with(trace).choice(TRACE)))
    return json.dumps([[*instructions, instruction], decisions])


def test_traces_that_are_refused(tmp_path: Path) -> None:
    graph = graph_of(model(tmp_path, "float_dense"))
    (operator,) = graph.operators
    trace = searched(lower(graph, operator).kernel.prim_func())
    code = '"void evil(void);"'
    refused = {
        "not a trace of TVM's": "[[1, 2]",
        "annotates 'pragma_import_c'": changed(
            trace, ["Annotate", ["l1", code], ["pragma_import_c"], []]
        ),
        "instruction UnsafeSetDType": changed(trace, ["UnsafeSetDType", ["b0"], [0, "int8"], []]),
        "TVM cannot replay its trace": changed(trace, ["Unroll", ["l999"], [], []]),
    }
    for reason, text in refused.items():
        with pytest.raises(UnsupportedOperator, match=reason):
            lower(graph, operator, "host", Candidate.of(GENERIC, trace=text))


def test_a_trace_of_another_kernel_is_no_candidate(tmp_path: Path) -> None:
    graph = graph_of(model(tmp_path, "float_dense"))
    trace = searched(lower(graph, graph.operators[0]).kernel.prim_func())
    other = work_of(model(tmp_path, "matmul"))
    with pytest.raises(UnsupportedOperator, match="TVM cannot replay its trace on "):
        lower(other.graph, other.operator, "host", candidate_with(trace))


@pytest.mark.emulator
def test_the_example(tmp_path: Path) -> None:
    command = [sys.executable, str(EXAMPLE), "--trials", "24"]
    done = subprocess.run(
        command, cwd=tmp_path, check=True, capture_output=True, text=True, timeout=300
    )
    numbers = re.findall(r"whole model: (\d+) -> (\d+) modelled cycles", done.stdout)
    # So few trials may find nothing faster.
    assert bool(numbers) != ("no schedule is faster than the default" in done.stdout)
    assert all(0 < int(after) <= int(before) for before, after in numbers)
    assert (tmp_path / "records.jsonl").is_file()


def test_a_database_of_other_prim_funcs_is_refused(tmp_path: Path) -> None:
    from utvm_deploy.tuning.searching.meta_schedule import ms
    from utvm_deploy.tuning.tvm_records import save_records

    graph = graph_of(model(tmp_path, "float_dense"))
    refused = pytest.raises(TuneError, match=r"TVM's database has no schedule of a kernel of")
    with utvm_deploy.connect("host") as device, refused:
        save_records(ms.database.MemoryDatabase(), graph, device, tmp_path / "r.jsonl")
    assert not (tmp_path / "r.jsonl").exists()
