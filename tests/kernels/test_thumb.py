"""The Thumb-2 family: odd shapes on emulated cores and as plain C, its tiles, its intrinsics."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from kernel_harness import check
from odd_shapes import (
    DENSE,
    SHAPES,
    compare_candidates,
    compare_on,
    write_convolutions,
    write_dense,
)
from tflite_writer import ModelWriter
from tvm import s_tir

from utvm_deploy.device import Device
from utvm_deploy.frontend.tflite import load_model
from utvm_deploy.kernels.lowering import lower
from utvm_deploy.kernels.thumb.gemm import TILES

CORE = "cortex-m3"


@pytest.mark.parametrize("write", [write_convolutions, write_dense])
def test_odd_shapes_on_cores(
    device: Device, write: Callable[[Path], ModelWriter], tmp_path: Path
) -> None:
    if device.board.cpu.dsp or not device.board.cpu.facts.is_arm:
        pytest.skip(f"{device.board.name} has other kernels")
    compare_on(device, tmp_path, write, "Thumb-2 assembly", scales_up=False)


def test_odd_convolutions_in_plain_c(tmp_path: Path) -> None:
    model = write_convolutions(tmp_path / "convolutions.tflite")
    assert check(model, tmp_path, core=CORE) == len(SHAPES) + len(SHAPES[2::3])


def test_odd_dense_layers_in_plain_c(tmp_path: Path) -> None:
    model = write_dense(tmp_path / "dense.tflite")
    assert check(model, tmp_path, core=CORE) == len(DENSE)


def test_inner_blocks_are_tensorized(tmp_path: Path) -> None:
    functions = set()
    for write in (write_convolutions, write_dense):
        path = tmp_path / "model.tflite"
        write(path)
        graph = load_model(path)
        for operator in graph.operators[: len(SHAPES)]:
            call = lower(graph, operator, CORE)
            assert not call.why_not
            schedule = s_tir.Schedule(call.kernel.prim_func())
            before = schedule.mod["main"].script()
            call.kernel.schedule(schedule, CORE)
            after = schedule.mod["main"].script()
            called = f'T.call_extern("int32", "{call.kernel.product.function}",'
            assert called in after and called not in before
            functions.add(call.kernel.product.function)
            # Nothing is left of the products.
            assert "product" in before and 'T.sblock("product' not in after
    assert functions >= {
        "utvm_thumb_depthwise_3x3_slide",
        "utvm_thumb_depthwise_3x3",
        "utvm_thumb_depthwise_5x5",
        "utvm_thumb_depthwise_2x7",
        "utvm_thumb_depthwise_4x1",
    }
    for kind in ("gemm_2", "gemm_wide_1", "gemm_wide_each_1"):
        assert any(name.startswith(f"utvm_thumb_{kind}") for name in functions), kind


def test_all_candidates_on_cores(device: Device, tmp_path: Path) -> None:
    if device.board.cpu.dsp or not device.board.cpu.facts.is_arm:
        pytest.skip(f"{device.board.name} has other kernels")
    # Each tile pointwise, dense, and gathered in three sizes.
    assert compare_candidates(device, tmp_path, "thumb") >= 5 * len(TILES)
