"""Records of schedules with tensor intrinsics: they replay in processes that registered none."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from small_models import int8
from tflite_writer import ModelWriter
from tvm.s_tir import meta_schedule as ms
from tvm.target import Target

from utvm_deploy import intrinsics
from utvm_deploy.base.errors import UnsupportedOperator
from utvm_deploy.compiler.lowering.kernel_function import candidate_function, record_code
from utvm_deploy.frontend.tflite import load_model
from utvm_deploy.graph.model import Graph
from utvm_deploy.graph.passes.simplify import simplify
from utvm_deploy.kernels.choose.lowering import lower
from utvm_deploy.kernels.choose.space import identity_of
from utvm_deploy.kernels.portable.schedules.given_trace import TRACE, candidate_with
from utvm_deploy.kernels.portable.schedules.template_free import loops_of
from utvm_deploy.oracle.reference import run_reference
from utvm_deploy.records import RECORD, Measurement, Record, Setting
from utvm_deploy.records.candidate import GENERIC, Candidate

#: Compiles with records and runs on a board; prints where the kernels are from, and the output.
FOLLOW = """
import sys
import numpy as np
import utvm_deploy
model, board, records, given = sys.argv[1:]
compiled = utvm_deploy.compile(model, board, records=records)
with utvm_deploy.connect(board) as device:
    found = device.load(compiled)(np.load(given))
print(*sorted({layer.origin for layer in compiled.layers}), np.asarray(found).tobytes().hex())
"""


def dense_model(folder: Path) -> Path:
    rng = np.random.default_rng(2)
    writer = ModelWriter()
    bias = rng.integers(-500, 500, 16, dtype=np.int32)
    x = writer.input((4, 64), 0.1, 5)
    writer.output(writer.fully_connected(x, int8(rng, 16, 64), bias, scale=2.0))
    writer.save(folder / "dense.tflite")
    return folder / "dense.tflite"


def tensorized(graph: Graph) -> Any:
    """A trace that TVM's RewriteTensorize made of the graph's kernel."""
    func = loops_of(lower(graph, graph.operators[0]).kernel)
    numbers = {one: 3 for one in func.params if type(one.ty).__name__ != "BufferType"}
    context = ms.TuneContext(
        mod=func.specialize(numbers),
        target=Target("c"),
        space_generator=intrinsics.space(func.specialize(numbers), intrinsics.DSP),
        search_strategy="replay-trace",
        num_threads=1,
        rand_state=1,
    )
    for sch in context.generate_design_space():
        kinds = [one.kind.name for one in sch.trace.insts]
        if "Tensorize" not in kinds and "ReverseComputeAt" in kinds:
            sch.enter_postproc()
            if all(step.apply(sch) for step in context.space_generator.postprocs):
                return sch.trace
    raise AssertionError("TVM's rule made no sketch")


def check_followed(path: Path, board: str, records: Iterable[Record], folder: Path) -> None:
    """A fresh process compiles every layer by the records, and the output is right."""
    written, given = folder / "followed.jsonl", folder / "x.npy"
    written.write_text("".join(f"{record.to_line()}\n" for record in records))
    graph = simplify(load_model(path))
    shape = graph.tensors[graph.inputs[0]].shape
    x = np.random.default_rng(1).integers(-128, 128, shape, dtype=np.int8)
    np.save(given, x)
    done = subprocess.run(
        [sys.executable, "-c", FOLLOW, path, board, written, given],
        check=True,
        capture_output=True,
        text=True,
        timeout=120,
    )
    ((expected,),) = run_reference(path, [[x]]).outputs
    assert done.stdout.split() == [RECORD, expected.tobytes().hex()]


@pytest.mark.tools
def test_a_fresh_process_follows_a_record_with_a_tensor_intrinsic(tmp_path: Path) -> None:
    path = dense_model(tmp_path)
    graph = simplify(load_model(path))
    (operator,) = graph.operators
    candidate = candidate_with(tensorized(graph))
    assert "utvm_dsp_dot_" in str(candidate.choice(TRACE))
    function = candidate_function(graph, operator, "host", candidate)[1]
    assert "utvm_dsp_dot_" in function.text
    setting = Setting("host", "gcc", "", "0.1.0", "nanoseconds")
    record = Record(
        identity_of(graph, operator),
        setting,
        candidate,
        Measurement(5, 5.0),
        code=record_code(function),
    )
    check_followed(path, "host", [record], tmp_path)


@pytest.mark.parametrize(
    "name",
    [
        "utvm_dsp_dot_4x16x64x2",
        "utvm_dsp_dot_4x15x64",
        "utvm_dsp_dot_04x16x64",
        "utvm_neon_dot_4x16x64",
        "dot_16x1x16_uint8_int8_int32_cascadelake",
        "",
    ],
)
def test_an_unknown_tensor_intrinsic_is_refused_in_a_sentence(name: str, tmp_path: Path) -> None:
    graph = simplify(load_model(dense_model(tmp_path)))
    instruction = ["Tensorize", ["l0"], [name, True], []]
    trace = json.dumps([[instruction], []])
    reason = f"its trace has the tensor intrinsic {name!r}, which this version does not have"
    with pytest.raises(UnsupportedOperator, match=reason):
        lower(graph, graph.operators[0], "host", Candidate.of(GENERIC, trace=trace))
