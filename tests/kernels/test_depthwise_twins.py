"""Depthwise convolutions over twins: two rows of outputs by one multiplication."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from inspect import unwrap
from pathlib import Path

import numpy as np
import pytest
from fence import Fence
from fenced import fenced_device
from odd_shapes import random_inputs
from test_bounds import compare_behind_fence
from test_convolutions import spread_scale, weights_and_bias
from test_overlap import compiled, overlapped
from tflite_writer import ModelWriter

from utvm_deploy.base.errors import UnsupportedOperator
from utvm_deploy.boards.board import load_board
from utvm_deploy.compiler.options import CompileOptions, Objective
from utvm_deploy.compiler.stages.pipeline import compile_model
from utvm_deploy.device import Device
from utvm_deploy.frontend.tflite import load_model
from utvm_deploy.graph.model import Array, Graph
from utvm_deploy.kernels.choose.lowering import lower
from utvm_deploy.kernels.choose.space import space
from utvm_deploy.kernels.contract.requantization import requantized
from utvm_deploy.kernels.contract.window import Window
from utvm_deploy.kernels.isa import assembler
from utvm_deploy.kernels.isa.instructions import Instruction
from utvm_deploy.kernels.isa.list_scheduler import cycles, ordered
from utvm_deploy.kernels.native.dsp.assembly.depthwise_twins_code import (
    SHIFT,
    SPACING,
    Twins,
    pack_twins,
    twins_scaling,
    twins_text,
)
from utvm_deploy.kernels.native.dsp.depthwise_twins import TwinsChoices, twins_kernels
from utvm_deploy.kernels.native.scaling import Scaling, short_scaling
from utvm_deploy.records.candidate import Candidate
from utvm_deploy.targets.arm_m.timing_m7 import CORTEX_M7
from utvm_deploy.targets.contract.timing import Timing

#: Height, width, channels, kernel, stride, padding; then channels of a block, pairs of rows.
LAYERS = (
    ((25, 5, 8), (3, 3), (1, 1), "SAME", 8, 5),
    ((9, 7, 21), (3, 3), (1, 1), "SAME", 16, 2),
    ((8, 12, 12), (3, 3), (2, 2), "SAME", 8, 1),
    ((11, 13, 9), (3, 3), (2, 2), "SAME", 32, 3),
    ((6, 6, 40), (3, 3), (1, 1), "VALID", 32, 1),
    ((12, 9, 4), (5, 5), (1, 1), "SAME", 4, 2),
    ((13, 11, 6), (5, 5), (2, 2), "SAME", 32, 2),
    ((7, 2, 5), (3, 1), (1, 1), "SAME", 32, 1),
    ((2, 4, 4), (3, 3), (1, 1), "SAME", 32, 1),
    ((3, 3, 7), (3, 3), (1, 1), "SAME", 32, 1),
    ((9, 10, 5), (2, 4), (1, 3), "SAME", 32, 2),
    ((10, 9, 5), (1, 1), (3, 2), "VALID", 32, 1),
    ((14, 6, 8), (7, 2), (2, 1), "SAME", 8, 3),
)


def write_layers(model: ModelWriter, layers: Sequence[tuple[object, ...]] = LAYERS) -> None:
    """Each layer as an output, with what a fused RELU leaves of its outputs, or RELU6 below 127."""
    rng = np.random.default_rng(22)
    for number, (shape, kernel, stride, padding, *_) in enumerate(layers):
        channels = shape[2]  # type: ignore[index]
        weights, bias = weights_and_bias(rng, (1, *kernel, channels), channels)  # type: ignore[misc]
        x = model.input((1, *shape), 0.05, int(rng.integers(-128, 128)))  # type: ignore[misc]
        taps = kernel[0] * kernel[1]  # type: ignore[index]
        scale = spread_scale(taps, 0.05, 0.01)
        is_cut = number % 2 == 1
        made = 6 / (254 - 20 * (number % 3)) if is_cut else scale
        y = model.depthwise_conv2d(
            x,
            weights,
            bias,
            weight_scale=rng.uniform(0.005, 0.02, channels) * (made / scale),
            stride=stride,  # type: ignore[arg-type]
            padding=padding,  # type: ignore[arg-type]
            activation="RELU6" if is_cut else "RELU",
            scale=made,
            zero_point=-128,
        )
        model.output(y)


def candidates() -> Iterator[Candidate]:
    for *_, channels, rows in LAYERS:
        yield Candidate.of("dsp", method="twins", channels=channels, rows=rows)


@pytest.fixture(params=["mps2_an500", "mps2_an386"])
def rig(request: pytest.FixtureRequest) -> Iterator[tuple[Fence, Device]]:
    with fenced_device(request.param) as found:
        yield found


@pytest.mark.emulator
def test_twins_are_the_reference(rig: tuple[Fence, Device], tmp_path: Path) -> None:
    model = ModelWriter()
    write_layers(model)
    path = model.save(tmp_path / "model.tflite")
    graph = load_model(path)
    jobs = list(zip(graph.operators, candidates(), strict=True))
    assert compare_behind_fence(rig, path, model, jobs, graph) == len(jobs)


@pytest.mark.tools
def test_outputs_of_twins_lie_on_what_was_read(tmp_path: Path) -> None:
    """The rows that a later strip sees, too, are kept."""
    model = ModelWriter()
    write_layers(model)
    graph, images = load_model(model.save(tmp_path / "model.tflite")), random_inputs(model, 4)
    pairs = zip(graph.operators, candidates(), strict=True)
    calls = [lower(graph, operator, "cortex-m7", candidate) for operator, candidate in pairs]
    functions, library = compiled(calls, "cortex-m7", tmp_path)
    assert sum(
        overlapped(graph, position, call, function, library, images[position])
        for position, (call, function) in enumerate(zip(calls, functions, strict=True))
    )


@pytest.mark.parametrize(
    ("height", "rows", "top", "is_one"), [(12, 12, 1, True), (12, 13, 1, True), (12, 14, 1, False),
                                          (2, 2, 2, True), (2, 2, 3, False)],
)  # fmt: skip
def test_windows_far_outside_the_image_have_no_twins(
    height: int, rows: int, top: int, is_one: bool
) -> None:
    """A PAD may become such padding; the border would replace a row that is kept."""
    window = Window(1, height, 9, rows, 9, (3, 3), (1, 1), (1, 1), top, 1)
    assert any(twins_kernels(window, 8, TwinsChoices())) is is_one


def computed(packed: Array, upper: int, below: int) -> tuple[int, int]:
    """Outputs of a channel of one tap, as SMLAL, SMMLA and SSAT compute them."""
    low, high, multiplier, *offsets = (int(one) for one in packed[:20].view("<i4"))
    tap = int(packed[21]) << int(packed[20])
    total = ((high << 32) + (low & 0xFFFFFFFF)) + tap * (upper + 128 + (below << 24))
    total &= 2**64 - 1
    outputs = []
    for half, offset, shift in zip(
        (total & 0xFFFFFFFF, total >> 32), offsets, (SHIFT + SPACING, SHIFT), strict=True
    ):
        signed = half - (half >> 31 << 32)
        scaled = ((signed * multiplier >> 32) + offset) >> shift
        outputs.append(min(max(scaled, -128), 127))
    return outputs[0], outputs[1]


def test_both_words_are_the_reference() -> None:
    """Every pair of the extreme and of some other pixels, of channels of many scales."""
    rng = np.random.default_rng(7)
    channels, pixels = 300, (-128, -127, -1, 0, 1, 126, 127, *rng.integers(-128, 128, 6))
    weights = rng.integers(-127, 128, (channels, 1), dtype=np.int8)
    bias = rng.integers(-9000, 9000, channels, dtype=np.int32)
    multiplier = rng.integers(1 << 30, (1 << 31) - 1, channels, dtype=np.int32)
    shift = -rng.integers(3, 10, channels).astype(np.int32)
    scaling = short_scaling(bias, weights, multiplier, shift, -128)
    assert isinstance(scaling, Scaling)
    rows = twins_scaling(scaling, weights, -128, (-128, 127))
    assert rows is not None
    packed = pack_twins(weights, scaling, rows).reshape(channels, -1)
    for channel in range(channels):
        expected = {}
        for x in pixels:
            total = int(weights[channel, 0]) * int(x) + int(bias[channel])
            scaled = requantized(total, int(multiplier[channel]), int(shift[channel]))
            expected[int(x)] = min(max(scaled - 128, -128), 127)
        for upper, below in ((int(a), int(b)) for a in pixels for b in pixels):
            found = computed(packed[channel], upper, below)
            assert found == (expected[upper], expected[below])


@pytest.mark.parametrize(
    ("zero_point", "limits", "right"),
    [
        (0, (-128, 127), 7),
        (-128, (-100, 127), 7),
        (-128, (-128, -1), 7),
        (-128, (-128, 127), SHIFT + 2),
    ],
)
def test_layers_that_one_rounding_does_not_suit_have_no_twins(
    zero_point: int, limits: tuple[int, int], right: int
) -> None:
    weights = np.full((4, 9), 100, dtype=np.int8)
    numbers = (np.full(4, one, dtype=np.int32) for one in (5, 1_500_000_001, -right))
    scaling = short_scaling(next(numbers), weights, *numbers, zero_point)
    assert isinstance(scaling, Scaling)
    assert twins_scaling(scaling, weights, zero_point, limits) is None


def test_a_layer_without_twins_refuses_them_and_takes_planes(tmp_path: Path) -> None:
    model, rng = ModelWriter(), np.random.default_rng(2)
    weights, bias = weights_and_bias(rng, (1, 3, 3, 8), 8)
    x = model.input((1, 8, 8, 8), 0.05, 3)
    model.output(model.depthwise_conv2d(x, weights, bias, scale=spread_scale(9, 0.05, 0.01)))
    graph = load_model(model.save(tmp_path / "model.tflite"))
    twins = Candidate.of("dsp", method="twins", channels=8, rows=2)
    with pytest.raises(UnsupportedOperator):
        lower(graph, graph.operators[0], "cortex-m7", twins)
    assert "twins" not in lower(graph, graph.operators[0], "cortex-m7").kernel.name


def layer(tmp_path: Path) -> Graph:
    model = ModelWriter()
    write_layers(model, LAYERS[:1])
    return load_model(model.save(tmp_path / "model.tflite"))


def test_the_space_has_twins_and_a_packed_layer_takes_planes(tmp_path: Path) -> None:
    graph = layer(tmp_path)
    (operator,) = graph.operators
    found = [one for one in space(graph, operator, "cortex-m7") if one.choice("method") == "twins"]
    assert len(found) > 3
    assert "twins" in lower(graph, operator, "cortex-m7", found[0]).kernel.name
    assert "twins" not in lower(graph, operator, "cortex-m7", found[0], compact=1).kernel.name


@pytest.mark.parametrize("level", [Objective.SIZE, Objective.BALANCED])
def test_levels_for_little_flash_take_no_twins(level: Objective, tmp_path: Path) -> None:
    graph = layer(tmp_path)
    small = compile_model(graph, load_board("mps2_an500"), CompileOptions(objective=level))
    assert not any("twins" in text for text in small.sources.values())
    fast = compile_model(graph, load_board("mps2_an500"))
    assert any("twins" in text for text in fast.sources.values())


def test_loads_and_products_bound_a_block(monkeypatch: pytest.MonkeyPatch) -> None:
    """3x3 at stride 1: six outputs take 87 instructions, of which two are issued in a cycle."""
    blocks: list[list[Instruction]] = []

    def note(code: Sequence[Instruction], timing: Timing, *, is_loop: bool) -> list[Instruction]:
        blocks.append(ordered(code, timing, is_loop=is_loop))
        return blocks[-1]

    monkeypatch.setattr(assembler, "ordered", note)
    unwrap(twins_text)("cortex-m7", Twins(3, 3, 1, 1, 26, 130, 24, 32, 24))
    assert cycles(max(blocks, key=len), CORTEX_M7, repeat=10) <= 10 * 48
