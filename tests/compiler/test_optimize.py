"""--optimize time, size, balanced: the compiler's level, and kernels shared at a small loss."""

from __future__ import annotations

import re
import shutil
from dataclasses import replace
from pathlib import Path

import pytest

import utvm_deploy
from utvm_deploy.base.errors import CompileError
from utvm_deploy.base.paths import data_dir
from utvm_deploy.boards.board import load_board
from utvm_deploy.compiler.arena.plan import Step
from utvm_deploy.compiler.compiled.library_format import read_library, write_library
from utvm_deploy.compiler.options import (
    LEVELS,
    OPTIMIZATION_FLAGS,
    CompileOptions,
    Objective,
    ScratchStack,
)
from utvm_deploy.compiler.planning import decision
from utvm_deploy.compiler.planning.choice import Choose, calls_of, level_of, picked
from utvm_deploy.compiler.planning.scratch_limit import Spare, within_memory
from utvm_deploy.compiler.stages.pipeline import compile_model
from utvm_deploy.frontend.tflite import load_model
from utvm_deploy.graph.model import Graph, Operator
from utvm_deploy.graph.passes.simplify import simplify
from utvm_deploy.kernels.choose.lowering import lower
from utvm_deploy.kernels.choose.space import identity_of
from utvm_deploy.kernels.contract.call import KernelCall
from utvm_deploy.project import build_image
from utvm_deploy.project.tree import project_files
from utvm_deploy.records import DEFAULT, RECORD, Measurement, Record, Records, Setting
from utvm_deploy.records.candidate import Candidate

BOARD = load_board("mps2_an500")
CORE = "host"
DIGITS = data_dir("models") / "digits.tflite"
SETTING = Setting(CORE, "gcc", "", "0.1.0", "instructions")


@pytest.fixture
def convolutions() -> tuple[Graph, list[Operator]]:
    graph = simplify(load_model(DIGITS))
    found = {
        identity_of(graph, operator).key: operator
        for operator in graph.operators
        if operator.kind == "CONV_2D"
    }
    assert len(found) >= 2
    return graph, list(found.values())[:2]


def measured(graph: Graph, operator: Operator, **ticks: int) -> list[Record]:
    """Records of one operator: t2x2=100 is a tile and its ticks."""
    kernel = identity_of(graph, operator)
    return [
        Record(
            kernel,
            SETTING,
            Candidate.of("generic", tile=name[1:]),
            Measurement(count, float(count)),
        )
        for name, count in ticks.items()
    ]


def chooser(
    graph: Graph, core: str, records: Records, level: str, *, on_stack: bool = False
) -> Choose:
    near = Setting(core, "", OPTIMIZATION_FLAGS[level], "", "")
    most_scratch = level_of(graph, near, records) if on_stack else None
    picks = picked(graph, records, near, level, most_scratch)
    return calls_of(graph, core, picks, level)


def chosen(graph: Graph, operators: list[Operator], records: Records, level: str) -> list[str]:
    """For each operator the name of its kernel, which says the tile."""
    choose = chooser(graph, CORE, records, level)
    return [repr(choose(operator).kernel) for operator in operators]


def test_layers_share_what_is_nearly_best(convolutions: tuple[Graph, list[Operator]]) -> None:
    graph, operators = convolutions
    one, two = operators
    records = Records(
        [
            *measured(graph, one, t1x1=100, t2x2=102, t1x2=150),
            *measured(graph, two, t1x2=200, t2x2=205, t1x1=300),
        ]
    )
    alone = [chosen(graph, [operator], records, Objective.TIME) for operator in operators]
    fastest = chosen(graph, operators, records, Objective.TIME)
    assert fastest == [name for names in alone for name in names]
    shared = Records([*measured(graph, one, t2x2=1), *measured(graph, two, t2x2=1)])
    # Two and two and a half percent slower than each alone, but one kernel for both.
    balanced = chosen(graph, operators, records, Objective.BALANCED)
    assert balanced == chosen(graph, operators, shared, Objective.TIME) != fastest
    call = chooser(graph, CORE, records, Objective.BALANCED)(one)
    assert call.origin == RECORD


def test_layers_do_with_the_stack_that_costs_little(
    convolutions: tuple[Graph, list[Operator]],
) -> None:
    graph, operators = convolutions
    graph = replace(graph, operators=tuple(operators))

    def records(slower: int) -> Records:
        """The second layer's fastest takes 900 bytes of scratch, and one of 500 is slower."""
        sizes = {"1x1": 300, "1x2": 900, "2x2": 500}
        made = [
            *measured(graph, operators[0], t1x1=1000),
            *measured(graph, operators[1], t1x2=1000, t2x2=1000 + slower),
        ]
        return Records(
            replace(one, code_bytes=9, scratch_bytes=sizes[str(one.candidate.choice("tile"))])
            for one in made
        )

    def tiles(slower: int, on_stack: bool) -> list[str]:
        choose = chooser(graph, CORE, records(slower), Objective.TIME, on_stack=on_stack)
        return [repr(choose(operator).kernel) for operator in operators]

    # Four percent of this layer are two of both.
    assert tiles(40, on_stack=True) != tiles(40, on_stack=False) == tiles(41, on_stack=True)
    assert [level_of(graph, SETTING, records(slower)) for slower in (40, 41)] == [500, 900]
    assert level_of(graph, SETTING, Records(measured(graph, operators[0], t1x1=1))) is None


def test_what_costs_more_is_not_shared(convolutions: tuple[Graph, list[Operator]]) -> None:
    graph, operators = convolutions
    one, two = operators
    records = Records(
        [*measured(graph, one, t1x1=100, t2x2=104), *measured(graph, two, t1x2=200, t2x2=209)]
    )
    assert chosen(graph, operators, records, Objective.BALANCED) == chosen(
        graph, operators, records, Objective.TIME
    )


def test_small_code_knows_no_records(convolutions: tuple[Graph, list[Operator]]) -> None:
    graph, operators = convolutions
    records = Records(measured(graph, operators[0], t1x1=1))
    plain = chosen(graph, operators, Records(), Objective.TIME)
    assert chosen(graph, operators, records, Objective.TIME) != plain
    assert chosen(graph, operators, records, Objective.SIZE) == plain
    assert chooser(graph, CORE, records, Objective.SIZE)(operators[0]).origin == DEFAULT


@pytest.mark.slow
def test_the_compiler_is_told(tmp_path: Path) -> None:
    flags = {}
    for level in LEVELS:
        compiled = compile_model(
            DIGITS, BOARD, CompileOptions(kernels="generic", objective=Objective(level))
        )
        cmake = project_files(compiled, BOARD)["CMakeLists.txt"]
        flags[level] = next(s for s in ("-O3", "-Os", "-O2") if f"COMPILE_OPTIONS {s})" in cmake)
        path = tmp_path / f"{level}.tar"
        write_library(compiled, path)
        assert read_library(path).optimize == level and compiled.optimization_flag == flags[level]
    assert flags == {"time": "-O3", "size": "-Os", "balanced": "-O2", "ram": "-O3"}
    with pytest.raises(CompileError, match="no level 'speed'; choose one of time, size, balanced"):
        compile_model(DIGITS, BOARD, CompileOptions(objective=Objective.of("speed")))


@pytest.mark.tools
@pytest.mark.skipif(
    shutil.which("arm-none-eabi-gcc") is None, reason="arm-none-eabi-gcc is not installed"
)
def test_code_shrinks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(decision, "shipped_records", lambda core: Records())
    model = data_dir("models") / "cifar10_cnn.tflite"
    size, balanced, time = (
        build_image(
            compile_model(model, BOARD, CompileOptions(objective=Objective(level))), BOARD
        ).flash_bytes
        for level in (Objective.SIZE, Objective.BALANCED, Objective.TIME)
    )
    # A layer that may enlarge the arena by nothing can have a kernel that no other layer has.
    assert max(size, balanced) < time


@pytest.mark.parametrize("name", ["digits", "cifar10_cnn"])
def test_scratch_enlarges_the_arena_by_little(name: str) -> None:
    model = data_dir("models") / f"{name}.tflite"
    fast, small = (
        compile_model(model, BOARD, CompileOptions(objective=Objective(aim)))
        for aim in (Objective.TIME, Objective.SIZE)
    )
    assert small.arena_bytes <= fast.arena_bytes <= small.arena_bytes + 2048
    # On the stack scratch costs the arena nothing.
    free = compile_model(model, BOARD, CompileOptions(objective=Objective.TIME, scratch="stack"))
    assert free.arena_bytes <= small.arena_bytes
    assert not any("the arena larger" in layer.why for layer in free.layers)


def test_the_budget_that_a_layer_names_gives_it_its_fastest_kernel() -> None:
    board = load_board("qemu_ibex")
    fast = utvm_deploy.compile(DIGITS, board)
    named = {
        int(one) for la in fast.layers for one in re.findall(r"--ram-budget (\d+) all", la.why)
    }
    assert len(named) == 1
    budget = named.pop()
    within = utvm_deploy.compile(DIGITS, board, ram_budget=budget)
    assert fast.arena_bytes < within.arena_bytes <= budget
    assert not any("fastest kernel is not taken" in layer.why for layer in within.layers)


def first_kernel(
    sizes: dict[object, int],
    calls: list[KernelCall],
    spare_bytes: int = 0,
    stack: ScratchStack | None = None,
) -> object:
    """Of ``calls`` for the first layer the one that is taken; the first is the fastest."""
    graph = simplify(load_model(DIGITS))
    first, *rest = graph.operators

    def smaller(step: Step, most_bytes: int) -> KernelCall:
        if step.operator is not first:
            return step.call
        fitting = [call for call in calls if sizes[call.kernel] <= most_bytes]
        return fitting[0] if fitting else calls[-1]

    step, *_ = within_memory(
        graph,
        [Step(first, calls[0], ()), *(Step(other, lower(graph, other), ()) for other in rest)],
        smaller,
        lambda one: (sizes[one.call.kernel],) if one.call.kernel in sizes else (),
        Spare(spare_bytes),
        stack,
    )
    assert isinstance(step, Step)
    return step.call.kernel


@pytest.fixture
def three() -> tuple[list[KernelCall], dict[object, int]]:
    """Calls of one layer, and the scratch of their kernels."""
    graph = simplify(load_model(DIGITS))
    operator = graph.operators[0]
    fast = lower(graph, operator, "cortex-m7")
    middle = lower(graph, operator, "cortex-m7", Candidate.of("dsp", pixels=3))
    plain = lower(graph, operator)
    sizes = {fast.kernel: 20_000, middle.kernel: 3_000, plain.kernel: 16}
    return [fast, middle, plain], sizes


def test_scratch_takes_what_the_arena_has_to_spare(
    three: tuple[list[KernelCall], dict[object, int]],
) -> None:
    calls, sizes = three
    fast, middle, plain = (call.kernel for call in calls)
    # The first layer has 1,024 bytes of activations (its input lies in its output), and the second
    # 2,560.
    assert first_kernel(sizes, calls, 18_464) == fast
    assert first_kernel(sizes, calls, 18_463) == middle
    assert first_kernel(sizes, calls, 2_000) == middle
    assert first_kernel(sizes, calls, 1_000) == plain
    assert first_kernel(sizes, calls) == plain


def test_scratch_is_free_beside_a_layer_that_needs_more_in_any_case(
    three: tuple[list[KernelCall], dict[object, int]],
) -> None:
    calls, sizes = three
    graph = simplify(load_model(DIGITS))
    sizes[lower(graph, graph.operators[1]).kernel] = 30_000
    assert first_kernel(sizes, calls, 1_000) == calls[0].kernel
    sizes[calls[0].kernel] = 40_000
    assert first_kernel(sizes, calls, 1_000) == calls[1].kernel


def test_no_kernel_asks_for_a_stack_that_there_is_no_room_for(
    three: tuple[list[KernelCall], dict[object, int]], caplog: pytest.LogCaptureFixture
) -> None:
    calls, sizes = three
    fast, middle, plain = (call.kernel for call in calls)

    def kept(room: int, is_shared: bool) -> object:
        return first_kernel(sizes, calls, 0, ScratchStack(32_768, room, is_shared))

    assert kept(20_000, is_shared=False) == fast
    assert kept(60_000, is_shared=True) == fast
    with caplog.at_level("INFO", logger="utvm_deploy.compiler.planning.scratch_limit"):
        assert kept(19_999, is_shared=False) == middle
    assert "its scratch of 20,000 bytes is more than the stack has" in caplog.text
    assert kept(2_999, is_shared=False) == plain
    # What is left beside the arena is less.
    assert kept(20_000, is_shared=True) == middle


def test_a_stack_in_memory_of_its_own_is_worth_a_narrower_kernel(
    three: tuple[list[KernelCall], dict[object, int]],
) -> None:
    calls, sizes = three
    fast, middle, plain = (call.kernel for call in calls)

    def kept(spare_bytes: int, limit: int, is_shared: bool) -> object:
        return first_kernel(sizes, calls, spare_bytes, ScratchStack(limit, 60_000, is_shared))

    # The arena could take all of it.
    assert kept(30_000, 10_000, is_shared=True) == fast
    assert kept(30_000, 10_000, is_shared=False) == middle
    assert kept(30_000, 20_000, is_shared=False) == fast
    # Not even the least fits the stack.
    assert kept(30_000, 10, is_shared=False) == fast
    # Who wants few bytes has what the arena's size leaves.
    assert kept(0, 10_000, is_shared=False) == plain


def test_small_code_follows_what_was_measured_small(
    convolutions: tuple[Graph, list[Operator]],
) -> None:
    graph, operators = convolutions
    graph = replace(graph, operators=tuple(operators))
    small = replace(SETTING, flags="-Os")

    def sized(operator: Operator, ticks: int, code_bytes: int, **more: object) -> Record:
        (one,) = measured(graph, operator, t1x1=ticks)
        return replace(one, setting=small, code_bytes=code_bytes, **more)  # type: ignore[arg-type]

    default = {"candidate": Candidate("generic"), "is_default": True}
    smaller = [
        record
        for operator in operators
        for record in (sized(operator, 100, 400, **default), sized(operator, 300, 200))
    ]
    plain = chosen(graph, operators, Records(), Objective.SIZE)
    assert chosen(graph, operators, Records(smaller), Objective.SIZE) != plain
    # Smaller in one layer is not enough: the other layers' code comes on top.
    assert chosen(graph, operators, Records(smaller[:3]), Objective.SIZE) == plain
    fast = [replace(record, setting=SETTING) for record in smaller]
    assert chosen(graph, operators, Records(fast), Objective.SIZE) == plain


def test_much_flash_for_speed_is_said() -> None:
    board = load_board("qemu_rv32imc")
    fast, small = (
        compile_model(data_dir("models") / "digits.tflite", board, options)
        for options in (CompileOptions(flash_rate=0), CompileOptions(objective=Objective.SIZE))
    )
    assert f"take {fast.weights_bytes:,} bytes of flash, 5.8 times" in fast.hint
    assert fast.weights_bytes > 2 * small.weights_bytes and not small.hint
