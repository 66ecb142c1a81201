"""The default schedule of PrimFuncs: the bits of TVM's loops, in fewer cycles and bytes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from relax_operators import EXACT, Case, Given, constant, inputs_of, module_of, op

import utvm_deploy
from utvm_deploy.compiler.compiled.model import CompiledModel
from utvm_deploy.kernels.portable.call_tir import TirKernel

CASES = (
    Case("matmul", (Given((8, 24)), Given((24, 16))), op.matmul, EXACT),
    Case("pool", (Given((1, 4, 8, 8)),), lambda x: op.nn.avg_pool2d(x, (2, 2), (2, 2))),
    Case("mean", (Given((1, 6, 6, 16)),), lambda x: op.mean(x, axis=[1, 2])),
    Case("softmax", (Given((1, 8, 16)),), lambda x: op.nn.softmax(x, axis=-1)),
    Case(
        "transposed",
        (Given((1, 4, 5, 5)),),
        lambda x: op.nn.conv2d_transpose(x, constant(4, 4, 3, 3), strides=2, padding=1),
    ),
    Case("attention", (Given((1, 8, 2, 8)),) * 3, op.nn.attention),
)


def compiled_and_run() -> tuple[CompiledModel, list[bytes], list[int]]:
    """All cases on one boot: the model, its outputs, and the modelled cycles of each layer."""
    compiled = utvm_deploy.compile(module_of(CASES), "mps2_an500", name="cases")
    inputs = inputs_of(CASES, 7)
    with utvm_deploy.connect("mps2_an500") as device:
        model = device.load(compiled, into="ram")
        outputs = model(*inputs)
        return compiled, [one.tobytes() for one in outputs], model.run_timed(inputs)


@pytest.mark.tools
def test_a_schedule_keeps_the_bits_and_saves_cycles(monkeypatch: pytest.MonkeyPatch) -> None:
    compiled, outputs, cycles = compiled_and_run()

    def unscheduled(self: TirKernel, sch: Any, core: str) -> str:
        return "TVM's loops"

    monkeypatch.setattr(TirKernel, "schedule", unscheduled)
    plain, plain_outputs, plain_cycles = compiled_and_run()
    assert outputs == plain_outputs
    assert sum(cycles) <= 0.75 * sum(plain_cycles), (cycles, plain_cycles)
    ratios = dict(zip((case.name for case in CASES), np.divide(cycles, plain_cycles), strict=True))
    assert ratios["matmul"] <= 0.5 and ratios["mean"] <= 0.8
    # The short rows of the softmax pay for its small buffers.
    assert max(ratios.values()) <= 1.25
    scratch = [sum(one.scratch_bytes for one in model.layers) for model in (compiled, plain)]
    assert scratch[0] < scratch[1]


def test_products_are_counted() -> None:
    graph = utvm_deploy.from_relax(module_of(CASES))
    macs = [getattr(operator.attributes, "macs", 0) for operator in graph.operators]
    # The transposed convolution is counted with the zeros between its elements.
    assert macs[:4] == [8 * 24 * 16, 0, 0, 0]
    assert macs[4] == 4 * 4 * 9 * 9 * 9 and macs[5] == 2 * 2 * 8 * 8 * 8
