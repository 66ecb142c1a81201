"""Kernels of float32 for floating-point units: the bits of the reference, in assembly and in C."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from fence import Fence
from fenced import fenced_device, placed, source_of, stretch, watched
from float_writer import FloatWriter
from kernel_harness import check_model
from test_float_products import drawn, odd

from utvm_deploy.boards.board import load_board
from utvm_deploy.compiler.lowering.lowered_kernel import lower_kernel
from utvm_deploy.device import Device
from utvm_deploy.frontend.tflite import load_model
from utvm_deploy.graph.model import Array
from utvm_deploy.kernels.choose.lowering import lower
from utvm_deploy.kernels.choose.space import space
from utvm_deploy.kernels.contract.c_texts import shared_text
from utvm_deploy.kernels.contract.call import is_native
from utvm_deploy.oracle.reference import run_reference
from utvm_deploy.project.link_module import compile_module
from utvm_deploy.records.candidate import Candidate
from utvm_deploy.tuning.measuring.build import kernel_text

CORE = "cortex-m7"


def every_layer() -> FloatWriter:
    """Layers that the family takes, with channels and pixels that no tile divides."""
    m = FloatWriter()
    x = m.input((1, 7, 6, 4))
    m.output(
        m.conv2d(x, drawn(7, 3, 3, 4), drawn(7), activation="RELU6"),
        m.conv2d(x, drawn(11, 3, 2, 4), drawn(11), stride=2, padding="VALID"),
        m.conv2d(x, drawn(5, 1, 1, 4), drawn(5), activation="RELU"),
        m.conv2d(x, drawn(2, 3, 3, 4), drawn(2), dilation=(2, 1), activation="RELU_N1_TO_1"),
        m.depthwise_conv2d(m.input((1, 6, 5, 1)), drawn(1, 3, 2, 9), drawn(9), stride=(1, 2)),
        m.depthwise_conv2d(x, drawn(1, 3, 3, 4), drawn(4), activation="RELU6"),
        m.depthwise_conv2d(m.input((1, 9, 6, 7)), drawn(1, 3, 3, 7), drawn(7), stride=2),
        m.depthwise_conv2d(x, drawn(1, 2, 5, 4), drawn(4), stride=(3, 1), padding="VALID"),
        m.fully_connected(m.input((2, 37)), drawn(21, 37), drawn(21), activation="RELU"),
        m.fully_connected(m.input((1, 6)), drawn(3, 6)),
    )
    # Pixels that no base of the loads reaches together, one row for a window of one pixel, runs
    # that are apart, and images of which there are several.
    wide, row = m.input((1, 3, 5, 300)), m.input((1, 1, 19, 6))
    m.output(
        m.conv2d(wide, drawn(4, 3, 1, 300), drawn(4)),
        m.conv2d(wide, drawn(3, 1, 1, 300), drawn(3), stride=2),
        m.conv2d(row, drawn(6, 1, 3, 6), drawn(6), dilation=(1, 4), activation="RELU"),
        m.conv2d(m.input((2, 9, 13, 3)), drawn(9, 1, 1, 3), drawn(9), activation="RELU6"),
        m.conv2d(m.input((2, 5, 4, 2)), drawn(3, 3, 3, 2), drawn(3)),
    )
    return m


def write_float_layers(path: Path) -> FloatWriter:
    m = every_layer()
    m.save(path)
    return m


def test_the_c_of_a_tile_is_not_fused(tmp_path: Path) -> None:
    """Its function has the attribute that forbids it, whatever options the compiler gets."""
    m = every_layer()
    graph = load_model(m.save(tmp_path / "model.tflite"))
    for operator in graph.operators:
        kernel = lower(graph, operator, CORE).kernel
        assert is_native(kernel)
        function = lower_kernel(kernel, "kernel", CORE).function
        assert function.imports[0] == shared_text("utvm_exact_float")
        tiles = [text for text in function.imports if "UTVM_NAKED" in text]
        assert tiles and all("#else\nUTVM_EXACT_FLOAT static void" in text for text in tiles)


@pytest.mark.parametrize("shape", [(1, 13, 37, 3), (1, 4, 1153, 1)])
def test_every_tile_that_tuning_tries_can_be_made(
    shape: tuple[int, int, int, int], tmp_path: Path
) -> None:
    """The last block of 481 pixels has too few of them for 5x4_rows, whatever its size."""
    m = FloatWriter()
    m.output(m.conv2d(m.input(shape), drawn(5, 1, 1, shape[3]), drawn(5)))
    graph = load_model(m.save(tmp_path / "model.tflite"))
    (operator,) = graph.operators
    candidates = [one for one in space(graph, operator, CORE) if one.family == "fpu"]
    assert len(candidates) > 3
    assert {lower(graph, operator, CORE, one).family for one in candidates} == {"fpu"}


@pytest.mark.tools
@pytest.mark.parametrize(("width", "stride", "channels"), [(1, 1, 16500), (3, 2, 8300)])
def test_pixels_may_be_more_than_64_kilobytes_apart(
    width: int, stride: int, channels: int, tmp_path: Path
) -> None:
    """One constant of MOVW does not hold such a distance."""
    m = FloatWriter()
    x = m.input((1, 1, width, channels))
    m.output(m.conv2d(x, drawn(1, 1, 1, channels), drawn(1), stride=stride, padding="VALID"))
    graph = load_model(m.save(tmp_path / "model.tflite"))
    kernel = lower(graph, graph.operators[0], CORE).kernel
    assert is_native(kernel) and "_rows" in kernel.name
    text = kernel_text([lower_kernel(kernel, "kernel", CORE).function])
    compile_module({"kernel.c": text}, load_board("mps2_an500"), name="kernel", flags=())


@pytest.mark.tools
@pytest.mark.parametrize("core", [CORE, "cortex-m4", "cortex-m55"])
def test_plain_c_has_the_bits_of_the_reference(core: str, tmp_path: Path) -> None:
    m = every_layer()
    path = m.save(tmp_path / "model.tflite")
    graph = load_model(path)
    families = {lower(graph, one, core, Candidate("fpu")).family for one in graph.operators}
    assert families == {"fpu"}
    samples = [[fill(*m.tensors[i].shape) for i in m.inputs] for fill in (drawn, odd, odd)]
    assert check_model(path, samples, tmp_path, core, family="fpu") == len(graph.operators)


def test_a_cortex_m4_leaves_outputs_of_few_products_to_plain_c(tmp_path: Path) -> None:
    """It limits outputs one by one, and that takes longer than a tile saves."""
    m = FloatWriter()
    x = m.input((1, 4, 4, 32))
    m.output(m.conv2d(x, drawn(4, 1, 1, 32), drawn(4)), m.conv2d(x, drawn(4, 3, 3, 32), drawn(4)))
    m.output(m.depthwise_conv2d(x, drawn(1, 3, 3, 32), drawn(32)))
    graph = load_model(m.save(tmp_path / "model.tflite"))
    for core, families in (("cortex-m4", ["generic", "fpu", "generic"]), (CORE, ["fpu"] * 3)):
        calls = [lower(graph, operator, core) for operator in graph.operators]
        assert [call.family for call in calls] == families
    assert "plain C does faster" in lower(graph, graph.operators[0], "cortex-m4").why_not


#: The tiles of all cores compute alike, in another order: each takes other candidates of a layer.
CORES = ("mps2_an500", "mps2_an386", "mps3_an547")


@pytest.fixture(scope="module", params=CORES)
def rig(request: pytest.FixtureRequest) -> Iterator[tuple[Fence, Device]]:
    with fenced_device(request.param) as found:
        yield found


@pytest.mark.emulator
def test_candidates_in_assembly_have_the_bits_of_the_reference(
    rig: tuple[Fence, Device], tmp_path: Path
) -> None:
    """And it touches nothing but its buffers."""
    fence, device = rig
    core = device.board.cpu.kernel_core
    m = every_layer()
    path = m.save(tmp_path / "model.tflite")
    graph = load_model(path)
    samples = [[fill(*m.tensors[i].shape) for i in m.inputs] for fill in (drawn, odd)]
    outputs = run_reference(path, samples).tensors
    calls = []
    for operator in graph.operators:
        found = [one for one in space(graph, operator, core) if one.family == "fpu"]
        some = found[CORES.index(device.board.name) % len(found) :: 2]
        calls += [(lower(graph, operator, core, candidate), operator) for candidate in some]
    functions = [
        lower_kernel(call.kernel, f"kernel_{n}", core, may_alias=True).function
        for n, (call, _) in enumerate(calls)
        if is_native(call.kernel)
    ]
    assert len(functions) == len(calls) > len(graph.operators)
    with device.load_module(kernel_text(functions), flags=("-O1", "-ffp-contract=off")) as module:
        for (call, operator), function in zip(calls, functions, strict=True):
            for sample in outputs:
                made, arguments = placed(device, graph, operator, call, function, sample)
                expected = sample[source_of(graph, operator)]
                own = [*(stretch(one.block) for one in made), stretch(module.block)]
                with watched(fence, device, module[function.name].address, own) as crossings:
                    module[function.name](*arguments)
                assert crossings == [], call.kernel.name
                assert_equal_bits(made[0].numpy(), expected, call.kernel.name)
                for one in made:
                    one.free()


def assert_equal_bits(actual: Array, expected: Array, label: str) -> None:
    """Numbers that are none have no certain sign and payload."""
    none = np.isnan(expected)
    np.testing.assert_array_equal(np.isnan(actual), none, err_msg=label)
    bits = [np.where(none, 0, one.view(np.uint32)) for one in (actual, expected)]
    np.testing.assert_array_equal(*bits, err_msg=label)
