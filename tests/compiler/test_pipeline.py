"""From a .tflite file to C that computes the reference's bytes, on this computer."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from host_model import COMPILERS, HostModel, build_objects, has
from tflite_writer import ModelWriter

import utvm_deploy
from utvm_deploy.base.errors import CompileError, ModelError
from utvm_deploy.base.paths import data_dir
from utvm_deploy.boards.board import load_board
from utvm_deploy.compiler.c_text import check_prefix, float_literal, prefix_from_path
from utvm_deploy.compiler.compiled.library_format import read_library, write_library
from utvm_deploy.compiler.compiled.model import CompiledModel
from utvm_deploy.compiler.options import STAGES, CompileOptions
from utvm_deploy.compiler.stages.pipeline import PIPELINE, compile_model
from utvm_deploy.compiler.stages.request import Watch
from utvm_deploy.frontend.tflite import load_model
from utvm_deploy.oracle.reference import run_reference

HOST = load_board("host")
CORTEX_M7 = load_board("mps2_an500")
SAMPLES = 3
#: From the project's requirements: bytes of arena, inputs, outputs and scratch included.
ARENA_LIMITS = {
    "ad01_int8": 2_048,
    "kws_ref_model": 18_500,
    "pretrainedResnet_quant": 53_000,
    "vww_96_int8": 76_000,
}
STACK_LIMIT_BYTES = 1024  # what the generated header promises


def random_weights(rng: np.random.Generator, *shape: int) -> np.ndarray:
    return rng.integers(-127, 128, shape, dtype=np.int8)


def residual_model(path: Path) -> Path:
    """Two convolutions that share weights, a shortcut, pooling, reshape, dense, softmax."""
    rng = np.random.default_rng(3)
    m = ModelWriter()
    x = m.input((1, 8, 8, 4), scale=0.02, zero_point=-3, name="*/ #error image \\")
    weights, bias = random_weights(rng, 4, 3, 3, 4), rng.integers(-99, 99, 4)
    a = m.conv2d(x, weights, bias, activation="RELU", scale=0.1, zero_point=-128)
    b = m.conv2d(a, weights, bias, scale=0.5, zero_point=4)
    b = m.depthwise_conv2d(b, random_weights(rng, 1, 3, 3, 4), bias, scale=0.9, zero_point=4)
    c = m.add(a, b, activation="RELU6", scale=0.1, zero_point=-20)
    d = m.max_pool(c, 2)
    e = m.reshape(d, (1, 64))
    f = m.fully_connected(e, random_weights(rng, 10, 64), rng.integers(-99, 99, 10), scale=0.2)
    m.output(m.softmax(f), c)
    return m.save(path)


def float_model(path: Path) -> Path:
    """Float at both ends, two inputs."""
    rng = np.random.default_rng(4)
    m = ModelWriter()
    x = m.quantize(m.float_input((1, 6, 6, 2)), scale=0.02, zero_point=3)
    y = m.input((1, 6, 6, 2), scale=0.03)
    z = m.add(x, y, scale=0.05)
    z = m.conv2d(z, random_weights(rng, 3, 1, 1, 2), np.arange(3), scale=0.1)
    m.output(m.dequantize(z))
    return m.save(path)


def reshape_model(path: Path) -> Path:
    """Nothing to compute: the bytes must still reach the output."""
    m = ModelWriter()
    m.output(m.reshape(m.reshape(m.input((1, 4, 6)), (24,)), (2, 12)))
    return m.save(path)


MODELS = {"residual": residual_model, "floats": float_model, "reshape": reshape_model}


def samples_for(compiled: CompiledModel) -> list[list[np.ndarray]]:
    rng = np.random.default_rng(11)
    return [
        [
            rng.integers(-128, 128, b.shape, dtype=np.int8)
            if b.dtype == "int8"
            else rng.uniform(-4, 4, b.shape).astype(np.float32)
            for b in compiled.inputs
        ]
        for _ in range(SAMPLES)
    ]


@pytest.mark.parametrize("name", MODELS)
def test_outputs_and_every_layer_equal_the_reference(tmp_path: Path, name: str) -> None:
    path = MODELS[name](tmp_path / f"{name}.tflite")
    compiled = compile_model(path, HOST)
    model = HostModel(compiled, tmp_path)
    samples = samples_for(compiled)
    reference = run_reference(path, samples)
    for sample, outputs, tensors in zip(samples, reference.outputs, reference.tensors, strict=True):
        for got, expected in zip(model.run(sample), outputs, strict=True):
            np.testing.assert_array_equal(got, expected)
        made = model.run_layers(sample)
        assert made
        for number, got in made.items():
            np.testing.assert_array_equal(got, tensors[number])


@pytest.mark.parametrize("compiler", COMPILERS)
@pytest.mark.parametrize("name", MODELS)
def test_c_has_no_warnings(tmp_path: Path, name: str, compiler: str) -> None:
    if not has(compiler):
        pytest.skip(f"{compiler} is not installed")
    compiled = compile_model(
        MODELS[name](tmp_path / "model.tflite"), CORTEX_M7, CompileOptions(name="some")
    )
    assert len(build_objects(compiled, tmp_path, compiler)) == 3


def test_symbols_are_prefixed_and_nothing_is_writable(tmp_path: Path) -> None:
    compiled = compile_model(
        residual_model(tmp_path / "m.tflite"), HOST, CompileOptions(name="some")
    )
    defined, needed = set(), set()
    for file in build_objects(compiled, tmp_path, "gcc"):
        listing = subprocess.run(
            ["nm", str(file)], check=True, capture_output=True, text=True, timeout=60
        ).stdout
        for kind, symbol in re.findall(r"^[0-9a-f ]{16} (\S) (\S+)$", listing, re.M):
            assert kind in "TtRrUd", f"{symbol} is {kind}: neither code nor constant"
            # Relocated constants are 'd' in position-independent code; they are const in C.
            if kind == "d":
                assert symbol == "layers"
            if kind in "TR":
                defined.add(symbol)
            if kind == "U":
                needed.add(symbol)
    assert all(symbol.startswith("some_") for symbol in defined)
    assert {"some_run", "some_run_layer", "some_weights"} <= defined
    assert needed - defined <= {"memcpy", "memset", "_GLOBAL_OFFSET_TABLE_"}


def test_equal_constants_are_stored_once_and_reshape_costs_nothing(tmp_path: Path) -> None:
    compiled = compile_model(
        residual_model(tmp_path / "m.tflite"), HOST, CompileOptions(name="some")
    )
    header = compiled.sources["some_private.h"]
    first, second, *_ = [layer for layer in compiled.layers if layer.kind == "CONV_2D"]
    assert first.weights_bytes == second.weights_bytes
    assert len(re.findall(r"int8_t \w+\[144\]", header)) == 1
    assert "RESHAPE" not in {layer.kind for layer in compiled.layers}
    (only,) = compile_model(reshape_model(tmp_path / "r.tflite"), HOST).layers
    assert only.kind == "RESHAPE"


#: What a compile gives but its times, field by field.
FIELDS = """
import sys
from dataclasses import fields
from utvm_deploy.boards.board import load_board
from utvm_deploy.compiler.stages.pipeline import compile_model

def parts(path):
    made = compile_model(path, load_board("mps2_an500"))
    of_fields = {one.name: getattr(made, one.name) for one in fields(made) if one.name != "seconds"}
    sources = of_fields.pop("sources")
    return {name: repr(value) for name, value in of_fields.items()} | sources
"""


def test_result_is_the_same_in_another_process(tmp_path: Path) -> None:
    path = residual_model(tmp_path / "m.tflite")
    known: dict[str, Any] = {}
    exec(FIELDS, known)
    ours = known["parts"](path)
    # Caches of an earlier test, or files that changed since this process loaded them.
    other = subprocess.run(
        [
            sys.executable,
            "-c",
            f"{FIELDS}\nimport json\nprint(json.dumps(parts(sys.argv[1])))",
            path,
        ],
        env={
            "PYTHONHASHSEED": "77",
            "PATH": "/usr/bin:/bin",
            # The code of this process, also where another checkout is the installed one.
            "PYTHONPATH": str(Path(utvm_deploy.__file__).parents[1]),
        },
        check=True,
        capture_output=True,
        text=True,
        timeout=120,
    )
    theirs = json.loads(other.stdout)
    assert ours.keys() == theirs.keys()
    for name, text in ours.items():
        pairs = enumerate(zip(text, theirs[name], strict=False))
        at = next((n for n, (one, two) in pairs if one != two), min(len(text), len(theirs[name])))
        here, there = (one[max(at - 80, 0) : at + 80] for one in (text, theirs[name]))
        assert here == there, f"{name} differs at character {at}: {here!r} here, {there!r} there"


def test_stages_are_dumped_and_timed_in_order(tmp_path: Path) -> None:
    dumped: list[tuple[str, str]] = []
    path = residual_model(tmp_path / "m.tflite")
    compiled = compile_model(
        path,
        HOST,
        watch=Watch(dump=lambda stage, text: dumped.append((stage, text))),
    )
    assert tuple(stage for stage, _ in dumped) == STAGES == tuple(compiled.seconds)
    assert tuple(name for name, _ in PIPELINE) == STAGES
    texts = dict(dumped)
    assert "CONV_2D" in texts["import"]
    found = texts["search"].split("## ")
    assert [one.partition("\n")[0] for one in found[1:]] == [
        *("choices", "calls, before memory is looked at", "calls", "kernels")
    ]
    for part, words in zip(
        found[1:], ("(default)", "view: ", "view: ", "T.prim_func"), strict=True
    ):
        assert words in part
    assert f"{compiled.arena_bytes} bytes" in texts["place"]
    assert "void m_run(uint8_t *arena)" in texts["emit"]


def test_a_model_of_native_kernels_compiles_without_tvm() -> None:
    code = (
        "import sys, utvm_deploy\n"
        f"utvm_deploy.compile({str(data_dir('models') / 'digits.tflite')!r}, 'mps2_an500')\n"
        "print('tvm' in sys.modules)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], check=True, capture_output=True, text=True, timeout=120
    )
    assert done.stdout == "False\n"


def test_a_graph_compiles_like_its_file(tmp_path: Path) -> None:
    path = residual_model(tmp_path / "m.tflite")
    assert compile_model(load_model(path), HOST, CompileOptions(name="m")) == compile_model(
        path, HOST
    )


def test_archive_of_a_real_model_comes_back_equal(tmp_path: Path) -> None:
    compiled = compile_model(float_model(tmp_path / "m.tflite"), CORTEX_M7)
    write_library(compiled, tmp_path / "m.tar")
    assert read_library(tmp_path / "m.tar") == compiled


def test_malformed_graph_is_refused(tmp_path: Path) -> None:
    graph = load_model(residual_model(tmp_path / "m.tflite"))
    tensors = list(graph.tensors)
    tensors[graph.inputs[0]] = replace(tensors[graph.inputs[0]], dtype="int32")
    with pytest.raises(ModelError, match="int32"):
        compile_model(replace(graph, tensors=tuple(tensors)), HOST)


@pytest.mark.parametrize("name", ["1st", "a-b", "", "int", "über", "utvm_x", "x" * 49, "_x"])
def test_bad_prefix_is_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(CompileError, match=r"--name"):
        compile_model(reshape_model(tmp_path / "m.tflite"), HOST, CompileOptions(name=name))


@pytest.mark.parametrize(
    ("file", "prefix"),
    [
        ("kws_ref_model.tflite", "kws_ref_model"),
        ("my model (v2).tflite", "my_model_v2"),
        ("2nd.tflite", "model_2nd"),
        ("int.tflite", "model_int"),
        ("utvm.tflite", "model_utvm"),
        ("ü.tflite", "model"),
        ("x" * 99 + ".tflite", "x" * 48),
    ],
)
def test_prefix_from_file_name(file: str, prefix: str) -> None:
    assert prefix_from_path(f"/some/where/{file}") == check_prefix(prefix)


@pytest.mark.parametrize("value", [0.1, 1.0, 1e-30, 3.4e38, -0.0, 1 / 3, 16777216.0])
def test_float_literal_reads_back_the_same(value: float) -> None:
    text = float_literal(value)
    assert re.fullmatch(r"-?\d+(\.\d+)?(e[+-]\d+)?f", text)
    assert np.float32(text[:-1]) == np.float32(value)


def test_float_literal_of_what_is_not_finite() -> None:
    assert float_literal(float("inf")) == "(1.0f / 0.0f)"
    assert float_literal(float("nan")) == "(0.0f / 0.0f)"


@pytest.mark.parametrize("name", ARENA_LIMITS)
def test_reference_model(tmp_path: Path, shared_models: Path, name: str) -> None:
    """Golden bytes, arena and stack limits, no warnings."""
    compiled = compile_model(shared_models / f"{name}.tflite", CORTEX_M7)
    assert compiled.arena_bytes <= ARENA_LIMITS[name]
    golden = np.load(shared_models / f"{name}.golden.npz")
    model = HostModel(compiled, tmp_path)
    for sample, expected in zip(golden["inputs"][:2], golden["outputs"][:2], strict=True):
        (got,) = model.run([sample])
        np.testing.assert_array_equal(got.ravel(), expected.ravel())
    if has("arm-none-eabi-gcc"):
        build_objects(compiled, tmp_path, "arm-none-eabi-gcc", "-fstack-usage")
        usage = [
            int(line.split("\t")[1])
            for file in tmp_path.glob("*.su")
            for line in file.read_text().splitlines()
        ]
        # One layer's function calls one kernel, which calls nothing of its own.
        assert sum(sorted(usage)[-3:]) < STACK_LIMIT_BYTES


@pytest.mark.parametrize(
    ("name", "missing", "flag", "family"),
    [
        ("mps2_an386", {"core": "cortex-m33", "dsp": False}, "-mcpu=cortex-m33+nodsp", "thumb"),
        ("mps3_an547", {"mve": False}, "-mcpu=cortex-m55+nomve", "dsp"),
        ("mps3_an547", {"dsp": False, "mve": False}, "-mcpu=cortex-m55+nodsp", "thumb"),
    ],
)
def test_silicon_without_an_extension_gets_no_kernel_made_of_it(
    name: str, missing: dict[str, Any], flag: str, family: str
) -> None:
    board = load_board(name)
    lacking = replace(board, cpu=replace(board.cpu, **missing))
    assert flag in lacking.cpu.compiler_flags
    model = data_dir("models") / "digits.tflite"
    assert {layer.engine for layer in compile_model(model, lacking).layers} == {family, "generic"}
    assert family not in {layer.engine for layer in compile_model(model, board).layers}
