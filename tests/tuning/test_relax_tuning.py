"""Tuning the PrimFuncs of a Relax module on a device, by TVM's own search."""

from __future__ import annotations

import math
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tvm
from tvm import relax, te
from tvm.target import Target

import utvm_deploy
from tests.emulator.listing import OBJDUMP
from utvm_deploy.base.errors import TaskTimeout, TuneError
from utvm_deploy.boards.board import load_board
from utvm_deploy.device import Device
from utvm_deploy.kernels.contract.call import ConstantArgument
from utvm_deploy.kernels.portable.schedules.template_free import space_of_c
from utvm_deploy.project.link_module import compile_module
from utvm_deploy.records import KernelIdentity
from utvm_deploy.tuning.measuring.inputs import Job
from utvm_deploy.tuning.measuring.loaded import Loaded
from utvm_deploy.tuning.measuring.loading import Loader
from utvm_deploy.tuning.measuring.measure import Measurer
from utvm_deploy.tuning.measuring.tolerance import TOLERANCE
from utvm_deploy.tuning.searching.meta_schedule import DeviceTuning

BOARD = "mps2_an500"


def network() -> Any:
    """A convolution, a maximum and a dense layer, lowered to PrimFuncs."""
    rng = np.random.default_rng(0)

    def constant(*shape: int) -> Any:
        return relax.const((rng.standard_normal(shape) * 0.2).astype(np.float32))

    builder = relax.BlockBuilder()
    x = relax.Var("x", relax.TensorType((1, 8, 8, 4), "float32"))
    layout = {"data_layout": "NHWC", "kernel_layout": "HWIO"}
    with builder.function("main", [x]):
        with builder.dataflow():
            y = relax.op.nn.conv2d(x, constant(3, 3, 4, 8), padding=(1, 1), **layout)
            y = builder.emit(relax.op.nn.relu(relax.op.add(y, constant(8))))
            y = builder.emit(relax.op.nn.max_pool2d(y, (2, 2), strides=(2, 2), layout="NHWC"))
            y = builder.emit(relax.op.reshape(y, (1, 128)))
            y = builder.emit(relax.op.matmul(y, constant(128, 6)))
            result = builder.emit_output(relax.op.add(y, constant(6)))
        builder.emit_func_output(result)
    t = relax.transform
    passes = [t.LegalizeOps(), t.AnnotateTIROpPattern(), t.FoldConstant()]
    passes += [t.RewriteDataflowReshape(), t.FuseOps(), t.FuseTIR(), t.DeadCodeElimination()]
    with Target("c"), tvm.transform.PassContext(opt_level=3):
        return tvm.transform.Sequential(passes)(builder.finalize())


@pytest.fixture(scope="module")
def emulated() -> Iterator[Device]:
    with utvm_deploy.connect(BOARD, link="debug") as device:
        yield device


def schedules(func: Any, count: int) -> list[Any]:
    """Random schedules of the space, each of them a module."""
    from tvm.s_tir import meta_schedule as ms

    context = ms.TuneContext(
        mod=tvm.IRModule({"main": func.with_attr("global_symbol", "main")}),
        target=Target("c"),
        space_generator=space_of_c(),
        search_strategy="replay-trace",
        num_threads=1,
        rand_state=7,
    )
    context.pre_tuning(count, count)
    return [one.sch.mod for one in context.generate_measure_candidates()]


@pytest.mark.tools
def test_all_schedules_of_the_space_compute_the_same_bits() -> None:
    """Of sums of float32 and of maxima: the rules keep the order of each sum."""
    with utvm_deploy.connect("host") as device:
        tuning = DeviceTuning(device, network(), tolerance=0)
        assert len(tuning.tasks) == 3
        modules = [mod for task in tuning.tasks for mod in schedules(task.func, 4)]
        built = tuning.build(modules)
        assert not any(error for _, error in built)
        found = tuning.run([str(key) for key, _ in built])
    assert len(found) == 12 and all(one.is_ok for one in found)


def dot(*, is_split: bool = False, factor: float = 1.0) -> Any:
    """A sum of 256 products, perhaps in another order, or of slightly other products."""
    a, b = te.placeholder((4, 256), "float32", "a"), te.placeholder((256,), "float32", "b")
    k = te.reduce_axis((0, 256), "k")
    if not is_split:
        sums = te.compute((4,), lambda i: te.sum(a[i, k] * b[k] * te.const(factor, "float32"), k))
        return te.create_prim_func([a, b, sums])
    outer, inner = te.reduce_axis((0, 16), "o"), te.reduce_axis((0, 16), "i")
    parts = te.compute(
        (4, 16), lambda i, p: te.sum(a[i, inner * 16 + p] * b[inner * 16 + p], inner)
    )
    sums = te.compute((4,), lambda i: te.sum(parts[i, outer], outer))
    return te.create_prim_func([a, b, sums])


@pytest.mark.tools
@pytest.mark.parametrize("tolerance", [0, TOLERANCE])
def test_another_order_of_additions_passes_by_the_tolerance(tolerance: float) -> None:
    with utvm_deploy.connect("host") as device:
        tuning = DeviceTuning(device, dot(), tolerance=tolerance)
        built = tuning.build([dot(), dot(is_split=True), dot(factor=1.001)])
        found = tuning.run([str(key) for key, _ in built])
    expected = ["", "" if tolerance else "wrong output", "wrong output"]
    assert [one.error for one in found] == expected
    if tolerance:
        assert "of the largest value; 1e-05 is allowed" in found[2].detail


@pytest.mark.emulator
def test_a_round_of_many_prim_funcs_reads_its_tables_from_flash(emulated: Device) -> None:
    tuning = DeviceTuning(emulated, network())
    modules = [mod for task in tuning.tasks for mod in schedules(task.func, 2)]
    built = tuning.build(modules)
    found = tuning.run([str(key) for key, _ in built])
    assert all(one.is_ok and one.ticks_min > 0 for one in found)
    dense = next(task for task in tuning.tasks if "matmul" in task.name)
    tables = [one for one in dense.arguments if isinstance(one, ConstantArgument)]
    assert [one.data.shape for one in tables] == [(128, 6), (6,)]
    # Weights in RAM would be faster than they are in a model.
    key = next(str(key) for mod, (key, _) in zip(modules, built, strict=True) if _is_of(mod, dense))
    candidate = tuning._built[key]
    with utvm_deploy.connect(BOARD, link="debug") as fresh:
        (in_ram,) = Measurer(fresh).measure([Job(dense.work, candidate)], is_compared=False)
    in_flash = found[next(i for i, (one, _) in enumerate(built) if one == key)]
    assert in_ram.ticks_min != in_flash.ticks_min


@pytest.mark.tools
def test_modules_round_products_as_images_do() -> None:
    """GCC would else fuse a multiplication and an addition, which rounds once."""
    source = "float f(float a, float b, float c) { return a * b + c; }"
    module = compile_module(source, load_board(BOARD))
    listing = subprocess.run(
        [OBJDUMP, "-d", module.path], check=True, capture_output=True, text=True
    ).stdout
    assert "vmul.f32" in listing and "vfma" not in listing


def test_prim_funcs_are_no_neighbours_of_each_other() -> None:
    """They have no extents by which one could say how near they are."""
    one, other = (KernelIdentity(name, "float32", "CALL_TIR", ()) for name in ("a", "b"))
    assert one.distance(one) == 0 and one.distance(other) == math.inf


@pytest.mark.tools
def test_tuning_a_module_needs_neither_psutil_nor_xgboost(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("psutil", "xgboost"):
        monkeypatch.setitem(sys.modules, name, None)
    with utvm_deploy.connect("host") as device:
        database = DeviceTuning(device, network()).tune(tmp_path, 16)
    tuned = {str(one.workload.mod["main"].attrs["utvm.task"]) for one in _right(database)}
    assert len(tuned) == 2  # rounds of 8


@pytest.mark.tools
@pytest.mark.parametrize("raised", [TuneError("the board is gone"), KeyboardInterrupt()])
def test_what_ends_a_tuning_comes_out_as_it_is(
    raised: BaseException, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """TVM would make a RuntimeError of it; and nothing is left behind."""

    def run(keys: Sequence[str]) -> list[Any]:
        raise raised

    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "temporary"))
    (tmp_path / "temporary").mkdir()
    with utvm_deploy.connect("host") as device:
        tuning = DeviceTuning(device, dot())
        monkeypatch.setattr(tuning, "run", run)
        with pytest.raises(type(raised)) as caught:
            tuning.tune(tmp_path / "work", 8)
        assert caught.value is raised
        (folder,) = (tmp_path / "temporary").glob("utvm-tuning*")
        assert not list(folder.iterdir())
        tuning._folder.close()


@pytest.mark.tools
def test_a_stopped_task_of_the_measurer_is_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    load, calls = Loader.load, []

    def stopped_once(loader: Loader, jobs: Sequence[Job]) -> Loaded:
        calls.append(len(jobs))
        if len(calls) == 1:
            raise TaskTimeout("task 0 did not end")
        return load(loader, jobs)

    monkeypatch.setattr(Loader, "load", stopped_once)
    with utvm_deploy.connect("host") as device:
        tuning = DeviceTuning(device, dot())
        ((key, _),) = tuning.build([dot()])
        (found,) = tuning.run([str(key)])
    assert found.is_ok and len(calls) == 2


def _right(database: Any) -> list[Any]:
    return [one for one in database.get_all_tuning_records() if float(one.run_secs[0]) < 1]


def _is_of(mod: Any, task: Any) -> bool:
    return str(mod["main"].attrs["utvm.task"]) == task.name
