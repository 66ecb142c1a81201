"""The example of a vendor's dense layer: a static library, packed weights, initialization."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest
from vendor_library import vendor_plugin

import utvm_deploy
from utvm_deploy.base.paths import data_dir
from utvm_deploy.bundling.check import check_bundle
from utvm_deploy.cli.main import main
from utvm_deploy.compiler.compiled.library_format import read_library

DIGITS = data_dir("models") / "digits.tflite"
BUILD_TIMEOUT_S = 120

pytestmark = pytest.mark.tools


def verify(plugin: Path, board: str = "host") -> int:
    return main(
        ["verify", str(DIGITS), "--board", board, "--samples", "2", "--plugin", str(plugin)]
    )


def test_its_layer_is_verified_and_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    plugin = vendor_plugin(tmp_path / "vendor")
    assert verify(plugin) == 0
    assert "of 8 layers, all equal" in capsys.readouterr().out
    compiled = utvm_deploy.compile(DIGITS, "host", plugin=plugin)
    engines = {layer.kind: layer.engine for layer in compiled.layers}
    assert engines.pop("FULLY_CONNECTED") == "Vendor dense"
    assert set(engines.values()) == {"generic"}
    dense = compiled.layers[6]
    # Twelve rows of weights where the layer has ten: the packed table is the plug-in's own.
    assert dense.weights_bytes >= 12 * 192
    assert dense.scratch_bytes == 16 + 2 * 16
    assert "no call of Vendor dense does CONV_2D" in compiled.layers[0].why
    assert compiled.external is not None and compiled.external.initialize == "vendor_init"


@pytest.mark.parametrize(
    ("name", "old", "new", "told"),
    [
        pytest.param(
            "vendor_dense.c",
            "value < least ? least",
            "value < least + 90 ? least",
            "layer 6 is computed by Vendor dense: vendor_dense_s8",
            id="wrong bytes",
        ),
        pytest.param(
            "vendor_dense.c",
            "ours->on = ON;",
            "ours->on = 0u;",
            "Vendor dense refused layer 6 (FULLY_CONNECTED",
            id="not initialized",
        ),
        pytest.param(
            "vendor_dense.c",
            "    return 0;\n}\n\n// Half",
            "    return 17;\n}\n\n// Half",
            "vendor_init of Vendor dense, which prepares host, returned 17",
            id="initialization fails",
        ),
        pytest.param(
            "plugin.py",
            "scratch_bytes=ROWS * SUM_BYTES",
            "scratch_bytes=SUM_BYTES",
            "Vendor dense wrote beyond the scratch of layer 6 (FULLY_CONNECTED",
            id="scratch",
        ),
    ],
)
def test_lies_are_found_and_the_backend_is_named(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    name: str,
    old: str,
    new: str,
    told: str,
) -> None:
    plugin = vendor_plugin(tmp_path / "vendor", changes={name: (old, new)})
    assert verify(plugin) == 1
    printed = capsys.readouterr()
    assert told in printed.out + printed.err


@pytest.mark.emulator
def test_it_runs_on_a_board_and_its_bundle_needs_the_library(tmp_path: Path) -> None:
    flags = ["-mcpu=cortex-m7", "-mthumb", "-mfpu=fpv5-sp-d16", "-mfloat-abi=hard"]
    plugin = vendor_plugin(tmp_path / "vendor", flags, prefix="arm-none-eabi-")
    assert verify(plugin, "mps2_an500") == 0
    bundle = tmp_path / "bundle"
    argv = ["bundle", str(DIGITS), "--board", "mps2_an500", "--no-latency", "-o", str(bundle)]
    assert main([*argv, "--plugin", str(plugin)]) == 0
    check_bundle(bundle)
    manifest = json.loads((bundle / "manifest.json").read_text())
    (needed,) = manifest["external_dependencies"]
    assert (needed["name"], needed["functions"]) == ("Vendor dense", ["vendor_dense_s8"])
    assert "digits_initialize()" in (bundle / "README.md").read_text()
    # On this computer: the same bundle with the same library, built for it.
    host = vendor_plugin(tmp_path / "host", ())
    bundle = tmp_path / "host_bundle"
    argv = ["bundle", str(DIGITS), "--board", "host", "--no-latency", "-o", str(bundle)]
    assert main([*argv, "--plugin", str(host)]) == 0
    folder = tmp_path / "build"
    library = [f"-DVENDOR_DENSE_LIBRARY={host.parent}/libvendor_dense.a",
               f"-DVENDOR_DENSE_INCLUDE_DIRS={host.parent}"]  # fmt: skip
    for command in (
        ["cmake", "-S", str(bundle), "-B", str(folder), *library],
        ["cmake", "--build", str(folder)],
        ["ctest", "--test-dir", str(folder), "--output-on-failure"],
    ):
        done = subprocess.run(command, timeout=BUILD_TIMEOUT_S, capture_output=True, text=True)
        assert done.returncode == 0, done.stdout + done.stderr


def test_an_archive_keeps_what_the_model_needs(tmp_path: Path) -> None:
    plugin = vendor_plugin(tmp_path / "vendor")
    archive = tmp_path / "digits.tar"
    argv = ["compile", str(DIGITS), "--board", "host", "-o", str(archive)]
    assert main([*argv, "--plugin", str(plugin)]) == 0
    compiled = read_library(archive)
    assert compiled.external is not None
    assert (compiled.external.name, compiled.external.state_bytes) == ("Vendor dense", 8)
