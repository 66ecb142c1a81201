"""Models that compute with numbers of a format: every byte is that of the format's NumPy form."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tvm
from float_writer import FloatWriter
from format_models import EXAMPLE, SHAPES, drawn, module, network
from tvm import relax

import utvm_deploy
from utvm_deploy.base.errors import ModelError, UnsupportedOperator, UtvmError
from utvm_deploy.cli.main import main
from utvm_deploy.frontend.tflite import load_model
from utvm_deploy.graph.number_formats import Function, NumberFormat, register
from utvm_deploy.graph.number_formats.shipped import BFLOAT16

pytestmark = pytest.mark.tools


def of_functions(*shape: int) -> Any:
    """Functions, comparisons, conversions and choices of TVM's, and a variance."""
    x = relax.Var("x", relax.TensorType(shape, "float32"))
    builder = relax.BlockBuilder()
    with builder.function("main", [x]):
        with builder.dataflow():
            y = builder.emit(relax.op.multiply(relax.op.sigmoid(x), relax.op.exp(x)))
            z = builder.emit(relax.op.power(relax.op.abs(x), relax.const(0.5, "float32")))
            y = builder.emit(relax.op.where(relax.op.greater_equal(y, z), y, z))
            n = builder.emit(relax.op.astype(relax.op.round(y), "int32"))
            y = builder.emit(relax.op.divide(relax.op.astype(n, "float32"), y))
            y = builder.emit(relax.op.nn.softmax(relax.op.subtract(y, relax.op.mean(y, [1], True))))
            y = builder.emit_output(relax.op.concat([y, relax.op.sqrt(relax.op.abs(x))], axis=1))
        builder.emit_func_output(y)
    return builder.get()


def saved(module: Any, folder: Path) -> Path:
    path = folder / "module.relax"
    path.write_text(tvm.ir.save_json(module))
    return path


def checked(path: Path, board: str, own: Any) -> utvm_deploy.CompiledModel:
    """Verify that all bytes are equal to NumPy's."""
    with utvm_deploy.connect(board, timing="instructions") as device:
        found = utvm_deploy.verify(path, device, samples=2, number_format=own)
    assert found.ok and "equal to NumPy's form of" in found.headline
    assert all(check.bound.is_exact and check.samples for check in found.found.layers)
    return utvm_deploy.compile(path, board, number_format=own)


@pytest.mark.parametrize("where", ["host", "mps2_an500", "mps2_an385"])
def test_products_of_posits(where: str, tmp_path: Path) -> None:
    path = saved(module([drawn(*shape) for shape in SHAPES]), tmp_path)
    compiled = checked(path, where, EXAMPLE)
    floats = utvm_deploy.compile(path, where, kernels="generic")
    assert compiled.arena_bytes < 0.8 * floats.arena_bytes
    assert compiled.weights_bytes < 0.52 * floats.weights_bytes


def test_other_formats_of_models_compute_too(tmp_path: Path) -> None:
    checked(network(tmp_path / "net.tflite"), "host", EXAMPLE)


@pytest.fixture(scope="module")
def fused() -> NumberFormat:
    """bfloat16 that computes, with one rounding of a product and a sum; the rest by float32."""
    fma = Function(
        "const float product = utvm_fused_decode(a) * utvm_fused_decode(b);\n"
        "return utvm_fused_encode(utvm_float_of(utvm_bits_of(product)) + utvm_fused_decode(c));",
        lambda a, b, c: BFLOAT16.encoded(
            BFLOAT16.decoded(a) * BFLOAT16.decoded(b) + BFLOAT16.decoded(c)
        ),
    )
    return register("fused", 16, BFLOAT16.encode, BFLOAT16.decode, {"fma": fma})


@pytest.mark.parametrize("where", ["host", "mps2_an500"])
def test_functions_of_numbers(where: str, fused: NumberFormat, tmp_path: Path) -> None:
    """What the format lacks is computed on float32: by TVM's functions and by products."""
    checked(saved(of_functions(2, 24), tmp_path), where, fused)


def test_products_are_fused(fused: NumberFormat, tmp_path: Path) -> None:
    compiled = checked(saved(module([drawn(*s) for s in SHAPES]), tmp_path), "host", fused)
    assert any("= utvm_fused_fma(" in text for text in compiled.sources.values())


def test_what_has_no_numbers_is_refused(fused: NumberFormat, tmp_path: Path) -> None:
    """Loops that NumPy has no form of are not compared, and quantized models have nothing to do."""
    x = relax.Var("x", relax.TensorType((4, 6), "float32"))
    builder = relax.BlockBuilder()
    with builder.function("main", [x]):
        with builder.dataflow():
            y = builder.emit_output(relax.op.cumsum(x, axis=1))
        builder.emit_func_output(y)
    path = saved(builder.get(), tmp_path)
    with pytest.raises(UtvmError, match=r"NumPy has no form of|cannot be computed in number"):
        utvm_deploy.verify(path, "host", number_format=fused)
    digits = utvm_deploy.models.find("digits").files[0]
    with pytest.raises(ModelError, match="computes nothing in float32, so --format does not apply"):
        utvm_deploy.compile(digits, "host", number_format=fused)


def test_states_are_refused(fused: NumberFormat, tmp_path: Path) -> None:
    m = FloatWriter()
    x, h = m.input((1, 4), name="x"), m.input((1, 4), name="h")
    m.output(m.add(x, h))
    path = m.save(tmp_path / "sums.tflite")
    graph = load_model(path)
    states = {"h": graph.tensors[graph.outputs[0]].name}
    with pytest.raises(UnsupportedOperator, match="which cannot be numbers of fused; use a format"):
        utvm_deploy.compile(path, "host", states=states, number_format=fused)


@pytest.mark.parametrize("name", ["bfloat16", None])
def test_float64_is_near_float32(
    name: str | None, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rng = np.random.default_rng(22)
    weights = [rng.normal(size=shape).astype(np.float32) for shape in SHAPES]
    path = saved(module(weights), tmp_path)
    chosen = ["--format", name] if name else []
    assert main(["run", str(path), "--board", "host", "--float64", "--json", *chosen]) == 0
    layers = json.loads(capsys.readouterr().out)["float64"]
    assert [one["operator"] for one in layers].count("CONV_2D") == 1
    assert all(0 <= one["difference"] < 1e-5 for one in layers)
    assert any(one["difference"] > 0 for one in layers)


def test_float64_of_posits_is_their_error(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = str(network(tmp_path / "net.tflite"))
    assert main(["run", path, "--board", "host", "--float64", "--format", str(EXAMPLE)]) == 0
    told = re.findall(r"layer \d+ (\w+) .*: (\S+) from float64", capsys.readouterr().out)
    assert len(told) == 4 and all(1e-5 < float(one) < 0.1 for _, one in told)
