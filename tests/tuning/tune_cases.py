"""A small model to tune, and a builder whose candidates can be sabotaged."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
from tflite_writer import ModelWriter

from utvm_deploy.frontend.tflite import load_model
from utvm_deploy.graph.model import Graph, Operator
from utvm_deploy.graph.passes.simplify import simplify
from utvm_deploy.kernels.contract.c_function import CFunction
from utvm_deploy.kernels.contract.call import KernelCall
from utvm_deploy.records.candidate import Candidate
from utvm_deploy.tuning.measuring import build
from utvm_deploy.tuning.measuring.workload import Work, workload


def write_model(path: Path, channels: int = 4) -> Path:
    """Two equal convolutions, a pool, a dense layer and a softmax."""
    rng = np.random.default_rng(3)

    def weights(*shape: int) -> np.ndarray:
        return rng.integers(-127, 128, shape, dtype=np.int8)

    def bias(count: int) -> np.ndarray:
        return rng.integers(-500, 500, count, dtype=np.int32)

    m = ModelWriter()
    x = m.input((1, 6, 6, channels), 0.1, 5)
    for _ in range(2):
        x = m.conv2d(x, weights(channels, 3, 3, channels), bias(channels), scale=2.0)
    x = m.reshape(m.max_pool(x, 2), (1, 9 * channels))
    m.output(m.softmax(m.fully_connected(x, weights(5, 9 * channels), bias(5), scale=8.0)))
    m.save(path)
    return path


def small_works(folder: Path, core: str) -> tuple[Work, ...]:
    """The kernels of that model."""
    return workload([simplify(load_model(write_model(folder / "small.tflite")))], core)


#: What a sabotaged kernel does in front of its work, by the candidate's choice "fault".
FAULTS = {
    "hang": "for (volatile int on = 1; on;) { }",
    "crash": "((void (*)(void))0xFFFFFFF0u)();",
    "trap": "__builtin_trap();",
}


class SabotagedBuilder(build.Builder):
    """Takes candidates with the choice "fault", and makes them go wrong in that way."""

    def _text(
        self, graph: Graph, operator: Operator, candidate: Candidate
    ) -> tuple[KernelCall, CFunction, str]:
        fault = candidate.choice("fault")
        if fault is None:
            return super()._text(graph, operator, candidate)
        if fault == "stumble":
            raise KeyError("a generator's own mistake")
        call, function, _ = super()._text(graph, operator, Candidate(candidate.family))
        changed = replace(function, name=f"{function.name}_{fault}")
        head, body = function.text.split(" {\n", 1)
        head = head.replace(f"void {function.name}(", f"void {changed.name}(")
        if fault == "nonsense":
            body = "this is not C;\n" + body
        elif fault == "wrong":
            output = function.signature.split("(", 1)[1].split(",")[len(call.arguments) - 1]
            output = output.strip().rstrip(")").rsplit("*", 1)[1].split()[-1]
            ends = body.rstrip().removesuffix("}")
            body = f"{ends}  {output}[0] ^= 1;\n}}\n"
        elif fault == "overrun":
            output = function.signature.split("(", 1)[1].split(",")[len(call.arguments) - 1]
            output = output.strip().rstrip(")").rsplit("*", 1)[1].split()[-1]
            body = f"{output}[-1] = 7;\n{body}"
        else:
            body = f"{FAULTS[str(fault)]}\n{body}"
        signature = function.signature.replace(f"void {function.name}(", f"void {changed.name}(")
        changed = replace(changed, signature=signature, text=f"{head} {{\n{body}")
        return call, changed, build.kernel_text([changed])


def sabotaged(work: Work, *faults: str) -> Work:
    """The work with candidates that go wrong between those that do not."""
    family = work.default.family
    wrong = [Candidate.of(family, fault=fault) for fault in faults]
    first, *rest = work.candidates
    return replace(work, candidates=(first, *wrong, *rest))
