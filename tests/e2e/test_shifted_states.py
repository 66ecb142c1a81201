"""States that hold the last columns of a tensor move within their bytes."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from tflite_writer import ModelWriter

import utvm_deploy
from utvm_deploy.device import Device
from utvm_deploy.frontend.tflite import load_model
from utvm_deploy.graph.passes.simplify import simplify

KEPT = 7
Net = Callable[[ModelWriter], None]


def net(
    axis: int = 1,
    added: int = 2,
    *,
    begin: int | None = None,
    read_twice: bool = False,
    is_output: bool = False,
    dtype: str = "int8",
) -> Net:
    """Columns that come in, joined with those of earlier runs, of which the last are kept."""

    def write(m: ModelWriter) -> None:
        def shape(columns: int) -> list[int]:
            extents = [1, 3, 3, 5]
            extents[axis] = columns
            return extents

        scale = 0.1 if dtype == "int8" else None
        first = np.arange(np.prod(shape(KEPT))).reshape(shape(KEPT)).astype(dtype)
        handle = m.variable("columns", first, scale)
        held = m.read(handle, shape(KEPT), scale, dtype=dtype)
        x = m.input(shape(added))
        x = x if dtype == "int8" else m.dequantize(x)
        options = ("ConcatenationOptions", {"Axis": axis})
        joined = m.node(
            "CONCATENATION", [held, x], shape(KEPT + added), options, scale=scale, dtype=dtype
        )
        m.output(m.node("ABS", [joined], shape(KEPT + added), scale=scale, dtype=dtype))
        begins = [0, 0, 0, 0]
        begins[axis] = added if begin is None else begin
        ends = [m.constant(np.array(one, np.int32)) for one in (begins, shape(KEPT))]
        kept = m.node("SLICE", [joined, *ends], shape(KEPT), scale=scale, dtype=dtype)
        if read_twice:
            m.output(m.node("ABS", [held], shape(KEPT), scale=scale, dtype=dtype))
        if is_output:
            m.output(kept)
        m.assign(handle, kept)

    return write


def saved(write: Net, folder: Path) -> Path:
    m = ModelWriter()
    write(m)
    return m.save(folder / "net.tflite")


@pytest.mark.tools
@pytest.mark.parametrize("axis", [1, 2, 3])
@pytest.mark.parametrize("dtype", ["int8", "float32"])
@pytest.mark.spread(1, among=("mps2_an500", "mps2_an385", "qemu_rv32imc"))
def test_each_run_is_that_of_the_reference(
    axis: int, dtype: str, device: Device, tmp_path: Path
) -> None:
    path = saved(net(axis, dtype=dtype), tmp_path)
    compiled = utvm_deploy.compile(path, device.board)
    assert "SHIFT" in [layer.kind for layer in compiled.layers]
    # The state is the joined tensor: there is no other copy of it.
    (state,) = compiled.states
    element = np.dtype(dtype).itemsize
    assert state.size_bytes == (KEPT + 2) * 45 * element // (5 if axis == 3 else 3)
    assert utvm_deploy.verify(path, device, samples=6).ok


@pytest.mark.parametrize(
    ("write", "why"),
    [
        (net(begin=1), "others than the last columns are kept"),
        (net(added=4), "a run adds more than half of what is kept"),
        (net(read_twice=True), "the state has another reader"),
        (net(is_output=True), "what is kept is an output"),
    ],
)
def test_other_patterns_stay(write: Net, why: str, tmp_path: Path) -> None:
    graph = simplify(load_model(saved(write, tmp_path)))
    assert "SHIFT" not in [operator.kind for operator in graph.operators], why
