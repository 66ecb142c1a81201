"""The DSP family: its intrinsics, its arithmetic, its order."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from kernel_harness import call_of, check
from odd_shapes import SHAPES, write_additions, write_convolutions, write_dense
from test_two_inputs import write_two_inputs
from tflite_writer import ModelWriter

from utvm_deploy.compiler.lowering.lowered_kernel import lower_kernel
from utvm_deploy.frontend.tflite import load_model
from utvm_deploy.kernels.choose.lowering import lower
from utvm_deploy.kernels.contract.call import ConstantArgument, KernelCall, LibraryKernel
from utvm_deploy.kernels.contract.requantization import quantize_multipliers, requantized
from utvm_deploy.kernels.isa.assembler import Assembler
from utvm_deploy.kernels.isa.list_scheduler import cycles, ordered
from utvm_deploy.kernels.native.dsp.assembly import patches_code, tile
from utvm_deploy.kernels.native.scaling import short_scaling
from utvm_deploy.records.candidate import COMPACT_LITTLE, COMPACT_MOST, Candidate
from utvm_deploy.targets.arm_m.timing_m4 import CORTEX_M4
from utvm_deploy.targets.arm_m.timing_m7 import CORTEX_M7


@pytest.mark.tools
def test_additions_in_plain_c(tmp_path: Path) -> None:
    model = write_additions(tmp_path / "model.tflite")
    assert check(model, tmp_path, core="cortex-m7")


@pytest.mark.tools
@pytest.mark.parametrize(
    ("write", "level"),
    [
        (write_convolutions, COMPACT_LITTLE),
        (write_convolutions, COMPACT_MOST),
        (write_two_inputs, 1),
    ],
)
def test_kernels_of_few_bytes(
    write: Callable[[Path], ModelWriter], level: int, tmp_path: Path
) -> None:
    model = write(tmp_path / "model.tflite")
    assert check(model, tmp_path, core="cortex-m7", family=f"dsp compact={level}")
    graph = load_model(tmp_path / "model.tflite")
    smaller = 0
    for operator in graph.operators:
        plain = call_of(graph, operator, "cortex-m7", "dsp")
        compact = call_of(graph, operator, "cortex-m7", f"dsp compact={level}")
        if not 0 < plain.heeds_compact <= level:
            assert compact.kernel == plain.kernel
        smaller += table_bytes(compact) < table_bytes(plain)
    assert smaller >= 4


def table_bytes(call: KernelCall) -> int:
    return sum(one.data.nbytes for one in call.arguments if isinstance(one, ConstantArgument))


MICRO_KERNELS = (
    "utvm_gemm_8",
    "utvm_gemm_16",
    "utvm_gemm_whole_8",
    "utvm_gemm_whole_40",
    "utvm_columns_36_by_72_2",
    "utvm_columns_whole_4_by_8_0",
    "utvm_depthwise_3x3",
    "utvm_depthwise",
    "utvm_planes_3x3_s1_odd_by_8_shifted",
    "utvm_planes_3x3_s1_odd_by_3_single",
    "utvm_planes_3x4_s1_by_4_partial",
    "utvm_dense_8",
    "utvm_dense_16",
    "utvm_dense_8_channels",
    "utvm_dense_16_channels",
    "utvm_dense_8_and_4",
    "utvm_dense_8_and_5",
    "utvm_dense_16_channels_and_1",
    "utvm_dense_8_channels_and_3",
    "utvm_narrow_7",
    "utvm_narrow_7_channels",
)


@pytest.mark.slow
@pytest.mark.parametrize("core", ["cortex-m4", "cortex-m7"])
def test_drivers_call_the_routines(core: str, tmp_path: Path) -> None:
    write_convolutions(tmp_path / "convolutions.tflite")
    write_dense(tmp_path / "dense.tflite")
    graphs = [load_model(tmp_path / f"{name}.tflite") for name in ("convolutions", "dense")]
    called = set()
    operators = [(one, op) for one in graphs for op in one.operators[: len(SHAPES)]]
    # By default; convolutions over patches and dense layers by six, too.
    choices = {
        "CONV_2D": Candidate.of("dsp", pixels=12),
        "FULLY_CONNECTED": Candidate.of("dsp", step=16),
    }
    jobs = [(graph, op, one) for graph, op in operators for one in (None, choices.get(op.kind))]
    for graph, operator, candidate in jobs:
        call = lower(graph, operator, core, candidate)
        assert not call.why_not
        assert not isinstance(call.kernel, LibraryKernel)
        text = lower_kernel(call.kernel, "kernel", core).function.text
        called |= {function for function in MICRO_KERNELS if f"{function}(" in text}
    assert called == set(MICRO_KERNELS)


def test_short_requantization_equals_the_reference() -> None:
    rng = np.random.default_rng(3)
    for _ in range(200):
        scale = float(2.0 ** rng.uniform(-20, -1.01))
        zero_point = int(rng.integers(-128, 128))
        multiplier, shift = quantize_multipliers([scale])
        bias = rng.integers(-(2**20), 2**20, 1, dtype=np.int32)
        weights = rng.integers(-127, 128, (1, 64), dtype=np.int8)
        scaling = short_scaling(bias, weights, multiplier, shift, zero_point)
        assert not isinstance(scaling, str)
        right = int(scaling.shift[0])
        # Values around the middle between two results, and the smallest magnitudes.
        centre = int((int(rng.integers(-140, 140)) + 0.5) / scale)
        values = [*range(-3, 4), *range(centre - 3, centre + 4)]
        for value in values:
            product = (2 * value * int(scaling.multiplier[0]) + 0x80000000) >> 32
            short = (product + int(scaling.offset[0]) - (value < 0)) >> right
            if int(scaling.multiplier[0]) == 0:
                continue
            assert short == requantized(value, int(multiplier[0]), int(shift[0])) + zero_point


def test_order_is_as_fast_as_the_units_allow() -> None:
    step = patches_code.DEPTH_STEP
    a = Assembler()
    tile.step(a, tile.PIXELS, step, patches_code.place, step * tile.PIXELS * 2, is_whole=False)
    loop = a.code
    issued = ordered(loop, CORTEX_M7, is_loop=True)
    assert sorted(i.text for i in issued) == sorted(i.text for i in loop)
    # 24 products, one a cycle, and 26 instructions beside them.
    assert cycles(issued, CORTEX_M7, repeat=10) <= 10 * 26 + 2
    alone = ordered(loop, CORTEX_M4, is_loop=True)
    assert cycles(alone, CORTEX_M4, repeat=10) < cycles(loop, CORTEX_M4, repeat=10)
