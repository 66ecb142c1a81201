"""The assembler: what it writes, and what it refuses."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from utvm_deploy.kernels.isa import assembler
from utvm_deploy.kernels.isa.assembler import Assembler, Label, StackFrame, words
from utvm_deploy.kernels.isa.code_cache import as_written, code_cache
from utvm_deploy.kernels.isa.mnemonics import Slot, at, instruction, post, pre
from utvm_deploy.kernels.isa.naked_function import LONGEST_STRING, naked_function
from utvm_deploy.targets.arm_m.timing_m7 import CORTEX_M7
from utvm_deploy.targets.contract.timing import Kind

PARAMETERS = (
    *("const int8_t *x", "const int8_t *w", "int8_t *y", "int32_t count"),
    *("int32_t depth", "const int32_t *table"),
)


class Slots(StackFrame):
    end: Slot
    scales: Slot = words(3)
    last: Slot


class MoreSlots(Slots, size_bytes=32):
    other: Slot


def test_a_frame_lays_its_slots_out_in_order_behind_those_of_its_base() -> None:
    assert [Slots.end, Slots.scales.word(2), Slots.last] == [Slot(0), Slot(12), Slot(16)]
    assert (Slots.size_bytes, MoreSlots.other, MoreSlots.size_bytes) == (20, Slot(20), 32)


def test_a_routine_saves_registers_and_finds_its_arguments() -> None:
    a = Assembler(parameters=PARAMETERS)
    a.enter(("r4-r6", "lr"), Slots, vectors=("d8-d9",))
    a.ldr("r4", a.stack_argument("table"))
    a.mov("r5", a.argument("w"))
    a.leave()
    assert a.lines == [
        *("push {r4-r6, lr}", "vpush {d8-d9}", "sub sp, #20"),
        *("ldr r4, [sp, #56]", "mov r5, r1"),
        *("add sp, #20", "vpop {d8-d9}", "pop {r4-r6, pc}"),
    ]


def test_a_routine_without_thumb2_saves_high_registers_through_low_ones() -> None:
    a = Assembler(parameters=PARAMETERS, has_thumb2=False)
    a.enter(("r4-r5", "r8", "lr"), Slots)
    a.ldr("r4", a.stack_argument("table"))
    a.leave()
    assert a.lines == [
        *("push {r4, r5, lr}", "mov r4, r8", "push {r4}", "sub sp, #20"),
        "ldr r4, [sp, #40]",
        *("add sp, #20", "pop {r4}", "mov r8, r4", "pop {r4, r5, pc}"),
    ]
    with pytest.raises(ValueError, match="r8, r9 need as many registers below r8"):
        a.enter(("r4", "r8-r9", "lr"))


def test_a_far_loop_without_thumb2_ends_with_two_branches() -> None:
    """A conditional branch of Armv6-M reaches 254 bytes."""
    for has_thumb2, last in ((False, ["ble 2f", "b 1b", "2:"]), (True, ["bgt 1b"])):
        a = Assembler(has_thumb2=has_thumb2)
        with a.loop("gt"):
            for _ in range(200):
                a.subs("r0", 1)
        assert a.lines[201:] == last


def test_slots_are_loaded_and_stored_by_name() -> None:
    a = Assembler(parameters="int8_t *x, int8_t *y, int a, int b, int32_t last,\nint32_t end")
    a.enter(("r4-r6", "lr"), Slots)
    a.copy_arguments("r4", Slots, "end", "last")
    a.load(r5=Slots.last, r6=Slots.end)
    a.store(r6=Slots.last)
    assert a.parameters[-2:] == ("int32_t last", "int32_t end")
    assert a.lines[2:] == [
        *("ldr r4, [sp, #40]", "str r4, [sp]", "ldr r4, [sp, #36]", "str r4, [sp, #16]"),
        *("ldr r5, [sp, #16]", "ldr r6, [sp]", "str r6, [sp, #16]"),
    ]


def test_branches_go_to_numbers_up_or_down() -> None:
    a = Assembler()
    done = Label()
    with a.loop("gt", aligned=True):
        a.subs("r0", 1)
        a.cbz("r1", done)
        with a.unless("eq"):
            a.str("r0", post("r2", 4))
    a.place(done)
    assert a.lines == [
        *(".balign 8", "1:", "subs r0, #1", "cbz r1, 3f", "beq 2f"),
        *("str r0, [r2], #4", "2:", "bgt 1b", "3:"),
    ]


def test_conditional_blocks_write_it_and_vpst() -> None:
    a = Assembler()
    with a.when("eq") as otherwise:
        a.mov("r0", 0)
        otherwise()
        a.mov("r0", 1)
    with a.predicated():
        a.vstrb_32("q0", at("r1"))
        a.vstrb_32("q1", at("r1", 4))
    assert a.lines == [
        *("ite eq", "moveq r0, #0", "movne r0, #1"),
        *("vpstt", "vstrbt.32 q0, [r1]", "vstrbt.32 q1, [r1, #4]"),
    ]
    # The value that stays if the condition does not hold is read.
    assert "r0" in a.code[1].reads
    assert "flags" in a.code[1].reads


def test_hardware_loops_end_as_they_began() -> None:
    a = Assembler()
    with a.hardware_loop("dlstp.8", "r3"):
        a.vldrb_8("q0", post("r0", 16))
    with a.hardware_loop("wls", "r3"):
        a.add("r1", "r1", "r2", "lsl #1")
    assert a.lines == [
        *("dlstp.8 lr, r3", "1:", "vldrb.8 q0, [r0], #16", "letp lr, 1b"),
        *("wls lr, r3, 3f", "2:", "add r1, r1, r2, lsl #1", "le lr, 2b", "3:"),
    ]


def test_scheduled_code_keeps_its_dependences() -> None:
    a = Assembler(CORTEX_M7)
    with a.scheduled():
        for number, register in enumerate(("r4", "r5", "r6")):
            a.ldr(register, at("r0", 4 * number))
            a.smlad("r1", register, register, "r1")
    lines = a.lines
    assert len(lines) == 6
    for register in ("r4", "r5", "r6"):
        loaded = next(n for n, line in enumerate(lines) if line.startswith(f"ldr {register}"))
        assert loaded < lines.index(f"smlad r1, {register}, {register}, r1")
    assert lines[1].startswith("ldr")  # not behind a product that waits for the first load


def test_no_load_is_scheduled_behind_a_store_to_other_memory() -> None:
    """An output may share bytes with the input that the load reads."""
    a = Assembler(CORTEX_M7)
    with a.scheduled():
        for number in range(4):
            a.ldr(f"r{4 + number}", at("r0", 8 * number))
        a.str("r8", post("r1", 4))
        # Nothing waits for the loads, and much for the store's new address.
        for _ in range(4):
            a.mul("r1", "r1", "r1")
    assert all(line.startswith("ldr") for line in a.lines[:4])


@pytest.mark.parametrize(
    ("made", "reads", "writes"),
    [
        (instruction("subs", "r0", 1), {"r0"}, {"r0", "flags"}),
        (instruction("bfi", "r0", "r1", 8, 8), {"r0", "r1"}, {"r0"}),
        (instruction("smlal", "r0", "r1", "r2", "r3"), {"r0", "r1", "r2", "r3"}, {"r0", "r1"}),
        (instruction("ldr", "r0", pre("r1", 4)), {"r1"}, {"r0", "r1"}),
        (instruction("ldrb", "r0", at("r1", "r2, lsl #2")), {"r1", "r2"}, {"r0"}),
        (instruction("strd", "r0", "r1", Slot(8)), {"r0", "r1", "sp"}, {"stack"}),
        (instruction("ldm", "r1!", ("r4-r6",)), {"r1"}, {"r1", "r4", "r5", "r6"}),
        (instruction("sel", "r0", "r1", "r2"), {"r1", "r2", "ge"}, {"r0"}),
        (instruction("sadd16", "r0", "r1", "r2"), {"r1", "r2"}, {"r0", "ge"}),
        (instruction("uqsub8", "r0", "r1", "r2"), {"r1", "r2"}, {"r0"}),
        (instruction("vmov", "q4[2]", "q4[0]", "r0", "r2"), {"q4", "r0", "r2"}, {"q4"}),
        (instruction("vmla.s32", "q0", "q1", "r7"), {"q0", "q1", "r7"}, {"q0"}),
        (instruction("vctp.32", "r8"), {"r8"}, {"p0"}),
        (instruction("vcmp.s32", "gt", "q0", "q1"), {"q0", "q1"}, {"p0"}),
    ],
    ids=lambda one: getattr(one, "text", ""),
)
def test_an_instruction_says_what_it_reads_and_writes(
    made: object, reads: set[str], writes: set[str]
) -> None:
    assert made.reads == reads  # type: ignore[attr-defined]
    assert made.results == writes  # type: ignore[attr-defined]


def test_a_shifted_operand_has_a_class_of_its_own() -> None:
    assert instruction("add", "r0", "r1", "r2").kind is Kind.ADD_SUB
    assert instruction("add", "r0", "r1", "r2", "asr #31").kind is Kind.SHIFTED_OPERAND
    assert instruction("pkhbt", "r0", "r1", "r2", "lsl #16").kind is Kind.PACK


def test_mistakes_are_told() -> None:
    a = Assembler(CORTEX_M7, PARAMETERS)
    with pytest.raises(ValueError, match="smlat has no row"):
        a.smlat("r0", "r1")
    with pytest.raises(ValueError, match="smlad takes 4 operands, not 3"):
        a.smlad("r0", "r1", "r2")
    with pytest.raises(ValueError, match="not a place in memory"):
        a.ldr("r0", "r1")
    with pytest.raises(ValueError, match="table is an argument on the stack"):
        a.argument("table")
    with pytest.raises(ValueError, match="count is an argument in a register"):
        a.stack_argument("count")
    with pytest.raises(ValueError, match="xx is not a condition"):
        a.b(Label(), "xx")
    with pytest.raises(ValueError, match="scheduled block cannot hold a branch"), a.scheduled():
        a.b(Label())


def test_a_conditional_block_holds_instructions_only() -> None:
    with pytest.raises(ValueError, match="conditional block cannot hold a label"):
        a = Assembler(CORTEX_M7)
        with a.when("eq"):
            a.here()
    with pytest.raises(ValueError, match="conditional block cannot hold a scheduled block"):
        a = Assembler(CORTEX_M7)
        with a.when("eq"), a.scheduled():
            a.mov("r0", 0)


def test_a_label_has_one_place() -> None:
    a = Assembler()
    label = Label()
    a.b(label)
    with pytest.raises(ValueError, match="goes to a label that has no place"):
        a.lines  # noqa: B018
    a.place(label)
    with pytest.raises(ValueError, match="a label has one place"):
        a.place(label)


def test_a_conditional_block_is_short() -> None:
    a = Assembler()
    with pytest.raises(ValueError, match="one to four instructions, not 5"), a.when("eq"):
        for number in range(5):
            a.mov("r0", number)


def test_no_string_of_assembly_is_longer_than_c99_promises() -> None:
    block = ("itte eq", "moveq r0, #1", "moveq r1, #2", "movne r0, #3")
    for before in range(20):  # so that a block is at the end of a statement in every way
        lines = ["nop"] * before + ["add r0, r0, #16", *block] * 110
        text = naked_function("helper", ["int x"], lines, "", "1")
        statements = [re.findall(r'"(.*)\\n"', one) for one in text.split("__asm__(\n")[1:]]
        assert len(statements) == 2
        assert all(sum(len(one) + 1 for one in own) <= LONGEST_STRING for own in statements)
        assert all(own[0] == ".syntax unified" for own in statements)
        assert [line for own in statements for line in own[1:]] == lines
        assert all(own[1] in (block[0], lines[before]) for own in statements[1:])


def test_code_that_is_only_weighed_stays_as_it_was_written() -> None:
    made: list[int] = []

    @code_cache
    def text(count: int) -> str:
        made.append(count)
        a = Assembler(CORTEX_M7)
        with a.scheduled():
            for number in range(count):
                a.mul(f"r{number}", f"r{number}", "r8")
                a.add(f"r{number}", f"r{number}", 1)
        return "\n".join(a.lines)

    with as_written():
        written = text(3)
    ordered = text(3)
    assert ordered != written and sorted(ordered.splitlines()) == sorted(written.splitlines())
    with as_written():
        assert text(3) == written
    assert text(3) == ordered and made == [3, 3]


def test_what_depends_on_the_order_of_code_is_kept_by_that_order() -> None:
    kernels = Path(assembler.__file__).parents[1]
    sources = {path: path.read_text("utf-8") for path in kernels.rglob("*.py")}
    assert sum("@code_cache" in text for text in sources.values()) > 20
    for path, text in sources.items():
        if "Assembler(" in text and path.name != "assembler.py":
            assert "@lru_cache" not in text and "@cache\n" not in text, path
