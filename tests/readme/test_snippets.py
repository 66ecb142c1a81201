"""Each Python and C block of the docs is run by a test, or listed here with the reason.

A new page needs a row in one of the tables: ``ELSEWHERE``, ``HERE`` or ``NOT_RUN``.
"""

from __future__ import annotations

import ast
import subprocess
import textwrap
from collections.abc import Callable
from pathlib import Path
from shutil import copy, copytree
from typing import Any

import numpy as np
import pytest
from snippets import ROOT, Snippet, expressions, snippets, wrong_names
from stream_nets import Net
from tflite_writer import ModelWriter

import utvm_deploy
from utvm_deploy import models
from utvm_deploy.targets.arm_m import cores

TESTS = ROOT / "tests"
PYTHON, C = snippets("python"), snippets("c")
#: How long a compiler may take on a loaded machine.
PATIENCE_S = 120.0

#: The page, and the test file that runs all its Python blocks.
ELSEWHERE = {
    "docs/contributing/kernels.md": "readme/test_guide_to_kernels.py",
    "docs/guides/backends.md": "backends/test_backends_guide.py",
    "docs/guides/evaluation.md": "readme/test_guide_to_evaluation.py",
    "docs/guides/number-formats.md": "number_formats/test_guide.py",
    "docs/guides/pruning.md": "readme/test_guide_to_pruning.py",
    "docs/guides/python.md": "readme/test_guide_to_python.py",
    "docs/guides/pytorch.md": "other_formats/test_torch_modules.py",
    "docs/guides/relax.md": "readme/test_guide_to_relax.py",
    "docs/guides/tensor-intrinsics.md": "readme/test_guide_to_intrinsics.py",
    "docs/guides/training.md": "training/test_guide_to_training.py",
    "docs/guides/tvm.md": "tuning/test_meta_schedule.py",
    "docs/tutorials/camera.md": "tutorials/test_tutorials.py",
    "docs/tutorials/from-data.md": "tutorials/test_tutorials.py",
    "docs/tutorials/microphone.md": "tutorials/test_tutorials.py",
    "docs/tutorials/own-accelerator.md": "tutorials/test_tutorials.py",
    "docs/tutorials/own-operator.md": "tutorials/test_tutorials.py",
    "docs/tutorials/quantization-aware-training.md": "tutorials/test_tutorials.py",
    "docs/tutorials/team-server.md": "tutorials/test_tutorials.py",
    "docs/tutorials/train-on-device.md": "tutorials/test_tutorials.py",
    "docs/tutorials/vibration.md": "tutorials/test_tutorials.py",
    "docs/tutorials/zephyr-application.md": "zephyr/test_zephyr_tutorial.py",
}
#: Blocks that only have to compile, and to name what is there, with the reason.
NOT_RUN = {
    "docs/guides/other-formats.md python 2": "its quantizer is in ExecuTorch, which is no extra",
    "docs/guides/quantization.md python 2": "it needs TensorFlow and Keras, which are no extras",
}


def mixed_precision(folder: Path) -> dict[str, Any]:
    """The digits stand for the reader's model."""
    copy(models.find("digits_float").files[0], folder / "model.tflite")
    copy(ROOT / "models" / "digits_calib.npz", folder / "calib.npz")
    return {}


def onnx_to_quantize(folder: Path) -> dict[str, Any]:
    """A small network, and a reader of its inputs."""
    quantization = pytest.importorskip("onnxruntime.quantization")
    onnx = pytest.importorskip("onnx")
    helper, floats = onnx.helper, onnx.TensorProto.FLOAT
    rng = np.random.default_rng(0)
    weights = onnx.numpy_helper.from_array(
        rng.standard_normal((4, 1, 3, 3)).astype(np.float32), "w"
    )
    graph = helper.make_graph(
        [helper.make_node("Conv", ["x", "w"], ["y"])],
        "small",
        [helper.make_tensor_value_info("x", floats, (1, 1, 8, 8))],
        [helper.make_tensor_value_info("y", floats, (1, 4, 6, 6))],
        [weights],
    )
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    onnx.save(made, folder / "model.onnx")

    class Reader(quantization.CalibrationDataReader):  # type: ignore[misc,name-defined]
        """Four random inputs."""

        def __init__(self) -> None:
            self.inputs = iter(rng.standard_normal((4, 1, 1, 8, 8)).astype(np.float32))

        def get_next(self) -> dict[str, Any] | None:
            found = next(self.inputs, None)
            return None if found is None else {"x": found}

    return {"calibration_reader": Reader()}


def folder_of_tests(folder: Path) -> dict[str, Any]:
    """The page has `PYTHONPATH=tests`, as this process has."""
    return {}


def with_torch(folder: Path) -> dict[str, Any]:
    """The block exports a program."""
    pytest.importorskip("torch")
    return {}


def core_names(folder: Path) -> dict[str, Any]:
    """The row is one of a table in this module."""
    return vars(cores).copy()


def pretend_target(folder: Path) -> dict[str, Any]:
    """The reader has written the templates and the board file of the page's target."""
    copytree(TESTS / "targets" / "pretend", folder / "pretend")
    return {}


def pytest_name(folder: Path) -> dict[str, Any]:
    """The block is a test without its module."""
    return {"pytest": pytest}


def local_board(folder: Path) -> dict[str, Any]:
    """The board of this computer stands for one of a server (see `STAND_INS`)."""
    return {}


#: The page, and what prepares a folder for its blocks and gives the names that they lack.
HERE: dict[str, Callable[[Path], dict[str, Any]]] = {
    "docs/contributing/cores.md": core_names,
    "docs/contributing/targets.md": pretend_target,
    "docs/contributing/operators.md": folder_of_tests,
    "docs/contributing/tests.md": pytest_name,
    "docs/guides/front-ends.md": with_torch,
    "docs/guides/mixed-precision.md": mixed_precision,
    "docs/guides/other-formats.md": onnx_to_quantize,
    "docs/guides/quantization.md": mixed_precision,
    "docs/guides/remote-board.md": local_board,
}
#: What a block names, and what it has here.
STAND_INS = {"utvm://bench.example.org/mps2_an500": "host"}


def test_each_page_has_a_row() -> None:
    pages = {one.page for one in PYTHON}
    assert len(PYTHON) >= 34
    assert pages == set(ELSEWHERE) | set(HERE)
    assert not set(ELSEWHERE) & set(HERE)
    assert set(NOT_RUN) <= {str(one) for one in PYTHON if one.page in HERE}


@pytest.mark.parametrize(("page", "test"), ELSEWHERE.items(), ids=list(ELSEWHERE))
def test_the_other_test_reads_the_page(page: str, test: str) -> None:
    text = (TESTS / test).read_text(encoding="utf-8")
    assert f'"{Path(page).name}"' in text


@pytest.mark.tools
@pytest.mark.parametrize("page", HERE)
def test_the_blocks_of_a_page_run(
    page: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for path in (TESTS, TESTS / "readme"):
        monkeypatch.syspath_prepend(str(path))
    names = {"__name__": "page", **HERE[page](tmp_path)}
    blocks = [one for one in PYTHON if one.page == page and str(one) not in NOT_RUN]
    assert blocks
    for block in blocks:
        run(block, names)


def run(block: Snippet, names: dict[str, Any]) -> None:
    """Execute a block; an error names the page and the line in it."""
    text = block.text
    for shown, stand_in in STAND_INS.items():
        text = text.replace(shown, stand_in)
    exec(compile("\n" * block.line + text, block.page, "exec"), names)


@pytest.mark.parametrize("block", [one for one in PYTHON if str(one) in NOT_RUN], ids=str)
def test_a_block_that_does_not_run_compiles(block: Snippet) -> None:
    compile(block.text, block.page, "exec")


@pytest.mark.parametrize("block", PYTHON, ids=str)
def test_the_names_of_a_block_are_there(block: Snippet) -> None:
    assert wrong_names(block.text) == []


def test_the_names_in_sentences_are_there() -> None:
    told = expressions()
    assert len(told) >= 15
    assert [(page, text, wrong_names(text)) for page, text in told if wrong_names(text)] == []


@pytest.mark.parametrize(
    "code",
    [
        "import utvm_deploy\nutvm_deploy.nosuch",
        "from utvm_deploy.boards import nosuch",
        "import utvm_deploy\nutvm_deploy.profile('x', 'host', ramm_budget=1)",
        "import utvm_deploy\nutvm_deploy.quantize('x', [], calibrate=3)",
        "import utvm_deploy as u\nfrom utvm_deploy import models\nmodels.get()",
    ],
)
def test_wrong_names_are_found(code: str) -> None:
    assert len(wrong_names(code)) == 1


def test_keras_lines_are_those_that_made_the_model() -> None:
    """Lines of the guide that are not in models/make_digits.py would be tried by nobody."""
    (block,) = (one for one in PYTHON if str(one) == "docs/guides/quantization.md python 2")
    made = ast.unparse(ast.parse((ROOT / "models" / "make_digits.py").read_text("utf-8")))
    lines = [line for line in ast.unparse(ast.parse(block.text)).splitlines() if line.strip()]
    missing = [line for line in lines if line.strip() not in made]
    assert missing == [
        "def representative_dataset():",
        "open('model.tflite', 'wb').write(converter.convert())",
    ]


# C ------------------------------------------------------------------------------------------------

#: C blocks that are files of a tutorial, and the test file that runs them.
C_ELSEWHERE = {
    "docs/guides/images.md c 1": "bundling/test_camera_example.py",
    "docs/guides/images.md c 2": "bundling/test_camera_example.py",
    "docs/guides/training.md c 1": "training/test_guide_to_training.py",
    "docs/tutorials/camera.md c 1": "tutorials/test_tutorials.py",
    "docs/tutorials/from-data.md c 1": "tutorials/test_tutorials.py",
}
_FRAGMENT = "void fragment({parameters}) {{\n{text}}}\n"
_ZEPHYR = {
    "zephyr/kernel.h": "#undef __aligned\n#define __aligned(n) __attribute__((aligned(n)))\n",
    "zephyr/sys/printk.h": "void printk(const char *format, ...);\n",
    "picture.h": "#include <stdint.h>\nstatic const int8_t picture[64];\n",
}


def bundled(folder: Path, board: str = "mps2_an500", **options: Any) -> str:
    utvm_deploy.bundle(
        models.find("digits").files[0], board, folder / "bundle", latency=False, **options
    )
    return '#include "bundle/include/digits.h"\n'


def with_pools(folder: Path) -> tuple[str, str]:
    return bundled(folder, pools={"dtcm": 48 * 1024}), "uint8_t *arena"


def with_rows(folder: Path) -> tuple[str, str]:
    return bundled(folder, input_rows=True), "uint8_t *arena, const int8_t *row"


def with_hop(folder: Path) -> tuple[str, str]:
    model = folder / "net.tflite"
    m = ModelWriter()
    m.output(
        Net(m, np.random.default_rng(0)).conv(m.input((1, 12, 5, 4), scale=0.1), 3, padding="SAME")
    )
    model.write_bytes(m.to_bytes())
    stream = {"hop": 2, "end_input": True}
    utvm_deploy.bundle(model, "host", folder / "bundle", latency=False, name="kws", stream=stream)
    includes = '#include <string.h>\n#include "bundle/include/kws.h"\n'
    declared = "const int8_t *columns(void);\nint32_t next_columns(int8_t *columns);\n"
    return f"{includes}{declared}", "uint8_t *arena"


def of_tvm(folder: Path) -> tuple[str, str]:
    return "#include <stdint.h>\n", "const int32_t *A, int32_t *B"


def zephyr_application(folder: Path) -> tuple[str, str]:
    """Without Zephyr; `tests/zephyr` builds it where Zephyr is."""
    bundled(folder, "mps2_an385")
    copy(folder / "bundle" / "include" / "digits.h", folder)
    for name, text in _ZEPHYR.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    return "", ""


#: The block, and what it needs: includes, and the parameters of a function around a fragment.
C_HERE: dict[str, Callable[[Path], tuple[str, str]]] = {
    "docs/guides/optimize.md c 1": with_pools,
    "docs/guides/optimize.md c 2": with_rows,
    "docs/guides/streams.md c 1": with_hop,
    "docs/guides/streams.md c 2": with_hop,
    "docs/internals/tvm.md c 1": of_tvm,
    "docs/tutorials/zephyr-application.md c 1": zephyr_application,
}


def test_each_c_block_has_a_row() -> None:
    assert {str(one) for one in C} == set(C_ELSEWHERE) | set(C_HERE)
    for block, test in C_ELSEWHERE.items():
        assert Path(block.split()[0]).name in (TESTS / test).read_text("utf-8")


@pytest.mark.tools
@pytest.mark.parametrize("block", [one for one in C if str(one) in C_HERE], ids=str)
def test_a_c_block_compiles(block: Snippet, tmp_path: Path) -> None:
    includes, parameters = C_HERE[str(block)](tmp_path)
    # A page writes NAME for the name of any model.
    text = block.text.replace("NAME_POOL", "DIGITS_POOL").replace("NAME_INPUT", "DIGITS_INPUT")
    text = text.replace("NAME_", "digits_")
    if parameters:
        text = _FRAGMENT.format(parameters=parameters, text=textwrap.indent(text, "    "))
    source = tmp_path / "block.c"
    source.write_text(includes + text)
    flags = ["-std=c99", "-Wall", "-Wextra", "-Werror", "-Wno-unused-variable", "-fsyntax-only"]
    done = subprocess.run(
        ["arm-none-eabi-gcc", *flags, f"-I{tmp_path}", str(source)],
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
    )
    assert done.returncode == 0, f"{block.page}:{block.line}\n{done.stderr}"
