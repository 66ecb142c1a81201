"""The example of an accelerator: its command streams, its model in C, and what its faults do."""

from __future__ import annotations

import struct
import sys
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from tflite_writer import ModelWriter

import utvm_deploy
from utvm_deploy.backends import Match
from utvm_deploy.backends.plugins import load_plugin
from utvm_deploy.base.paths import data_dir
from utvm_deploy.base.python_file import module_of
from utvm_deploy.cli.main import main
from utvm_deploy.frontend.tflite import load_model
from utvm_deploy.graph.passes.simplify import simplify

FOLDER = Path(__file__).resolve().parents[2] / "examples" / "accelerator"
PLUGIN = FOLDER / "plugin.py"
DIGITS = data_dir("models") / "digits.tflite"
HANG, BAD_COMMAND, HALF = 1, 2, 3


def example(name: str) -> ModuleType:
    """A module of the example; what others import from there is the same one."""
    if name in sys.modules:
        return sys.modules[name]
    return module_of(FOLDER / f"{name}.py", name)


@pytest.fixture(scope="module")
def planned() -> list[tuple[list[tuple[int, ...]], list[int]]]:
    """The commands and the sizes of regions: two layers of a model together, and each alone."""
    plugin, graph = example("plugin"), simplify(load_model(DIGITS))
    convolutions = [one for one in graph.operators if one.kind == "CONV_2D"]
    (dense,) = (one for one in graph.operators if one.kind == "FULLY_CONNECTED")
    found = []
    for operators in ((*convolutions[:2],), (convolutions[2],), (dense,)):
        region = plugin.planned(Match(graph, operators, "generic"))
        found.append((region.stream().commands, region.region_bytes))
    return found


def test_commands_stay_within_memories_and_do_not_collide(
    planned: list[tuple[list[tuple[int, ...]], list[int]]],
) -> None:
    stream = example("mx8_stream")
    for commands, sizes in planned:
        stream.check(commands, sizes)
    commands, sizes = planned[0]
    for region, size in enumerate(sizes):
        shorter = [*sizes[:region], size - 1, *sizes[region + 1 :]]
        with pytest.raises(ValueError, match=f"of region {region}, which has {size - 1}"):
            stream.check(commands, shorter)
    at = next(i for i, one in enumerate(commands) if one[0] & 0xFF == stream.MATRIX)
    beyond = [*commands]
    beyond[at] = (*beyond[at][:5], stream.LOCAL_BYTES, *beyond[at][6:])
    with pytest.raises(ValueError, match=f"command {at} .MATRIX. has the bytes .* of local memory"):
        stream.check(beyond, sizes)


def test_each_wait_is_needed(planned: list[tuple[list[tuple[int, ...]], list[int]]]) -> None:
    stream = example("mx8_stream")
    commands, sizes = planned[0]
    collisions = 0
    for at, one in enumerate(commands):
        if one[1]:
            hasty = [*commands[:at], (one[0], 0, *one[2:]), *commands[at + 1 :]]
            try:
                stream.check(hasty, sizes)
            except ValueError as error:
                assert "collide: neither waits" in str(error)
                collisions += 1
    # Not all: some follow from the waits of later commands.
    assert collisions > sum(bool(one[1]) for one in commands) * 0.7


def test_tiles_are_loaded_while_the_unit_computes(
    planned: list[tuple[list[tuple[int, ...]], list[int]]],
) -> None:
    stream = example("mx8_stream")
    commands, _ = planned[0]
    times = stream.times(commands)
    kinds = [one[0] & 0xFF for one in commands]
    overlaps = [
        (a, b)
        for a, (start, end) in enumerate(times)
        for b, (other_start, other_end) in enumerate(times)
        if kinds[a] == stream.LOAD
        and kinds[b] == stream.MATRIX
        and start < other_end
        and other_start < end
    ]
    assert len({a for a, _ in overlaps}) >= 4
    assert stream.cycles(commands) < 0.8 * sum(end - start for start, end in times)


@pytest.mark.tools
def test_the_register_counts_the_cycles_of_the_specification(tmp_path: Path) -> None:
    cycles, stream = example("cycles"), example("mx8_stream")
    program = cycles.built(tmp_path)
    m = ModelWriter()
    x = m.input((1, 9, 7, 5), 0.05, -3)
    y = convolution(m, x, (11, 3, 2, 5), stride=(2, 1))
    m.output(convolution(m, y, (4, 1, 1, 11), padding="VALID"), y)
    regions = cycles.regions(m.save(tmp_path / "net.tflite"))
    assert list(regions) == [(0, 1)]
    told = (FOLDER / "README.md").read_text()
    digits = cycles.regions(DIGITS).values()
    for blob in (*regions.values(), *digits):
        head = struct.unpack_from("<7I", blob)
        start = 4 * (7 + 2 + head[4] + head[5] + 14 * head[6])
        commands = stream.decoded(blob[start : start + 48 * head[2]])
        # It also compares the bytes with those of cpu.c.
        counted = cycles.measured(program, blob)
        assert counted == stream.cycles(commands)
        assert blob not in digits or f"| {counted:,} |\n" in told


def convolution(m: ModelWriter, x: int, shape: tuple[int, ...], **options: Any) -> int:
    random = np.random.default_rng(sum(shape))
    weights = random.integers(-127, 128, shape).astype(np.int8)
    bias = random.integers(-900, 900, shape[0])
    scales = list(random.uniform(0.002, 0.01, shape[0]))
    return m.conv2d(x, weights, bias, scale=0.06, zero_point=4, weight_scale=scales, **options)


def failing(folder: Path, text: str) -> Path:
    path = folder / "failing.py"
    path.write_text(
        f"import sys\nsys.path.insert(0, {str(FOLDER)!r})\n"
        "from plugin import accelerator\n"
        f"backend = accelerator({text})\n"
    )
    return path


def verify(plugin: Path, board: str = "host") -> int:
    argv = ["verify", str(DIGITS), "--board", board, "--samples", "2", "--plugin", str(plugin)]
    return main(argv)


@pytest.mark.tools
def test_a_model_is_verified(tmp_path: Path) -> None:
    assert verify(PLUGIN) == 0
    compiled = utvm_deploy.compile(DIGITS, "host", plugin=PLUGIN)
    kinds = [one.kind for one in compiled.layers if one.engine == "MX8"]
    assert kinds == ["CONV_2D+CONV_2D", "CONV_2D", "FULLY_CONNECTED"]
    # Each region has a separate state.
    states = [one.arena[-1] for one in compiled.layers if one.engine == "MX8"]
    assert [one.size_bytes for one in states] == [16] * 3
    assert all(a.offset + 16 <= b.offset for a, b in pairwise(states))
    assert verify(failing(tmp_path, "has_interrupt=False")) == 0


@pytest.mark.emulator
def test_it_runs_on_a_board(tmp_path: Path) -> None:
    assert verify(PLUGIN, "mps2_an386") == 0


@pytest.mark.tools
@pytest.mark.parametrize(("test", "status"), [(HANG, -11), (BAD_COMMAND, -12), (HALF, -14)])
def test_a_fault_names_the_layer_or_is_mended_by_the_cpu(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], test: int, status: int
) -> None:
    assert verify(failing(tmp_path, f"test={test}")) == 1
    said = capsys.readouterr().err
    assert "MX8 refused layer 0 (CONV_2D+CONV_2D" in said and f"returned {status}" in said
    assert verify(failing(tmp_path, f"test={test}, has_fallback=True")) == 0


def test_what_does_not_fit_is_ours(tmp_path: Path) -> None:
    m = ModelWriter()
    m.output(convolution(m, m.input((1, 3, 3, 3000), 0.05, -3), (2, 3, 3, 3000)))
    model = m.save(tmp_path / "wide.tflite")
    compiled = utvm_deploy.compile(
        model, "host", plugin=replace(load_plugin(PLUGIN), estimate=None)
    )
    assert compiled.layers[0].engine != "MX8"
    assert "fits the local memory" in compiled.layers[0].why
