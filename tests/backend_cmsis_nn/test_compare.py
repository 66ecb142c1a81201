"""utvm bench on this computer, against the stand-in for the library."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tflite_writer import ModelWriter

import utvm_deploy
from utvm_deploy.base.errors import DeviceError
from utvm_deploy.boards.board import load_board
from utvm_deploy.cli.main import main
from utvm_deploy.frontend.tflite import load_model
from utvm_deploy.oracle.samples import random_samples
from utvm_deploy.project import find_cmsis_nn
from utvm_deploy.results.comparing.engines import compare
from utvm_deploy.results.comparing.facts import ModelComparison
from utvm_deploy.results.comparing.tightly_coupled import with_tcm_alone

HOST = load_board("host")


def compared(model: Path, library: Path) -> ModelComparison:
    found = find_cmsis_nn(library, HOST)
    ours = utvm_deploy.compile(model, HOST)
    theirs = utvm_deploy.compile(model, HOST, kernels="cmsis-nn", cmsis_nn=found)
    with utvm_deploy.connect(HOST) as device:
        return compare(device, ours, theirs, random_samples(load_model(model), 1))


def test_equal_arithmetic_gives_equal_bytes(
    small_model: Path, fake_library: Callable[..., Path]
) -> None:
    found = compared(small_model, fake_library())
    assert [layer.differing_bytes for layer in found.layers] == [0, 0, 0, 0]
    assert [layer.their_kernel for layer in found.layers] == [
        "arm_convolve_wrapper_s8",
        "arm_convolve_wrapper_s8",
        "",
        "arm_fully_connected_s8",
    ]
    assert found.figures == ("nanoseconds",)
    assert (found.ratio("nanoseconds") or 0) > 0
    assert found.our_placement == found.their_placement


def test_a_repeated_side_is_multiplied_time_by_time(
    tmp_path: Path, fake_library: Callable[..., Path]
) -> None:
    m = ModelWriter()
    x, options = m.input((1, 4, 3, 5), 0.05, -7), ("MulOptions", {})
    for shape in ((1, 4, 3, 5), (1, 1, 1, 5), (5,)):
        y = m.input(shape, 0.03, 4)
        m.output(m.node("MUL", [x, y], (1, 4, 3, 5), options, scale=0.2, zero_point=9))
    single = m.input((1, 4, 3, 1), 0.03, 4)
    m.output(m.node("MUL", [x, single], (1, 4, 3, 5), options, scale=0.2, zero_point=9))
    found = compared(m.save(tmp_path / "m.tflite"), fake_library())
    assert [layer.their_kernel for layer in found.layers] == ["arm_elementwise_mul_s8"] * 3 + [""]
    assert [layer.differing_bytes for layer in found.layers] == [0, 0, 0, 0]


def test_a_difference_is_counted_where_it_arises(
    small_model: Path, fake_library: Callable[..., Path]
) -> None:
    found = compared(small_model, fake_library("FAKE_ERROR=1"))
    # Layers behind a wrong one get our bytes, so they are not blamed for it.
    assert [layer.differing_bytes for layer in found.layers] == [1, 1, 0, 0]
    assert [layer.index for layer in found.differing_layers] == [0, 1]


def test_too_little_scratch_stops_before_the_first_run(
    small_model: Path, fake_library: Callable[..., Path]
) -> None:
    with pytest.raises(DeviceError, match="wants more than the 112 bytes of scratch planned for"):
        compared(small_model, fake_library("FAKE_EXTRA_SCRATCH=1"))


def test_a_status_of_the_library_is_an_error(
    small_model: Path, fake_library: Callable[..., Path]
) -> None:
    with pytest.raises(DeviceError, match=r"refused layer 0 .* returned -2, no implementation"):
        compared(small_model, fake_library("FAKE_STATUS=-2"))


def test_the_command(
    small_model: Path,
    fake_library: Callable[..., Path],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    page = tmp_path / "page.html"
    library = str(fake_library())
    argv = ["bench", str(small_model), "--board", "host", "--cmsis-nn", library]
    assert main([*argv, "--html", str(page), "--json"]) == 0
    result: dict[str, Any] = json.loads(capsys.readouterr().out)
    assert result["schema"] == "utvm.bench/1"
    (model,) = result["models"]
    assert model["name"] == "small" and model["source"] == "measured"
    assert model["ratio"] == model["theirs"]["nanoseconds"] / model["ours"]["nanoseconds"]
    assert [layer["differing_bytes"] for layer in model["layers"]] == [0, 0, 0, 0]
    assert model["placement"]["ours"]["scratch"] == model["placement"]["theirs"]["scratch"]
    text = page.read_text()
    # Self-contained: nothing is fetched when it is opened.
    assert "<svg" in text and "http" not in text and "src=" not in text

    baseline = tmp_path / "prev.json"
    for layer in model["layers"]:
        layer["ours"]["nanoseconds"] = 10**9
    model["ours"]["nanoseconds"] = 10**9
    model["layers"][1]["ours"]["nanoseconds"] = 1
    baseline.write_text(json.dumps(result))
    assert main([*argv, "--baseline", str(baseline), "--fail-over", "5%"]) == 1
    said = capsys.readouterr().out
    assert "GREW by more than 5 %" in said
    assert "layer 1 (CONV_2D" in said and "layer 0 (CONV_2D" not in said


def test_usage(small_model: Path, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    argv = ["bench", str(small_model), "--board", "host"]
    for wrong in (
        ["--against", "xnnpack"],
        ["--fail-over", "much"],
        ["--fail-over=-1"],
        ["--max-ram", "1Q"],
    ):
        assert main([*argv, *wrong]) == 2
    capsys.readouterr()
    assert main([*argv, "--cmsis-nn-library", "x.a"]) == 2
    assert "--cmsis-nn-library names a library without its headers" in capsys.readouterr().err
    assert main([*argv, "--cmsis-nn", str(tmp_path / "none")]) == 1
    assert "there is no CMSIS-NN at" in capsys.readouterr().err


def test_a_board_with_tightly_coupled_ram_alone() -> None:
    board = load_board("mps2_an500")
    smaller = with_tcm_alone(board)
    assert smaller is not None
    assert [region.name for region in smaller.memory] == ["flash", "dtcm"]
    assert smaller.main_ram.name == smaller.data_ram.name == "dtcm"
    assert with_tcm_alone(smaller) is None and with_tcm_alone(HOST) is None
