"""The first backend of docs/guides/backends.md works as it stands there."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest
from custom_models import filtered_network
from tflite_writer import ModelWriter
from vendor_library import EXAMPLES

import utvm_deploy
from utvm_deploy.bundling.check import check_bundle
from utvm_deploy.cli.main import main
from utvm_deploy.records import read_records

GUIDE = Path(__file__).resolve().parents[2] / "docs" / "guides" / "backends.md"


def written(folder: Path, name: str) -> Path:
    """The plug-in of the guide whose backend has this name."""
    blocks = re.findall(r"```python\n(.*?)```", GUIDE.read_text(), re.DOTALL)
    (text,) = (one for one in blocks if f'Backend("{name}"' in one)
    path = folder / "my_backend.py"
    path.write_text(text)
    return path


@pytest.fixture
def plugin(tmp_path: Path) -> Path:
    return written(tmp_path, "My kernels")


@pytest.mark.tools
def test_the_first_backend_of_the_guide(plugin: Path, tmp_path: Path) -> None:
    m = ModelWriter()
    x = m.input((1, 4, 5, 3), 0.05, -7)
    # The first only clamps, and the second requantizes.
    y = m.relu(x, scale=0.05, zero_point=-7)
    m.output(m.relu(y, scale=0.03, zero_point=-100))
    model = m.save(tmp_path / "relu.tflite")
    compiled = utvm_deploy.compile(model, "host", plugin=plugin)
    engines = [layer.engine for layer in compiled.layers]
    assert engines == ["My kernels", "generic"]
    assert "it would have to requantize" in compiled.layers[1].why
    assert main(["verify", str(model), "--board", "host", "--plugin", str(plugin)]) == 0


@pytest.mark.tools
def test_the_engine_of_the_guide(tmp_path: Path) -> None:
    m = ModelWriter()
    m.output(m.relu(m.input((1, 4, 5, 3), 0.05, -7), scale=0.05, zero_point=-7))
    model, plugin = m.save(tmp_path / "relu.tflite"), written(tmp_path, "Clamp engine")
    compiled = utvm_deploy.compile(model, "host", plugin=plugin)
    assert [layer.engine for layer in compiled.layers] == ["Clamp engine"]
    both = [str(model), "--board", "host", "--plugin", str(plugin)]
    assert main(["verify", *both]) == 0
    records = tmp_path / "records.jsonl"
    assert main(["tune", *both, "--trials", "6", "--records", str(records)]) == 0
    (measured,) = (
        one for one in read_records(records) if one.candidate.family == "backend-clamp-engine"
    )
    assert measured.measurement.is_ok
    bundle = tmp_path / "bundle"
    assert main(["bundle", *both, "--no-latency", "--name", "net", "-o", str(bundle)]) == 0
    check_bundle(bundle)
    told = (bundle / "README.md").read_text()
    assert "`net_initialize()` prepares device and arena." in told
    assert "`net_release()` ends what that began." in told


@pytest.mark.emulator
def test_the_region_of_the_guide_also_as_a_pattern(tmp_path: Path) -> None:
    m = ModelWriter()
    x, y = (m.input((1, 5, 7), 0.05, -7) for _ in range(2))

    def extremum(kind: str, *inputs: int) -> int:
        return m.node(kind, inputs, (1, 5, 7), ("MaximumMinimumOptions", {}))

    top = extremum("MAXIMUM", x, y)
    least, most = extremum("MINIMUM", top, y), extremum("MAXIMUM", top, x)
    m.output(m.add(least, most, scale=0.1), most)
    model, plugin = str(m.save(tmp_path / "net.tflite")), written(tmp_path, "Extrema")
    both = tmp_path / "pattern.py"
    both.write_text(
        plugin.read_text()
        + """
from utvm_deploy.backends import Pattern, op

top = op("MAXIMUM")
two = Pattern((op("MINIMUM")(top), op("MAXIMUM")(top)), build)
backend = Backend("Extrema", (two,), CText(""))
"""
    )
    for one in (plugin, both):
        compiled = utvm_deploy.compile(model, "mps2_an386", plugin=one)
        assert compiled.layers[0].kind == "MAXIMUM+MINIMUM+MAXIMUM"
        assert len(compiled.layers[0].outputs) == 2
        argv = ["verify", model, "--board", "mps2_an386", "--samples", "2", "--plugin", str(one)]
        assert main(argv) == 0


def test_inspect_knows_the_custom_operators_of_a_plugin(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    model = str(filtered_network(tmp_path / "filtered.tflite"))
    assert main(["inspect", model]) == 1
    assert "or give a backend that computes it (--plugin" in capsys.readouterr().out
    plugin = str(EXAMPLES / "custom_operator" / "plugin.py")
    assert main(["inspect", model, "--plugin", plugin]) == 0
    assert capsys.readouterr().out.count("CUSTOM MedianFilter") == 3


@pytest.mark.tools
@pytest.mark.parametrize("is_first", [True, False])
def test_the_example_of_a_directed_pattern(tmp_path: Path, is_first: bool) -> None:
    plugin, rng = EXAMPLES / "residual" / "plugin.py", np.random.default_rng(9)
    m = ModelWriter()
    x = m.input((1, 6, 4, 5), 0.05, -7)
    weights = rng.integers(-127, 128, (5, 1, 1, 5)).astype(np.int8)
    bias = rng.integers(-900, 900, 5).astype(np.int32)
    made = m.conv2d(x, weights, bias, weight_scale=0.004, scale=0.07, zero_point=4)
    both = (made, x) if is_first else (x, made)
    m.output(m.add(*both, scale=0.1, zero_point=-3, activation="RELU"))
    model = m.save(tmp_path / "block.tflite")
    (layer,) = utvm_deploy.compile(model, "host", plugin=plugin).layers
    assert (layer.kind, layer.engine) == ("CONV_2D+ADD", "Residual")
    assert main(["verify", str(model), "--board", "host", "--plugin", str(plugin)]) == 0
