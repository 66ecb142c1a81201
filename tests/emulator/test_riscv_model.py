"""The cycle model of RISC-V cores: short sequences take what the makers' tables say."""

from __future__ import annotations

import shutil
from dataclasses import replace

import pytest

import utvm_deploy
from utvm_deploy.base.paths import data_dir
from utvm_deploy.boards.board import load_board
from utvm_deploy.silicon_kit.sequences import Count, agrees, cases_of, count_cases
from utvm_deploy.targets.contract.timing import Kind
from utvm_deploy.targets.emulator import cycle_model_digest
from utvm_deploy.targets.riscv.target import RISCV
from utvm_deploy.targets.riscv.timings import KINDS, NOT_THERE, TIMINGS

BOARDS = ("qemu_cv32e40p", "qemu_ibex", "qemu_ibex_single_cycle")
needs_tools = pytest.mark.skipif(
    not all(map(shutil.which, ("riscv64-unknown-elf-gcc", "qemu-system-riscv32"))),
    reason="needs riscv64-unknown-elf-gcc and qemu-system-riscv32; sudo apt install "
    "gcc-riscv64-unknown-elf picolibc-riscv64-unknown-elf qemu-system-misc",
)


@pytest.mark.tools
@pytest.mark.emulator
@needs_tools
@pytest.mark.parametrize("name", BOARDS)
def test_sequences_take_the_sum_of_the_tables_numbers(name: str) -> None:
    counts: list[Count] = []
    with utvm_deploy.connect(name) as device:
        assert device.is_modelled
        count_cases(device, cases_of(device.board), counts.extend)
    assert len(counts) > 20
    assert [one for one in counts if one.ticks is None or not agrees(one.case, one.ticks)] == []


@pytest.mark.tools
@pytest.mark.emulator
@needs_tools
def test_a_profile_is_in_modelled_cycles_and_every_instruction_is_known() -> None:
    model = data_dir("models") / "digits.tflite"
    found = utvm_deploy.profile(model, "qemu_ibex").found
    assert found.tick_unit == "cycles" and found.is_modelled
    for layer in found.layers:
        figures = layer.figures
        assert figures is not None
        assert figures["cycles"] == figures["core"] == figures["pessimistic"] == figures["rich"]
        assert figures["cycles"] > figures["instructions"]
        assert figures["mix_unknown"] == figures["unaligned"] == 0


def test_the_multiplier_alone_tells_the_two_configurations_of_ibex_apart() -> None:
    fast, single = TIMINGS["ibex"], TIMINGS["ibex-single-cycle"]
    differing = {a.kind for a, b in zip(fast.rows, single.rows, strict=True) if a != b}
    assert differing == {Kind.MULTIPLY, Kind.MULTIPLY_ADD, Kind.MULTIPLY_LONG}
    assert replace(fast, core=single.core, rows=single.rows) == single


def test_what_the_decoder_never_finds_has_no_timing() -> None:
    for timing in TIMINGS.values():
        assert {row.kind for row in timing.rows if row.source != NOT_THERE} - set(KINDS) == {
            Kind.MULTIPLY_ADD
        }


def test_the_planner_has_costs_in_cycles_where_cycles_are_counted() -> None:
    assert {core: RISCV.costs[core].unit for core in TIMINGS} == dict.fromkeys(TIMINGS, "cycles")
    others = {costs.unit for core, costs in RISCV.costs.items() if core not in TIMINGS}
    assert others == {"instructions"}


def test_each_core_has_its_own_digest() -> None:
    assert len({cycle_model_digest(load_board(name)) for name in BOARDS}) == len(BOARDS)
