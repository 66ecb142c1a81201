"""float16 by vectors: every byte is that of the format's NumPy form, also of odd numbers."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from fence import Fence
from fenced import fenced_device, placed, source_of, stretch, watched
from float_writer import FloatWriter
from test_float_products import drawn
from test_vector_floats import BOARD, CORE, vector_layers

from utvm_deploy import connect
from utvm_deploy.compiler.lowering.lowered_kernel import lower_kernel
from utvm_deploy.device import Device
from utvm_deploy.frontend.tflite import load_model
from utvm_deploy.graph.attributes import CallTir
from utvm_deploy.graph.model import Array, Graph, Operator
from utvm_deploy.graph.number_formats.shipped import FLOAT16_ARITHMETIC
from utvm_deploy.kernels.choose.arithmetic import with_arithmetic
from utvm_deploy.kernels.choose.lowering import lower
from utvm_deploy.kernels.contract.call import KernelCall, is_native
from utvm_deploy.kernels.contract.strategy import Layer, Wish
from utvm_deploy.kernels.native.fpu.convolution import product_call, product_of
from utvm_deploy.kernels.native.fpu.rows import row_kernels
from utvm_deploy.kernels.native.mve.float_rows import HalfRowTile
from utvm_deploy.oracle.number_reference import run_numbers
from utvm_deploy.tuning.measuring.build import kernel_text

#: Bits of float16: NaN, infinities, the largest number, the least ones, and zeros.
ODD = (0x7E00, 0x7C00, 0xFC00, 0x7BFF, 0x0001, 0x8001, 0x0200, 0x83FF, 0x0000, 0x8000)
#: One of so many register tiles of a layer is tried.
STEP = 6


def layers_of_halves() -> FloatWriter:
    """Products, pools and elementwise layers, with limits and channels that fill no vector."""
    m = vector_layers()
    x, y = m.input((2, 6, 5, 11)), m.input((2, 6, 5, 11))
    m.output(
        m.max_pool(x, (2, 2), padding="SAME", activation="RELU6"),
        m.max_pool(x, (3, 2), stride=(1, 2)),
        m.average_pool(x, (2, 4), stride=(1, 1)),
        m.average_pool(x, (2, 1), activation="RELU"),
        m.average_pool(x, (3, 3)),
        m.add(x, y, activation="RELU6"),
        m.add(y, m.constant(drawn(11))),
        m.add(m.constant(drawn(1, 6, 5, 1)), x, activation="RELU_N1_TO_1"),
        m.relu(x),
        m.relu6(y),
    )
    for kind in ("MUL", "SUB"):
        m.output(m.node(kind, [x, y], (2, 6, 5, 11), (f"{kind.title()}Options", {})))
    return m


def computing(graph: Graph) -> list[Operator]:
    """The operators that compute, which the conversions at the ends do not."""
    found = [one for one in graph.operators if isinstance(one.attributes, CallTir)]
    return [one for one in found if one.attributes.origin is not None]  # type: ignore[union-attr]


def calls_of(graph: Graph, operator: Operator) -> Iterator[KernelCall]:
    """The call that a compile takes, and those of other register tiles."""
    call = lower(graph, operator, CORE)
    yield call
    assert isinstance(operator.attributes, CallTir)
    floats, origin = operator.attributes.origin
    if origin.kind not in ("CONV_2D", "FULLY_CONNECTED"):
        return
    layer = Layer(floats, origin, CORE, lower(floats, origin))
    found = product_of(layer)
    assert not isinstance(found, str)
    window, weights, limits = found
    flat = weights.reshape(len(weights), -1)
    kernels = row_kernels(window, weights.shape[-1], len(weights), CORE, HalfRowTile)
    for one in list({one.tile: one for one in kernels}.values())[::STEP]:
        made = product_call(layer, Wish(), [one], flat, limits)
        ends = call.arguments[0], *made.arguments[1:-1], call.arguments[-1]
        yield replace(made, arguments=ends)


Made = tuple[Graph, list[tuple[KernelCall, Operator]], dict[int, Array]]


@pytest.fixture(scope="module", params=["usual", "odd"])
def layers(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Made:
    """Layers as a graph of numbers, their calls, and each tensor by NumPy.

    Odd inputs have all special numbers, and are so small that sums are denormal numbers.
    """
    m = layers_of_halves()
    path = m.save(tmp_path_factory.mktemp("halves") / "model.tflite")
    graph = load_model(path).replaced(number_format=FLOAT16_ARITHMETIC)
    sample = [drawn(*m.tensors[i].shape) for i in m.inputs]
    if request.param == "odd":
        values = np.array(ODD, np.uint16).view(np.float16).astype(np.float32)
        for one in sample:
            one *= np.float32(2.0**-20)
            places = np.linspace(0, one.size - 1, len(values)).astype(int)
            one.reshape(-1)[places] = values
    made = with_arithmetic(graph)
    (tensors,) = run_numbers(graph, [sample]).tensors
    calls = [
        (call, one)
        for one in computing(made)
        for call in calls_of(made, one)
        if is_native(call.kernel)
    ]
    return made, calls, dict(tensors)


def ran(
    device: Device, some: Sequence[tuple[KernelCall, Operator]], made: Made, fence: Fence | None
) -> None:
    """Run calls on a device; their bytes are those of NumPy, and stay inside of buffers."""
    graph, _, values = made
    functions = [
        lower_kernel(call.kernel, f"kernel_{n}", CORE, may_alias=True).function
        for n, (call, _) in enumerate(some)
    ]
    with device.load_module(kernel_text(functions), flags=("-O1",)) as module:
        for (call, operator), function in zip(some, functions, strict=True):
            blocks, arguments = placed(device, graph, operator, call, function, values)
            if fence is None:
                module[function.name](*arguments)
            else:
                own = [*(stretch(one.block) for one in blocks), stretch(module.block)]
                with watched(fence, device, module[function.name].address, own) as crossings:
                    module[function.name](*arguments)
                assert crossings == [], call.kernel.name
            expected = values[source_of(graph, operator)]
            np.testing.assert_array_equal(blocks[0].numpy(), expected, call.kernel.name)
            for one in blocks:
                one.free()


@pytest.fixture(scope="module")
def rig() -> Iterator[tuple[Fence, Device]]:
    with fenced_device(BOARD) as found:
        yield found


@pytest.mark.emulator
def test_every_tile_has_numpys_bytes(rig: tuple[Fence, Device], layers: Made) -> None:
    fence, device = rig
    _, calls, _ = layers
    assert len(calls) > 40
    for begin in range(0, len(calls), 60):
        ran(device, calls[begin : begin + 60], layers, fence)


@pytest.mark.tools
def test_c_without_vectors_has_the_same_bytes(layers: Made) -> None:
    _, calls, _ = layers
    with connect("host") as device:
        ran(device, calls[::5], layers, None)


def test_all_layers_with_constant_weights_have_vectors(tmp_path: Path) -> None:
    path = layers_of_halves().save(tmp_path / "model.tflite")
    graph = with_arithmetic(load_model(path).replaced(number_format=FLOAT16_ARITHMETIC))
    layers = computing(graph)
    calls = [lower(graph, one, CORE) for one in layers]
    generic = [call.why_not for call in calls if call.family == "generic"]
    assert len(layers) > 30 and len(generic) < 4
    assert any("a mean of 9 positions" in why for why in generic)
    assert not any(lower(graph, one, "cortex-m33").family != "generic" for one in layers)
