"""The example of a custom operator. LiteRT cannot run the model; it is verified all the same."""

from __future__ import annotations

import subprocess
from pathlib import Path

import numpy as np
import pytest
from custom_models import filtered_network, median
from tflite_writer import ModelWriter
from vendor_library import EXAMPLES

import utvm_deploy
from utvm_deploy.backends.custom import CustomOperators
from utvm_deploy.backends.plugins import load_plugin
from utvm_deploy.base.errors import ModelError, PluginError, UnsupportedOperator
from utvm_deploy.cli.main import main
from utvm_deploy.frontend.tflite import load_model
from utvm_deploy.oracle.with_custom import run_oracle
from utvm_deploy.records import read_records

PLUGIN = EXAMPLES / "custom_operator" / "plugin.py"
BUILD_TIMEOUT_S = 120


@pytest.fixture(scope="module")
def network(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return filtered_network(tmp_path_factory.mktemp("model") / "filtered.tflite")


def changed(folder: Path, old: str, new: str) -> Path:
    """A copy of the example's plug-in with one text replaced."""
    text = PLUGIN.read_text()
    assert old in text
    path = folder / "changed.py"
    path.write_text(text.replace(old, new))
    return path


def verify(model: Path, plugin: Path, board: str = "host") -> int:
    argv = ["verify", str(model), "--board", board, "--samples", "2"]
    return main([*argv, "--plugin", str(plugin)])


@pytest.mark.tools
def test_its_layers_are_verified(network: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert verify(network, PLUGIN) == 0
    said = capsys.readouterr().out
    assert "of 5 layers, all equal to LiteRT" in said
    assert "and Median filter's NumPy reference (plug-in" in said
    compiled = utvm_deploy.compile(network, "mps2_an500", plugin=PLUGIN)
    assert [layer.engine for layer in compiled.layers] == [
        *("dsp", "Median filter", "Median filter", "dsp", "Median filter"),
    ]


@pytest.mark.tools
def test_it_is_evaluated(network: Path) -> None:
    samples = np.random.default_rng(3).integers(-128, 128, (4, 9, 6, 3)).astype(np.int8)
    data = {"inputs": samples, "targets": np.zeros((4, 9, 6, 5))}
    found = utvm_deploy.evaluate(network, data, "host", plugin=PLUGIN)
    assert found.problem.task == "regression"
    assert "Median filter's NumPy reference" in found.of("reference").run.runtime
    assert not found.changes[0].largest_difference


@pytest.mark.tools
def test_the_reference_computes_each_in_its_place(network: Path) -> None:
    custom = CustomOperators(load_plugin(PLUGIN))
    sample = np.random.default_rng(3).integers(-128, 128, (1, 9, 6, 3)).astype(np.int8)
    found = run_oracle(network, [sample], custom).tensors[0]
    graph = load_model(network, custom)
    for operator in graph.operators:
        if operator.kind == "CUSTOM MedianFilter":
            source, made = (
                graph.tensors[n].source for n in (operator.inputs[0], operator.outputs[0])
            )
            assert source is not None and made is not None
            window = 3 if operator is graph.operators[2] else 5
            expected = naive_median(found[source], window)
            assert (found[made] == expected).all()


def naive_median(x: np.ndarray, window: int) -> np.ndarray:
    """One position after the other."""
    made, last = np.empty_like(x), x.shape[1] - 1
    for step in range(x.shape[1]):
        around = range(step - window // 2, step + window // 2 + 1)
        made[:, step] = np.median([x[:, min(max(at, 0), last)] for at in around], axis=0)
    return made


@pytest.mark.tools
@pytest.mark.parametrize(
    ("old", "new", "told"),
    [
        pytest.param(
            "at < 0 ? 0", "at < 0 ? 1", "layer 1 is computed by Median filter", id="C is wrong"
        ),
        pytest.param(
            'mode="edge"',
            'mode="wrap"',
            "layer 1 is computed by Median filter",
            id="NumPy is wrong",
        ),
        pytest.param(
            "scratch_bytes=window",
            "scratch_bytes=window - 2",
            "Median filter wrote beyond the scratch of layer 1 (CUSTOM MedianFilter",
            id="scratch",
        ),
        pytest.param(
            "    return 0;\n}",
            "    output[batch * steps * inner + 1] ^= 85;\n    return 0;\n}",
            "Median filter wrote outside of the outputs and the scratch of layer 1 (CUSTOM",
            id="outside of the output",
        ),
        pytest.param(
            "    return 0;\n}", "    return 9;\n}", "median_filter_s8 returned 9", id="status"
        ),
        *(
            pytest.param(
                *("    return 0;\n}", f"    return {status};\n}}"),
                "returned 123, instead of a status that is not in -100 to 100",
                id=f"status {status}",
            )
            for status in (127, 256)
        ),
        pytest.param(
            ".astype(source.dtype)]", "]", "returned float64 [1, 9, 6, 4], and the", id="type"
        ),
        pytest.param(
            "assert source is not None",
            "raise KeyError(3)",
            "raised KeyError: 3 (line",
            id="raises",
        ),
    ],
)
def test_what_is_wrong_is_found(
    network: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    old: str,
    new: str,
    told: str,
) -> None:
    plugin = changed(tmp_path, old, new)
    assert verify(network, plugin) == 1
    printed = capsys.readouterr()
    assert told in printed.out + printed.err


def test_the_file_must_agree_with_the_plugin(network: Path, tmp_path: Path) -> None:
    plugin = changed(tmp_path, "TensorType(source.shape,", "TensorType(source.shape[1:],")
    with pytest.raises(ModelError, match=r"makes int8 \[9, 6, 4\], and the file says int8 \[1, 9"):
        utvm_deploy.compile(network, "host", plugin=plugin)
    even = filtered_network(tmp_path / "even.tflite", window=4)
    with pytest.raises(
        PluginError, match=r"infer for CUSTOM MedianFilter raised ValueError: .* even"
    ):
        utvm_deploy.compile(even, "host", plugin=PLUGIN)


def test_other_custom_operators_are_refused(tmp_path: Path) -> None:
    unknown = filtered_network(tmp_path / "unknown.tflite", kind="MeanFilter")
    for plugin in (None, PLUGIN):
        with pytest.raises(UnsupportedOperator, match="CUSTOM 'MeanFilter'"):
            utvm_deploy.compile(unknown, "host", plugin=plugin)


@pytest.mark.tools
def test_a_model_of_nothing_else(tmp_path: Path) -> None:
    m = ModelWriter()
    m.output(median(m, m.input((2, 11, 3), 0.05, -7)))
    assert verify(m.save(tmp_path / "alone.tflite"), PLUGIN) == 0


@pytest.mark.tools
def test_its_bundle_holds_its_source(network: Path, tmp_path: Path) -> None:
    bundle, folder = tmp_path / "bundle", tmp_path / "build"
    argv = ["bundle", str(network), "--board", "host", "--no-latency", "-o", str(bundle)]
    assert main([*argv, "--plugin", str(PLUGIN)]) == 0
    text = (bundle / "src" / "filtered_kernels.c").read_text()
    assert text.count("static int32_t median_filter_s8(") == 1
    for command in (
        ["cmake", "-S", str(bundle), "-B", str(folder)],
        ["cmake", "--build", str(folder)],
        ["ctest", "--test-dir", str(folder), "--output-on-failure"],
    ):
        done = subprocess.run(command, timeout=BUILD_TIMEOUT_S, capture_output=True, text=True)
        assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.tools
def test_a_model_with_it_is_tuned(network: Path, tmp_path: Path) -> None:
    file = tmp_path / "r.jsonl"
    argv = ["tune", str(network), "--board", "host", "--trials", "3", "--records", str(file)]
    assert main([*argv, "--plugin", str(PLUGIN)]) == 0
    assert {record.kernel.operator for record in read_records(file)} == {"CONV_2D"}
    compiled = utvm_deploy.compile(network, "host", plugin=PLUGIN, records=file)
    assert [layer.is_external for layer in compiled.layers] == [False, True, True, False, True]


@pytest.mark.tools
@pytest.mark.emulator
def test_it_is_profiled_on_a_board(network: Path, capsys: pytest.CaptureFixture[str]) -> None:
    argv = ["profile", str(network), "--board", "mps3_an547", "--plugin", str(PLUGIN)]
    assert main(argv) == 0
    assert "CUSTOM MedianFilter" in capsys.readouterr().out
    assert verify(network, PLUGIN, "mps3_an547") == 0
