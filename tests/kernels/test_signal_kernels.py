"""The C routines of signal operators, compared with what TFLite Micro made."""

from __future__ import annotations

import ctypes
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pytest
from kernel_harness import Compiled
from oracle.signal_vectors import VECTORS
from signal_cases import signal_cases

from utvm_deploy.frontend.tflite import load_model
from utvm_deploy.graph.model import Array, Graph
from utvm_deploy.kernels.choose.lowering import lower
from utvm_deploy.kernels.contract.call import ConstantArgument, KernelCall, ScalarArgument

CASES = signal_cases()


@pytest.mark.tools
def test_c_makes_what_micro_makes(tmp_path: Path) -> None:
    graphs = {
        name: load_model(case.save(tmp_path / "model.tflite")) for name, case in CASES.items()
    }
    calls = {name: lower(graph, graph.operators[0]) for name, graph in graphs.items()}
    compiled = Compiled()
    outputs = {calls[name].kernel: len(graphs[name].operators[0].outputs) for name in CASES}
    compiled.build(list(outputs), tmp_path, "generic", outputs=outputs)
    with np.load(VECTORS) as vectors:
        failures = [
            failure
            for name, graph in graphs.items()
            for failure in _failures(name, graph, calls[name], compiled, dict(vectors))
        ]
    assert not failures


def _failures(
    name: str, graph: Graph, call: KernelCall, compiled: Compiled, vectors: Mapping[str, Array]
) -> list[str]:
    """Outputs that differ; a state is written where it was read."""
    case, wrong = CASES[name], []
    same = dict(call.in_place)
    buffers = {
        number: np.zeros(one.shape, one.dtype)
        for number, one in enumerate(graph.tensors)
        if one.data is None and number not in same
    }
    buffers |= {made: buffers[read] for made, read in same.items()}
    for run, sample in enumerate(zip(*case.inputs, strict=True)):
        for number, array in zip(graph.inputs, sample, strict=True):
            buffers[number][...] = array
        _run(call, compiled, buffers)
        for position in case.counting(vectors, name, run):
            made = buffers[graph.outputs[position]]
            if made.tobytes() != vectors[f"{name}/{position}"][run].tobytes():
                wrong.append(f"{name}, run {run}, output {position}")
    return wrong


def _run(call: KernelCall, compiled: Compiled, buffers: Mapping[int, Array]) -> None:
    arguments: list[object] = []
    for one in call.arguments:
        if isinstance(one, ScalarArgument):
            arguments.append(ctypes.c_int32(one.value))
            continue
        data = one.data if isinstance(one, ConstantArgument) else buffers[one.tensor]
        arguments.append(ctypes.c_void_p(data.ctypes.data))
    assert compiled.library is not None
    compiled.library[compiled.functions[call.kernel].name](*arguments)
