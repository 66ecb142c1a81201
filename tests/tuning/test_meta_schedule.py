"""TVM's meta_schedule with our builder and runner, and the guide to it."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from tvm import s_tir, te

import utvm_deploy
from utvm_deploy.base.errors import TuneError
from utvm_deploy.tuning.searching.meta_schedule import DeviceTuning, _register_named
from utvm_deploy.tuning.searching.prim_funcs import TASK

GUIDE = Path(__file__).resolve().parents[2] / "docs" / "guides" / "tvm.md"


def product(dtype: str = "int8", rows: Any = 32) -> Any:
    """A matrix product."""
    a = te.placeholder((rows, 64), dtype, "a")
    b = te.placeholder((16, 64), dtype, "b")
    k = te.reduce_axis((0, 64), "k")
    wide = "float32" if dtype.startswith("float") else "int32"
    c = te.compute(
        (rows, 16), lambda i, j: te.sum(a[i, k].astype(wide) * b[j, k].astype(wide), k), "c"
    )
    return te.create_prim_func([a, b, c])


@pytest.mark.emulator
def test_every_block_of_the_guide(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {}
    databases = []
    for block in re.findall(r"```python\n(.*?)```", GUIDE.read_text(), re.DOTALL):
        exec(block, names)
        databases.append(names.get("database"))
    assert len(databases) == 4 and len(set(map(id, databases))) == 4
    for database in databases:
        times = [float(r.run_secs[0]) for r in database.get_all_tuning_records()]
        assert len(set(times)) > 1 and min(times) > 0 and max(times) < 1
    assert {task.task_name for task in names["tasks"]} >= {"matmul", "matmul1"}
    run = names["run"]
    # So few trials may find nothing faster.
    assert run.after is None or 0 < run.after <= run.before
    followed = [layer for layer in names["model"].layers if "template-free" in layer.why]
    assert bool(followed) == bool(run.changed)


@pytest.mark.tools
def test_candidates_that_go_wrong_have_an_error() -> None:
    from tvm import IRModule

    with utvm_deploy.connect("host") as device:
        func = product()
        tuning = DeviceTuning(device, func)
        other = te.create_prim_func(_doubled())
        built = tuning.build([IRModule({"main": func}), IRModule({"main": other})])
        assert [error for _, error in built] == [None, None]
        right, wrong = tuning.run([str(key) for key, _ in built])
    assert right.is_ok and right.ticks_min > 0
    assert wrong.error == "wrong output"


def _doubled() -> list[Any]:
    """Not the same product."""
    a = te.placeholder((32, 64), "int8", "a")
    b = te.placeholder((16, 64), "int8", "b")
    return [a, b, te.compute((32, 16), lambda i, j: a[i, j].astype("int32") * 2, "c")]


def test_what_cannot_be_tuned() -> None:
    from tvm import IRModule

    with utvm_deploy.connect("host") as device:
        with pytest.raises(TuneError, match=r"not a buffer of a constant shape"):
            DeviceTuning(device, product(rows=te.var("n")))
        with pytest.raises(TuneError, match=r"the module has no PrimFunc to tune"):
            DeviceTuning(device, IRModule())


@pytest.mark.tools
def test_candidates_need_names_where_prim_funcs_take_equal_buffers() -> None:
    from tvm import IRModule

    with utvm_deploy.connect("host") as device:
        two = IRModule({"one": product(), "two": te.create_prim_func(_doubled())})
        tuning = DeviceTuning(device, two)
        with pytest.raises(TuneError, match=r"2 PrimFuncs take these parameters.*int8"):
            tuning.build([product()])
        one, other = (tuning.module[name] for name in ("one", "two"))
        built = tuning.build([one, other, te.create_prim_func(_doubled()).with_attr(TASK, "one")])
        found = tuning.run([str(key) for key, _ in built])
    assert [measured.error for measured in found] == ["", "", "wrong output"]


INTERRUPTED = """
import logging, signal
import utvm_deploy
from test_meta_schedule import product
from utvm_deploy.tuning.searching.meta_schedule import DeviceTuning

class CtrlC(logging.Handler):
    def emit(self, record):
        if "Generating candidates" in record.getMessage():
            signal.raise_signal(signal.SIGINT)

logger = logging.getLogger("tvm")
logger.setLevel(logging.INFO)
logger.addHandler(CtrlC())
with utvm_deploy.connect("host") as device:
    try:
        DeviceTuning(device, product()).tune("work", 64)
    except KeyboardInterrupt:
        print("interrupted")
"""


@pytest.mark.tools
def test_ctrl_c_in_the_search_leaves_nothing_behind(tmp_path: Path) -> None:
    """TVM writes its log in a destructor: an exception in there would end the process."""
    for name in ("work", "temporary"):
        (tmp_path / name).mkdir()
    here = os.pathsep.join([str(Path(__file__).parent), os.environ.get("PYTHONPATH", "")])
    found = subprocess.run(
        [sys.executable, "-c", INTERRUPTED],
        cwd=tmp_path,
        env={**os.environ, "TMPDIR": str(tmp_path / "temporary"), "PYTHONPATH": here},
        capture_output=True,
        text=True,
        errors="replace",
        timeout=120,
    )
    assert (found.stdout, found.returncode) == ("interrupted\n", 0), found.stderr
    assert list((tmp_path / "temporary").iterdir()) == []


@pytest.mark.tools
def test_a_database_with_tensor_intrinsics_of_another_process(tmp_path: Path) -> None:
    """TVM loads the whole database of a folder, and fails where an intrinsic is not registered."""
    name = "utvm_dsp_dot_2x6x52"
    assert s_tir.TensorIntrin.get(name, allow_missing=True) is None
    (tmp_path / "database_tuning_record.json").write_text(f'[0, ["{name}", "utvm_other"]]')
    _register_named(tmp_path / "database_tuning_record.json")
    assert s_tir.TensorIntrin.get(name, allow_missing=True) is not None
    _register_named(tmp_path / "missing.json")
