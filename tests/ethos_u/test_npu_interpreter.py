"""What Vela's streams compute is what LiteRT computes, byte for byte, if an NPU does what its
registers say."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest
from make_golden import DEDICATED, MODEL, exact, golden
from npu_interpreter import Npu
from npu_u85 import Npu85
from npu_weights import decoded_weights
from small_models import build_model, sample_inputs
from tflite_writer import ModelWriter

from utvm_deploy.backends.ethos_u.check import NpuProgram, checked
from utvm_deploy.backends.ethos_u.configurations import configuration
from utvm_deploy.backends.ethos_u.regions import KINDS
from utvm_deploy.backends.ethos_u.vela import compiled_by_vela, program_in
from utvm_deploy.base import process
from utvm_deploy.frontend.tflite import load_model
from utvm_deploy.graph.model import Array
from utvm_deploy.oracle.reference import run_reference

SHARED = Path(os.environ.get("UTVM_SHARED", "/nowhere")) / "models"
#: Models of which each operator that may go to an NPU is one.
OPERATORS = (
    *("abs", "add_broadcast_both", "average_pool_same", "branches", "conv_dilated"),
    *("conv_stride_beyond_window", "depthwise_multiplier", "extrema", "hard_swish", "join"),
    *("leaky_relu", "logistic", "max_pool_same", "mul", "prelu", "relu", "relu6", "relu_0_to_1"),
    *("relu_n1_to_1", "requantize", "softmax_beta", "split", "sub", "tanh", "transpose"),
    "transpose_conv",
)
needs_vela = pytest.mark.skipif(
    process.which("vela") is None, reason="needs Vela: pip install 'utvm-deploy[ethos-u]'"
)


def differing(path: Path, program: NpuProgram, samples: list[list[Array]]) -> int:
    """How many bytes of the outputs differ from LiteRT's."""
    kind = Npu85 if program.configuration.product == "u85" else Npu
    npu, reference = kind(program), run_reference(path, samples, outputs_only=True)
    count = 0
    for inputs, outputs in zip(samples, reference.outputs, strict=True):
        for made, wanted in zip(npu.run(inputs), outputs, strict=True):
            expected = np.frombuffer(np.ascontiguousarray(wanted).tobytes(), np.int8)
            count += int((made != expected).sum())
    return count


def drawn(path: Path, count: int) -> list[list[Array]]:
    graph, rng = load_model(path, is_quiet=True), np.random.default_rng(5)
    shapes = [graph.tensors[number].shape for number in graph.inputs]
    return [[rng.integers(-128, 128, one).astype(np.int8) for one in shapes] for _ in range(count)]


@pytest.mark.parametrize("name", ["ethos-u55-128", "ethos-u65-512", DEDICATED])
def test_the_stored_stream_computes_the_digits(name: str) -> None:
    program = program_in(golden(name), configuration(name))
    assert differing(MODEL, exact(MODEL, program), drawn(MODEL, 20)) == 0


def test_the_stored_stream_of_u85_computes_the_digits() -> None:
    """With Vela's scales: no sum of these samples is one that it rounds to another byte."""
    name = "ethos-u85-256"
    program = program_in(golden(name), configuration(name))
    assert differing(MODEL, program, drawn(MODEL, 20)) == 0


@needs_vela
@pytest.mark.parametrize(
    "name",
    [
        *("ethos-u55-32", "ethos-u65-256,sram-only", "ethos-u65-512"),
        "ethos-u65-512,dedicated-sram-256kb",
    ],
)
@pytest.mark.parametrize(
    "model",
    [
        "kws_ref_model",
        "vww_96_int8",
        pytest.param("pretrainedResnet_quant", marks=pytest.mark.slow),
    ],
)
def test_streams_of_larger_models_compute_them(model: str, name: str) -> None:
    path = SHARED / f"{model}.tflite"
    if not path.is_file():
        pytest.skip(f"needs {model}.tflite: set UTVM_SHARED to a folder with models/")
    program, _ = compiled_by_vela(path.read_bytes(), model, configuration(name))
    assert differing(path, exact(path, program), drawn(path, 2)) == 0


@needs_vela
@pytest.mark.parametrize("model", ["kws_ref_model", "vww_96_int8"])
def test_streams_of_u85_for_larger_models_compute_them(model: str) -> None:
    path = SHARED / f"{model}.tflite"
    if not path.is_file():
        pytest.skip(f"needs {model}.tflite: set UTVM_SHARED to a folder with models/")
    program, _ = compiled_by_vela(path.read_bytes(), model, configuration("ethos-u85-256"))
    assert differing(path, program, drawn(path, 2)) == 0


@needs_vela
@pytest.mark.parametrize("name", OPERATORS)
def test_streams_of_operators_compute_them(name: str, tmp_path: Path) -> None:
    model, path = build_model(name), tmp_path / f"{name}.tflite"
    model.save(path)
    for config in ("ethos-u55-128", "ethos-u85-256"):
        program, _ = compiled_by_vela(path.read_bytes(), name, configuration(config))
        assert differing(path, program, [sample_inputs(model, seed) for seed in range(4)]) == 0


@needs_vela
def test_a_stream_of_u85_computes_a_kernel_in_parts(tmp_path: Path) -> None:
    """Operations that write nothing keep sums for the next one."""
    m = ModelWriter()
    weights = np.random.default_rng(5).integers(-127, 128, (3, 5, 4, 2)).astype(np.int8)
    x = m.input((1, 14, 13, 2), 0.04, 5)
    m.output(m.conv2d(x, weights, np.arange(3), scale=0.9, stride=4))
    path = m.save(tmp_path / "parts.tflite")
    program, _ = compiled_by_vela(path.read_bytes(), "parts", configuration("ethos-u85-256"))
    done = checked(program).operations
    assert any(one.registers.get("OFM_PRECISION", 0) >> 14 == 3 for one in done)
    assert differing(path, program, drawn(path, 3)) == 0


def test_each_operator_that_may_go_to_an_npu_is_compared(tmp_path: Path) -> None:
    kinds = set[str]()
    for name in OPERATORS:
        build_model(name).save(path := tmp_path / f"{name}.tflite")
        kinds |= {one.kind for one in load_model(path, is_quiet=True).operators}
    assert kinds >= KINDS, KINDS - kinds


def test_an_encoded_stream_of_weights() -> None:
    """One slice: a palette of two, uncompressed, without runs of zeros: 1, -2, 1, and the end."""
    fields = (
        (6, 3), (2, 15), (7, 3), (0, 1), (1, 1), (0, 5), (1, 5), (1, 3), (2, 3), (5, 3),
        (0, 1), (1, 1), (0, 1), (7, 3),
    )  # fmt: skip
    value = place = 0
    for number, bits in fields:
        value, place = value | number << place, place + bits
    assert decoded_weights(value.to_bytes(-(-place // 8), "little")).tolist() == [1, -2, 1]
