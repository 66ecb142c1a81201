"""utvm bench with several builds of the library: the fastest for a model is compared."""

from __future__ import annotations

import importlib.util
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from fake_library import build_library

from utvm_deploy.base.errors import BuildError
from utvm_deploy.boards.board import load_board
from utvm_deploy.cli.main import main
from utvm_deploy.project import find_cmsis_nn_builds

HOST = load_board("host")
#: Some milliseconds a call, where the others take microseconds.
SLOW = "-DFAKE_LOOPS=10000000"


@pytest.fixture
def builds(tmp_path: Path) -> Callable[..., Path]:
    """A folder with Include/ and a library in a folder of its own for each build."""

    def make(**flags: str) -> Path:
        folder = tmp_path / "builds"
        for name, flag in flags.items():
            made = build_library(tmp_path / "one", *filter(None, [flag]))
            (folder / name).mkdir(parents=True)
            shutil.move(made / "libcmsis-nn.a", folder / name)
        shutil.copytree(made / "Include", folder / "Include")
        return folder

    return make


def table_program() -> Any:
    """benchmarks/cmsis_nn/tables.py, which is not part of the package."""
    path = Path(__file__).resolve().parents[2] / "benchmarks" / "cmsis_nn" / "tables.py"
    spec = importlib.util.spec_from_file_location("tables", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_rival_is_the_fastest_build_and_all_are_shown(
    small_model: Path,
    builds: Callable[..., Path],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    folder = builds(a_slow=SLOW, b_fast="", c_slow=SLOW)
    page = tmp_path / "page.html"
    argv = ["bench", str(small_model), "--board", "host", "--cmsis-nn", str(folder)]
    assert main([*argv, "--json", "--html", str(page)]) == 0
    captured = capsys.readouterr()
    (model,) = json.loads(captured.out)["models"]
    shown = {build["label"]: build for build in model["builds"]}
    assert list(shown) == ["a_slow", "b_fast", "c_slow"]
    assert model["build"] == "b_fast" and "build b_fast" in model["engine"]
    assert model["theirs"] == shown["b_fast"]["theirs"]
    assert model["theirs"]["nanoseconds"] < shown["a_slow"]["theirs"]["nanoseconds"]
    assert model["ratio"] == model["theirs"]["nanoseconds"] / model["ours"]["nanoseconds"]
    tables = "\n".join(table_program().tables(json.loads(captured.out)))
    assert f"**{model['theirs']['nanoseconds']:,}**" in tables and ", build" not in tables
    for label in shown:
        assert label in tables
        assert label in captured.err and f"<td>{label}</td>" in page.read_text()


def test_the_bytes_of_every_build_are_compared(
    small_model: Path, builds: Callable[..., Path], capsys: pytest.CaptureFixture[str]
) -> None:
    folder = builds(exact="", wrong="-DFAKE_ERROR=1")
    argv = ["bench", str(small_model), "--board", "host", "--cmsis-nn", str(folder), "--json"]
    assert main(argv) == 0
    (model,) = json.loads(capsys.readouterr().out)["models"]
    differing = {build["label"]: build["differing_layers"] for build in model["builds"]}
    assert differing == {"exact": [], "wrong": [0, 1]}


def test_a_build_that_fails_is_named(
    small_model: Path, builds: Callable[..., Path], capsys: pytest.CaptureFixture[str]
) -> None:
    folder = builds(good="", refusing="-DFAKE_STATUS=-2")
    argv = ["bench", str(small_model), "--board", "host", "--cmsis-nn", str(folder)]
    assert main(argv) == 1
    said = capsys.readouterr().err
    assert "with CMSIS-NN's build refusing: " in said and "refused layer 0" in said


def test_one_build_needs_no_label(
    small_model: Path, builds: Callable[..., Path], capsys: pytest.CaptureFixture[str]
) -> None:
    folder = builds(one="", other="")
    argv = ["bench", str(small_model), "--board", "host", "--cmsis-nn", str(folder), "--json"]
    chosen = folder / "one" / "libcmsis-nn.a"
    assert main([*argv, "--cmsis-nn-library", str(chosen)]) == 0
    (model,) = json.loads(capsys.readouterr().out)["models"]
    assert model["build"] is None and model["builds"] == []


def test_labels(builds: Callable[..., Path], tmp_path: Path) -> None:
    folder = builds(O3="", Ofast="")
    assert [found.label for found in find_cmsis_nn_builds(folder, HOST)] == ["O3", "Ofast"]
    named = tmp_path / "libcmsis-nn-Os.a"
    shutil.copy(folder / "O3" / "libcmsis-nn.a", named)
    libraries = [folder / "O3" / "libcmsis-nn.a", named]
    found = find_cmsis_nn_builds(folder, HOST, libraries)
    assert [one.label for one in found] == ["O3", str(named)]
    with pytest.raises(BuildError, match="the library O3 is named twice"):
        find_cmsis_nn_builds(folder, HOST, [libraries[0], libraries[0]])


def test_other_verbs_ask_which_build(
    small_model: Path, builds: Callable[..., Path], capsys: pytest.CaptureFixture[str]
) -> None:
    folder = builds(O3="", Ofast="")
    argv = ["profile", str(small_model), "--board", "host", "--kernels", "cmsis-nn"]
    argv += ["--cmsis-nn", str(folder)]
    assert main(argv) == 1
    said = capsys.readouterr().err
    assert "several libraries (O3/libcmsis-nn.a, Ofast/libcmsis-nn.a)" in said
    assert main([*argv, "--cmsis-nn-library", str(folder / "O3/libcmsis-nn.a"), "--json"]) == 0
    result: dict[str, Any] = json.loads(capsys.readouterr().out)
    assert result["layers"][0]["engine"] == "CMSIS-NN"
