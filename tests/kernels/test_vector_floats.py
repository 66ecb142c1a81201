"""float32 by vectors, for ``--float-math fast``: within a bound that grows with the products."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from fence import Fence
from fenced import fenced_device, placed, source_of, stretch, watched
from float_writer import FloatWriter
from test_float_products import drawn
from test_fpu import every_layer

from utvm_deploy.compiler.lowering.lowered_kernel import lower_kernel
from utvm_deploy.device import Device
from utvm_deploy.frontend.tflite import load_model
from utvm_deploy.graph.model import Array, Graph, Operator
from utvm_deploy.kernels.choose.lowering import lower
from utvm_deploy.kernels.contract.call import KernelCall, is_native, with_fused_sums
from utvm_deploy.kernels.contract.strategy import Layer, Wish
from utvm_deploy.kernels.native.fpu.convolution import product_call, product_of
from utvm_deploy.kernels.native.fpu.rows import row_kernels
from utvm_deploy.kernels.native.mve.float_rows import VectorRowTile
from utvm_deploy.oracle.reference import run_reference
from utvm_deploy.tuning.measuring.build import kernel_text

BOARD, CORE = "mps3_an547", "cortex-m55"
#: Vectors take smaller numbers as 0.
LEAST_NORMAL = 2.0**-126


def vector_layers() -> FloatWriter:
    """Those of the other units, and more channels, so that tiles have several vectors."""
    m = every_layer()
    x, far = m.input((1, 5, 9, 6)), m.input((1, 1, 3, 1100))
    m.output(
        m.conv2d(x, drawn(27, 3, 3, 6), drawn(27), activation="RELU6"),
        m.conv2d(x, drawn(24, 1, 1, 6), drawn(24), activation="RELU_N1_TO_1"),
        m.conv2d(far, drawn(9, 1, 1, 1100), drawn(9)),
        m.depthwise_conv2d(x, drawn(1, 4, 5, 6), drawn(6), activation="RELU"),
        m.fully_connected(m.input((5, 12)), drawn(40, 12), drawn(40), activation="RELU"),
    )
    return m


def every_tile(graph: Graph, operator: Operator) -> list[KernelCall]:
    """The call that a compile takes, and one for each other register tile."""
    exact = lower(graph, operator, CORE)
    found = [with_fused_sums(exact)]
    layer = Layer(graph, operator, CORE, exact)
    product = product_of(layer) if operator.kind != "DEPTHWISE_CONV_2D" else "no product"
    if isinstance(product, str):
        return found
    window, weights, limits = product
    flat = weights.reshape(len(weights), -1)
    kernels = row_kernels(window, weights.shape[-1], len(weights), CORE, VectorRowTile)
    by_tile = {one.tile: one for one in kernels}  # the largest blocks
    return found + [product_call(layer, Wish(), [one], flat, limits) for one in by_tile.values()]


@pytest.fixture(scope="module")
def rig() -> Iterator[tuple[Fence, Device]]:
    with fenced_device(BOARD) as found:
        yield found


def allowed(graph: Graph, operator: Operator, sample: dict[int, Array]) -> Array:
    """What rounding each product and each sum may change, in any order of additions."""
    data = [graph.tensors[n] for n in operator.inputs if n is not None]
    source = np.abs(sample[data[0].source]).max()
    weights = np.abs(data[1].data).reshape(-1)
    depth = int(weights.size // graph.tensors[operator.outputs[0]].shape[-1])
    bias = np.abs(data[2].data).max() if len(data) > 2 else 0.0
    most = depth * float(source) * float(weights.max()) + float(bias)
    return np.float64(2 * (depth + 2) * 2.0**-24 * most)


@pytest.mark.emulator
def test_every_tile_is_within_its_bound_and_its_buffers(
    rig: tuple[Fence, Device], tmp_path: Path
) -> None:
    fence, device = rig
    m = vector_layers()
    path = m.save(tmp_path / "model.tflite")
    graph = load_model(path)
    (outputs,) = run_reference(path, [[drawn(*m.tensors[i].shape) for i in m.inputs]]).tensors
    calls = [(call, one) for one in graph.operators for call in every_tile(graph, one)]
    functions = [
        lower_kernel(call.kernel, f"kernel_{n}", CORE, may_alias=True).function
        for n, (call, _) in enumerate(calls)
        if is_native(call.kernel)
    ]
    assert len(functions) == len(calls) > 120
    for begin in range(0, len(calls), 60):
        some = list(zip(calls, functions, strict=True))[begin : begin + 60]
        text = kernel_text([function for _, function in some])
        with device.load_module(text, flags=("-O1", "-ffp-contract=off")) as module:
            for (call, operator), function in some:
                made, arguments = placed(device, graph, operator, call, function, outputs)
                own = [*(stretch(one.block) for one in made), stretch(module.block)]
                with watched(fence, device, module[function.name].address, own) as crossings:
                    module[function.name](*arguments)
                assert crossings == [], call.kernel.name
                expected = outputs[source_of(graph, operator)].astype(np.float64)
                distance = np.abs(made[0].numpy() - expected).max()
                assert distance <= allowed(graph, operator, outputs), call.kernel.name
                for one in made:
                    one.free()


def test_vectors_compute_what_they_are_faster_for(tmp_path: Path) -> None:
    graph = load_model(vector_layers().save(tmp_path / "model.tflite"))
    names = [with_fused_sums(lower(graph, one, CORE)).kernel.name for one in graph.operators]
    exact = [lower(graph, one, CORE).kernel.name for one in graph.operators]
    assert sum("_mve_" in name for name in names) > 12
    assert not any("_mve_" in name for name in exact)
    others = [with_fused_sums(lower(graph, one, "cortex-m33")) for one in graph.operators]
    assert not any("_mve_" in one.kernel.name for one in others)


@pytest.mark.emulator
def test_odd_numbers(rig: tuple[Fence, Device], tmp_path: Path) -> None:
    """NaN stays where the reference has it, limits hold, and denormal numbers count as 0."""
    _, device = rig
    m = FloatWriter()
    x = m.input((1, 4, 4, 8))
    m.output(
        m.conv2d(x, drawn(8, 1, 1, 8), np.zeros(8, np.float32), activation="RELU6"),
        m.depthwise_conv2d(x, drawn(1, 1, 1, 8), np.zeros(8, np.float32), activation="RELU6"),
    )
    path = m.save(tmp_path / "model.tflite")
    graph = load_model(path)
    given = drawn(1, 4, 4, 8)
    given[0, 0, 0, 3], given[0, 1, 1, 5], given[0, 2] = np.nan, np.inf, LEAST_NORMAL / 2
    (outputs,) = run_reference(path, [[given]]).tensors
    for operator in graph.operators:
        call = with_fused_sums(lower(graph, operator, CORE))
        assert is_native(call.kernel) and "_mve_" in call.kernel.name
        function = lower_kernel(call.kernel, "kernel", CORE).function
        with device.load_module(kernel_text([function])) as module:
            made, arguments = placed(device, graph, operator, call, function, outputs)
            module["kernel"](*arguments)
            got = made[0].numpy()
        expected = outputs[source_of(graph, operator)]
        np.testing.assert_array_equal(np.isnan(got), np.isnan(expected))
        np.testing.assert_allclose(got[0, :2], expected[0, :2], rtol=1e-4, atol=1e-5)
        assert not got[0, 2].any()
        for one in made:
            one.free()
