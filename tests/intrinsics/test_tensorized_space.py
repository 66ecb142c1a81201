"""meta_schedule tunes PrimFuncs with the tensor intrinsics, and measures nothing without them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import tvm
from tvm import s_tir, te

import utvm_deploy
from utvm_deploy import intrinsics
from utvm_deploy.base.errors import CompileError
from utvm_deploy.intrinsics import DSP, HWOI, Dot
from utvm_deploy.tuning.searching.meta_schedule import DeviceTuning
from utvm_deploy.tuning.searching.prim_funcs import tasks_of_module


def own_product() -> Any:
    """A PrimFunc such as a user writes, with names of theirs."""
    signal = te.placeholder((16, 24), "int8", "signal")
    filters = te.placeholder((8, 24), "int8", "filters")
    lag = te.reduce_axis((0, 24), "lag")

    def response(t: Any, f: Any) -> Any:
        return te.sum(signal[t, lag].astype("int32") * filters[f, lag].astype("int32"), axis=lag)

    return te.create_prim_func([signal, filters, te.compute((16, 8), response, name="response")])


@pytest.mark.tools
@pytest.mark.parametrize("func", [own_product(), intrinsics.conv2d(6, 6, 4, 4, padding=(1, 1))])
def test_a_prim_func_is_tuned_with_intrinsics(func: Any, tmp_path: Path) -> None:
    with utvm_deploy.connect("host") as device:
        tuning = DeviceTuning(device, func)
        database = tuning.tune(tmp_path, 4, space=intrinsics.space(func, DSP))
    records = database.get_all_tuning_records()
    assert len(records) >= 2
    for record in records:
        sch = s_tir.Schedule(record.workload.mod)
        record.trace.apply_to_schedule(sch, remove_postproc=False)
        assert intrinsics.intrinsics_in(sch)


def test_tvms_rule_gets_the_tiles_that_fit() -> None:
    tiles = intrinsics.sketched(intrinsics.conv2d(10, 10, 32, 16, layout=HWOI), DSP)
    assert tiles[0] == Dot(DSP, 8, 16, 32)
    # Windows of these must be gathered first, which TVM's rule does not do.
    assert not intrinsics.sketched(intrinsics.conv2d(10, 10, 32, 16), DSP)


def test_what_rewrite_tensorize_leaves_plain_is_left_out() -> None:
    func = own_product()
    *_, only_tensorized = intrinsics.space(func, DSP).postprocs
    plain = s_tir.Schedule(func)
    assert not intrinsics.intrinsics_in(plain)
    assert not only_tensorized.apply(plain)
    block = plain.get_sblock("response")
    used = intrinsics.tensorize(plain, block, DSP)
    assert intrinsics.intrinsics_in(plain) == (used.name,)
    assert only_tensorized.apply(plain)


def test_a_space_without_a_fit_is_refused() -> None:
    a = te.placeholder((8, 8), "int8", "a")
    doubled = te.create_prim_func([a, te.compute((8, 8), lambda i, j: a[i, j] + a[i, j])])
    with pytest.raises(CompileError, match="do not fit a PrimFunc with 0 sums"):
        intrinsics.space(doubled, DSP)


def test_a_long_prim_func_gets_time_for_its_sums() -> None:
    (task,) = tasks_of_module(tvm.IRModule({"main": intrinsics.conv2d(10, 10, 8, 4)}))
    assert task.work.kernel.macs == 8 * 8 * 4 * 3 * 3 * 8
