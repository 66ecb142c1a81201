"""Each intrinsic's description and routine compute the same, and a mutant of either is caught."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any
from unittest import mock

import numpy as np
import pytest
import tvm
from intrinsic_cases import computed, dots, random_buffers, run_described, taps, tensorized

import utvm_deploy
from utvm_deploy.base.errors import CompileError
from utvm_deploy.device import Device
from utvm_deploy.graph.model import Array
from utvm_deploy.intrinsics import DSP, MVE, Dot, Intrinsic, Taps

BOARDS = {"host": (DSP, MVE), "mps2_an386": (DSP,), "mps2_an500": (DSP,), "mps3_an547": (MVE,)}
#: Mutants outside of the soak runs.
FEW = 4


def check(device: Device, intrinsics: list[Intrinsic], change: Change | None = None) -> None:
    """Compare all of them, each on random tiles and on tiles of extreme values."""
    functions: dict[str, Any] = {}
    inputs: dict[str, list[Array]] = {}
    expected: dict[str, Array] = {}
    for intrinsic in intrinsics:
        description, implementation = intrinsic.description, intrinsic.implementation
        if change is not None:
            description, implementation = change(description, implementation)
        function = tensorized(intrinsic, description, implementation, f"test_{intrinsic.name}")
        described = run_described(intrinsic, description)
        for seed in range(2):
            name = f"{intrinsic.name}_{seed}"
            functions[name] = function
            inputs[name] = random_buffers(intrinsic, seed)
            expected[name] = described(inputs[name])
    for name, found in computed(device, functions, inputs).items():
        np.testing.assert_array_equal(found, expected[name], err_msg=name)


@pytest.mark.tools
@pytest.mark.parametrize(
    "name",
    ["host", *(pytest.param(n, marks=pytest.mark.emulator) for n in BOARDS if n != "host")],
)
def test_descriptions_and_routines_agree(name: str) -> None:
    with utvm_deploy.connect(name) as device:
        for family in BOARDS[name]:
            check(device, [*dots(family), *taps(family)])


Change = Callable[[Any, Any], tuple[Any, Any]]


@dataclass(frozen=True)
class Mutant:
    """A text that is replaced in a description's script, or in the C of a routine."""

    where: str  # "description" or "implementation"
    intrinsic: Intrinsic
    old: str
    new: str
    board: str = "host"

    def __str__(self) -> str:
        return f"{self.board} {self.where} {self.old} -> {self.new}"

    def change(self, description: Any, implementation: Any) -> tuple[Any, Any]:
        """Both PrimFuncs, one of them mutated."""
        one = self.intrinsic
        if self.where == "description":
            return tvm.script.from_source(self._replaced(description.script())), implementation
        with mock.patch.object(type(one), "text", self._replaced(one.text)):
            return description, one.implementation

    def _replaced(self, text: str) -> str:
        if self.old not in text:
            raise ValueError(f"{self} changes nothing in {text}")
        return text.replace(self.old, self.new, 1)


DOT, TAPS = Dot(DSP, 2, 4, 38), Taps(DSP, 3, 3, 8)
HELIUM, HELIUM_TAPS = Dot(MVE, 2, 4, 38), Taps(MVE, 3, 3, 8)
M4, M55 = "mps2_an386", "mps3_an547"
MUTANTS = [
    Mutant("description", DOT, "c[v, v_1] + ", "c[v, v_1] - "),
    Mutant("implementation", DOT, "smlad r4, r3, r8, r4", "smlad r4, r3, r9, r4", M4),
    Mutant("implementation", TAPS, "c[n] += a", "c[n] -= a"),
    Mutant("description", TAPS, '"int8"', '"uint8"'),
    Mutant("description", DOT, "b[v_1, v_2]", "b[v, v_2]"),
    Mutant("description", TAPS, "a[v_1, v_2, v]", "a[v_2, v_1, v]"),
    Mutant("implementation", DOT, "n * b_pitch + k", "m * b_pitch + k"),
    Mutant("implementation", DOT, "b[n * b_pitch + k]", "(uint8_t)b[n * b_pitch + k]"),
    Mutant("implementation", DOT, "k < 38", "k < 37"),
    Mutant(
        "implementation",
        DOT,
        "int32_t a_pitch,\n    int32_t b_pitch",
        "int32_t b_pitch,\n    int32_t a_pitch",
    ),
    Mutant("implementation", DOT, "sxtb16 r11, r9, ror #8", "uxtb16 r11, r9, ror #8", M4),
    Mutant("implementation", DOT, "lsr r9, r9, #16", "lsr r9, r9, #8", M4),
    Mutant("implementation", TAPS, "sum2 = __smlatt", "sum2 = __smlabb", M4),
    Mutant("implementation", TAPS, "y * b_row + n", "y * a_pixel + n", M4),
    Mutant("implementation", HELIUM, "vmladavaq_s8(high, value", "vmladavaq_s8(low, value", M55),
    Mutant("implementation", HELIUM, "vctp8q((uint32_t)(depth - k))", "vctp8q(16)", M55),
    Mutant("implementation", HELIUM_TAPS, "vaddq_s32", "vsubq_s32", M55),
]


@pytest.fixture(scope="module")
def devices() -> Iterator[Callable[[str], Device]]:
    """Each device, connected once."""
    connected: dict[str, Device] = {}

    def of(name: str) -> Device:
        if name not in connected:
            connected[name] = utvm_deploy.connect(name)
        return connected[name]

    yield of
    for one in connected.values():
        one.close()


@pytest.mark.tools
@pytest.mark.parametrize(
    "mutant",
    [
        pytest.param(
            mutant,
            id=str(number),
            marks=[
                *([pytest.mark.soak] if number >= FEW else []),
                *([pytest.mark.emulator] if mutant.board != "host" else []),
            ],
        )
        for number, mutant in enumerate(MUTANTS)
    ],
)
def test_a_mutant_is_caught(mutant: Mutant, devices: Callable[[str], Device]) -> None:
    device = devices(mutant.board)
    with pytest.raises((AssertionError, tvm.s_tir.ScheduleError)) as caught:
        check(device, [mutant.intrinsic], mutant.change)
    assert "Arrays are not equal" in str(caught.value) or mutant.where == "description"


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Dot("neon", 2, 2, 4), "no tensor intrinsics of family 'neon'; take dsp or mve"),
        (lambda: Dot(DSP, 2, 3, 4), "no tile of 2 x 3; take .* an even number of columns"),
        (lambda: Dot(DSP, 2, 2, 3), "no depth of 3; split the reduction"),
        (lambda: Taps(DSP, 1, 1, 4), "no window of 1 x 1"),
        (lambda: Taps(DSP, 3, 3, 6), "no tile of 6 channels; take a multiple of 4"),
    ],
)
def test_tiles_that_there_are_not(make: Callable[[], Intrinsic], message: str) -> None:
    with pytest.raises(CompileError, match=message):
        make()
