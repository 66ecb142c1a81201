"""Outputs on what a kernel has read of its input by then: as close as the planner may lay them.

Every family's C runs on this computer, once with its buffers apart and once on each other; on an
emulated core the assembly does so in the random models, whose arenas are planned this way.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from fenced import hides_accesses, planned_apart
from float_writer import FloatWriter
from kernel_harness import PREAMBLE, compile_library
from odd_shapes import random_inputs
from test_bounds import random_operator
from test_convolutions import spread_scale, weights_and_bias
from test_float_products import drawn
from tflite_writer import ModelWriter

from utvm_deploy.base.errors import UnsupportedOperator
from utvm_deploy.boards.board import load_board
from utvm_deploy.compiler.arena.overlap import may_share
from utvm_deploy.compiler.lowering.lowered_kernel import lower_kernel
from utvm_deploy.compiler.stages.pipeline import compile_model
from utvm_deploy.frontend.tflite import load_model
from utvm_deploy.graph.attributes import Move
from utvm_deploy.graph.model import Array, Graph, Operator, Tensor
from utvm_deploy.graph.number_formats.shipped import FLOAT16_ARITHMETIC
from utvm_deploy.kernels.choose.arithmetic import with_arithmetic
from utvm_deploy.kernels.choose.lowering import lower
from utvm_deploy.kernels.choose.space import space
from utvm_deploy.kernels.contract.c_function import CFunction
from utvm_deploy.kernels.contract.call import (
    ConstantArgument,
    KernelCall,
    LibraryKernel,
    ScalarArgument,
    TensorArgument,
)
from utvm_deploy.kernels.contract.lag import Lag, lag_of
from utvm_deploy.kernels.native.fpu.convolution import FpuConv2D
from utvm_deploy.kernels.native.fpu.rows import FpuRowConv2D
from utvm_deploy.records.candidate import COMPACT_MOST, Candidate

CORES = ("cortex-m0plus", "cortex-m3", "cortex-m7", "cortex-m55", "rv32imc")
LAYERS = 12
#: Of a layer's space, beside what is taken by default.
CANDIDATES = 3


def calls_of(graph: Graph, core: str, rng: np.random.Generator) -> Iterator[tuple[int, KernelCall]]:
    """Calls that may share bytes, with the operator's position."""
    for position, operator in enumerate(graph.operators):
        found: dict[object, KernelCall] = {}
        candidates = list(space(graph, operator, core))
        rng.shuffle(candidates)  # type: ignore[arg-type]
        # Of the last, which are dilated or in groups, all.
        most = CANDIDATES if position < LAYERS else len(candidates)
        for candidate in [None, *candidates[:most]]:
            call = lowered(graph, operator, core, candidate)
            if call is not None and lag_of(call.kernel) is not None:
                found.setdefault(call.kernel, call)
        small = lower(graph, operator, core, compact=COMPACT_MOST)
        if lag_of(small.kernel) is not None:
            found.setdefault(small.kernel, small)
        yield from ((position, call) for call in found.values())


def lowered(
    graph: Graph, operator: Operator, core: str, candidate: Candidate | None
) -> KernelCall | None:
    try:
        return lower(graph, operator, core, candidate)
    except UnsupportedOperator:
        return None


def compiled(calls: list[KernelCall], core: str, folder: Path) -> tuple[list[CFunction], object]:
    functions = []
    for number, call in enumerate(calls):
        assert may_share(call)
        assert not isinstance(call.kernel, LibraryKernel)
        functions.append(lower_kernel(call.kernel, f"k{number}", core, may_alias=True).function)
    source = folder / "kernels.c"
    imports = dict.fromkeys(text for f in functions for text in f.imports)
    texts = [f.prototype + "\n" + f.text for f in functions]
    source.write_text("\n".join([PREAMBLE, *imports, *texts]))
    return functions, compile_library(source)


def run(
    library: object, function: CFunction, call: KernelCall, image: Array, size: int, distance: int
) -> Array:
    """The output, ``size`` bytes, with the input ``distance`` bytes behind its start."""
    start = max(-distance, 0)
    memory = np.full(max(size, distance + image.nbytes, 0) + start + image.nbytes, 77, np.uint8)
    memory[start + distance :][: image.nbytes] = image.reshape(-1).view(np.uint8)
    address = memory.ctypes.data
    places = iter([address + start + distance, address + start])
    keep: list[Array] = []
    arguments: list[object] = []
    for argument in call.arguments:
        if isinstance(argument, ScalarArgument):
            arguments.append(ctypes.c_int32(argument.value))
        elif isinstance(argument, TensorArgument):
            arguments.append(ctypes.c_void_p(next(places)))
        else:
            assert isinstance(argument, ConstantArgument)
            keep.append(np.ascontiguousarray(argument.data))
            arguments.append(ctypes.c_void_p(keep[-1].ctypes.data))
    for scratch in function.scratch:
        keep.append(np.full(scratch.size_bytes + 8, 55, np.uint8))
        arguments.append(ctypes.c_void_p(keep[-1].ctypes.data))
    library[function.name](*arguments)  # type: ignore[index]
    return memory[start : start + size].copy()


def least(lag: Lag, image: Array) -> int:
    """The least distance that the lag allows, as far as they overlap at all."""
    return -(-max(lag.least_bytes, -image.nbytes) // lag.unit_bytes) * lag.unit_bytes


def overlapped(
    graph: Graph,
    position: int,
    call: KernelCall,
    function: CFunction,
    library: object,
    image: Array,
) -> int:
    """Check a kernel at its lag and a little more; 1 if outputs are wrong at a smaller distance."""
    (output,) = graph.operators[position].outputs
    size = graph.tensors[output].size_bytes
    lag = lag_of(call.kernel)
    assert lag is not None
    wanted = run(library, function, call, image, size, size)
    for more in (0, 1, 3):
        distance = least(lag, image) + more * lag.unit_bytes
        distance += -distance % image.itemsize
        got = run(library, function, call, image, size, distance)
        np.testing.assert_array_equal(got, wanted, err_msg=f"{call.kernel} by {distance}")
    nearer = least(lag, image) - max(lag.unit_bytes, image.itemsize)
    return int((run(library, function, call, image, size, nearer) != wanted).any())


def of_float32(rng: np.random.Generator) -> FloatWriter:
    m = FloatWriter()
    shapes = {"VALID": ((3, 3), (1, 1), (1, 3)), "SAME": ((3, 3), (2, 3))}
    for padding, kernels in shapes.items():
        for rows, columns in kernels:
            x = m.input((1, 9, 11, 6))
            weights = rng.normal(size=(6, rows, columns, 6)).astype(np.float32)
            m.output(m.conv2d(x, weights, drawn(6), padding=padding))
    # Few channels and many outputs: windows are copied.
    wide = rng.normal(size=(6, 1, 1, 300)).astype(np.float32)
    m.output(m.conv2d(m.input((1, 4, 4, 300)), wide, drawn(6)))
    return m


@pytest.mark.tools
def test_outputs_of_float16_lie_on_what_was_read(tmp_path: Path) -> None:
    rng = np.random.default_rng(3)
    m, own = of_float32(rng), FLOAT16_ARITHMETIC
    m.output(m.max_pool(m.input((1, 9, 11, 21)), (3, 3), stride=1, padding="SAME"))
    m.output(m.depthwise_conv2d(m.input((1, 9, 11, 9)), drawn(1, 3, 3, 9), drawn(9)))
    graph = load_model(m.save(tmp_path / "model.tflite")).replaced(number_format=own)
    graph = with_arithmetic(graph)
    # Conversions of the inputs come first.
    images = {
        n: own.encoded(drawn(*m.tensors[i].shape)) for n, i in enumerate(m.inputs, len(m.inputs))
    }
    found = [one for one in calls_of(graph, "cortex-m55", rng) if one[0] in images]
    functions, library = compiled([call for _, call in found], "cortex-m55", tmp_path)
    assert len(found) == len(images)
    for (position, call), function in zip(found, functions, strict=True):
        overlapped(graph, position, call, function, library, images[position])


@pytest.mark.tools
def test_outputs_of_float32_lie_on_what_was_read(tmp_path: Path) -> None:
    rng = np.random.default_rng(3)
    m = of_float32(rng)
    graph = load_model(m.save(tmp_path / "model.tflite"))
    images = [drawn(*m.tensors[i].shape) for i in m.inputs]
    found = list(calls_of(graph, "cortex-m7", rng))
    assert {FpuRowConv2D, FpuConv2D} <= {type(call.kernel) for _, call in found}
    functions, library = compiled([call for _, call in found], "cortex-m7", tmp_path)
    assert any(
        overlapped(graph, position, call, function, library, images[position])
        for (position, call), function in zip(found, functions, strict=True)
    )


@pytest.mark.tools
@pytest.mark.parametrize("core", CORES)
def test_moved_rows_lie_on_the_old_ones(core: str, tmp_path: Path) -> None:
    shape, moved = (1, 9, 5, 7), (1, 4, 5, 7)
    image = np.arange(9 * 35, dtype=np.uint8).astype(np.int8).reshape(shape)
    tensors = tuple(Tensor(name, one, "int8") for name, one in (("x", shape), ("y", moved)))
    starts = (0, 35, 96)
    operators = tuple(Operator("MOVE", (0,), (1,), Move(start), ()) for start in starts)
    graph = Graph("m", tensors, operators, (0,), (1,), "")
    calls = [lower(graph, operator, core) for operator in operators]
    functions, library = compiled(calls, core, tmp_path)
    size = tensors[1].size_bytes
    for position, start in enumerate(starts):
        call, function = calls[position], functions[position]
        got = run(library, function, call, image, size, size)
        np.testing.assert_array_equal(got.view(np.int8), image.reshape(-1)[start : start + size])
        overlapped(graph, position, call, function, library, image)


@pytest.mark.tools
@pytest.mark.parametrize("core", CORES)
def test_outputs_lie_on_what_was_read(core: str, tmp_path: Path) -> None:
    rng = np.random.default_rng(len(core))
    model = ModelWriter()
    for number in range(LAYERS):
        random_operator(model, rng, ("conv", "depthwise", "conv", "pool")[number % 4])
    # Columns shared by outputs that lie apart; channels in groups.
    for dilation, channels, groups in ((2, 5, 1), (3, 8, 1), (1, 4, 2), (2, 3, 3)):
        weights, bias = weights_and_bias(rng, (6, 3, 3, channels), 6)
        x = model.input((1, 9, 11, channels * groups), 0.05, 3)
        scale = spread_scale(9 * channels, 0.05, 0.01)
        model.output(model.conv2d(x, weights, bias, dilation=dilation, padding="SAME", scale=scale))
    # Tiles of Winograd.
    weights, bias = weights_and_bias(rng, (4, 3, 3, 16), 4)
    x = model.input((1, 13, 10, 16), 0.05, 3)
    scale = spread_scale(9 * 16, 0.05, 0.01)
    model.output(model.conv2d(x, weights, bias, padding="SAME", scale=scale))
    for pool in (model.average_pool, model.max_pool):
        x = model.tensor((1, 9, 11, 21), "int16", 0.0004, 0)
        model.inputs.append(x)
        y = pool(x, (3, 3), stride=1, padding="SAME")
        model.tensors[y].dtype = "int16"
        model.output(y)
    graph = load_model(model.save(tmp_path / "model.tflite"))
    images = random_inputs(model, 4)
    found = list(calls_of(graph, core, rng))
    functions, library = compiled([call for _, call in found], core, tmp_path)
    closer_fails = 0
    for (position, call), function in zip(found, functions, strict=True):
        closer_fails += overlapped(graph, position, call, function, library, images[position])
    assert len(found) >= LAYERS // 2
    # Helium has pools of int16, too.
    of_int16 = [call for at, call in found if images[at].dtype == np.int16]
    assert len(of_int16) == (2 if core == "cortex-m55" else 0)
    assert closer_fails, "distances that are never the least there is prove little"


def test_nothing_is_hidden_from_a_fence(tmp_path: Path) -> None:
    """What is read behind an input would else be the layer's own output."""
    rng, model = np.random.default_rng(6), ModelWriter()
    x = model.input((1, 9, 9, 8), 0.05, 3)
    for _ in range(2):
        weights, bias = weights_and_bias(rng, (8, 3, 3, 8), 8)
        x = model.conv2d(x, weights, bias, padding="VALID", scale=spread_scale(72, 0.05, 0.01))
    model.output(x)
    path, board = model.save(tmp_path / "model.tflite"), load_board("mps2_an500")
    assert hides_accesses(compile_model(path, board))
    with planned_apart():
        assert not hides_accesses(compile_model(path, board))
