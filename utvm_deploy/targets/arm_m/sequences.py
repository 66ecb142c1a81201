"""Short instruction sequences with the cycles that others measured for them.

An expected value never comes from the model. JNK is github.com/jnk0le/random, "pipeline cycle
test/doc/cortex_m7.md" (STM32H743, DWT counter); QUIN is quinapalus.com/cm7cycles.html (STM32H730),
as others cite it; ARM4 is Arm DDI 0439's instruction set summary. They measured with warm caches,
and so do we.

Registers: r0, r1 point to even words of two buffers on the stack, r2 is 0, r3 is 4. Cases may
change r4 to r12 and s0 to s15. Before each run, r0 and r1 are set again. CACHED and CACHED_TOO are
addresses behind the data cache, WAY is the size of one of its ways.

The cost of stores that miss follows from REF. Arm DDI 0489F 5.9 says that they start a linefill.
The page docs/reference/cycle-model.md adds assumptions: a linefill is 22 cycles, one at a time, and
five stores wait for a line in the store buffer. Nobody has published a measurement of it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from utvm_deploy.targets.arm_m.prefetch_sequences import prefetch_cases
from utvm_deploy.targets.contract.sequences import (
    FIRST_BYTES,
    LONG,
    LOOP_LONG,
    LOOP_SHORT,
    SECOND_BYTES,
    SHORT,
    Cached,
    Case,
    Sequences,
)

JNK = "JNK"
QUIN = "QUIN"
ARM4 = "ARM4"
LLVM = "LLVM ARMScheduleM7.td"
REF = "Arm DDI 0489F 5.9, configuration ref"

# The linefills of the run before are over when the divisions are.
_TO_CACHED = (
    "movw r0, #:lower16:CACHED; movt r0, #:upper16:CACHED; movw r1, #:lower16:CACHED_TOO; "
    "movt r1, #:upper16:CACHED_TOO; .rept 20; udiv r5, r2, r3; .endr"
)


M7 = (
    # Two at a time
    Case("add, add", "add.w r4, r4, #1; add.w r5, r5, #1", 1, f"{JNK} operand2 matrix"),
    Case("eor, eor", "eor.w r4, r4, r2; eor.w r5, r5, r2", 1, f"{QUIN}: eor + eor 1"),
    Case("adc, adc", "adc.w r4, r4, r2; adc.w r5, r5, r2", 1, f"{QUIN}: adc + adc 1"),
    Case("adcs, adcs", "adcs.w r4, r4, r2; adcs.w r5, r5, r2", 2, f"{QUIN}: carry dependency 2"),
    Case("add chain", "add.w r4, r4, r2", 1, f"{QUIN}: dependent additions"),
    Case("nop, nop", "nop.w; nop.w", 1, f"{JNK} overall: no nop elimination"),
    Case("movw, movt", "movw r4, #1; movt r4, #2", 1, f"{JNK} overall: pair in spite of r4"),
    Case("add to eor", "add.w r4, r2, r3; eor.w r5, r5, r4", 1, f"{JNK} overall: early to late 0"),
    Case(
        "addresses from early ALU",
        "add.w r4, r2; eor.w r6, r4, r6, ror #22; ldr.w r7, [r0, r4]; ldr.w r8, [r0, r3]",
        2,
        f"{JNK} overall: the snippet",
        setup="movs r4, #0",
    ),
    # Second operands
    Case(
        "shifted, shifted",
        "add.w r4, r2, r2, lsl #3; add.w r5, r2, r2, lsl #3",
        2,
        f"{JNK} operand2 matrix",
    ),
    Case(
        "shifted, plain",
        "add.w r4, r2, r2, lsl #3; add.w r5, r5, #1",
        1,
        f"{JNK} operand2 matrix",
    ),
    Case(
        "shifted constant, shifted",
        "eor.w r4, r4, #0x1fc0; add.w r5, r2, r2, lsl #3",
        2,
        f"{JNK} operand2 matrix",
    ),
    Case(
        "shifted constants",
        "eor.w r4, r4, #0x1fc0; eor.w r5, r5, #0x1fc0",
        2,
        f"{JNK} operand2 matrix",
    ),
    Case(
        "pattern constants",
        "eor.w r4, r4, #0x1b1b1b1b; eor.w r5, r5, #0x1b1b1b1b",
        1,
        f"{JNK} operand2 matrix",
    ),
    Case(
        "shifted, shift",
        "add.w r4, r2, r2, ror #24; lsr.w r5, r2, #12",
        1,
        f"{JNK} operand2 matrix",
    ),
    Case(
        "shift, shift",
        "lsl.w r4, r2, #1; ror.w r5, r2, r3",
        1,
        f"{JNK} operand2 matrix",
    ),
    Case(
        "late to shifted",
        "eor.w r4, r4, r5; eor.w r5, r5, r4, lsl #1",
        3,
        f"{JNK} operand2: shifted register one cycle earlier",
    ),
    # Bit fields and DSP
    Case("uxtb, uxtb", "uxtb.w r4, r2; uxtb.w r5, r3", 2, f"{JNK} bitfield: not with each other"),
    Case("uxtb, eor", "uxtb.w r4, r2; eor.w r5, r5, r2", 1, f"{JNK} bitfield: older slot"),
    Case("uadd8, add", "uadd8 r4, r2, r3; add.w r5, r5, #1", 1, f"{JNK} bitfield: older slot"),
    # jnk0le has shifts in the first ALU only where the other instruction leaves its shifter alone.
    Case(
        "shift beside shifted, to shifted",
        "add.w r4, r2, r2, lsl #3; lsr.w r5, r2, #12; add.w r6, r2, r5, lsl #1; nop.w",
        3,
        f"{JNK} overall: no early shift next to an inline shift; {JNK} operand2: one cycle earlier",
    ),
    Case(
        "ssat chain",
        "ssat r4, #8, r4",
        3,
        f"{LLVM}: latency 2, read 1 earlier",
    ),
    Case("eor to ssat", "eor.w r4, r2, r3; ssat r5, #8, r4; nop.w", 3, f"{LLVM}: read 1 earlier"),
    Case("ssat to eor", "ssat r4, #8, r2; eor.w r5, r4, r3; nop.w", 3, f"{LLVM}: latency 2"),
    Case("usat16 to eor", "usat16 r4, #8, r2; eor.w r5, r4, r3; nop.w", 3, f"{LLVM}: latency 2"),
    Case(
        "ssat, shifted",
        "ssat r4, #8, r2; add.w r5, r3, r2, lsl #3",
        2,
        f"{LLVM}: both on the shifter",
    ),
    Case("qadd to eor", "qadd r4, r2, r3; eor.w r5, r4, r3; nop.w", 3, f"{LLVM}: latency 2"),
    Case("uqsub8 to eor", "uqsub8 r4, r2, r3; eor.w r5, r4, r3; nop.w", 3, f"{LLVM}: latency 2"),
    Case("eor to qdadd", "eor.w r4, r2, r3; qdadd r5, r4, r2; nop.w", 3, f"{LLVM}: read 1 earlier"),
    Case("usad8 to eor", "usad8 r4, r2, r3; eor.w r5, r4, r3; nop.w", 3, f"{LLVM}: latency 2"),
    Case("usad8, uxtb", "usad8 r4, r2, r3; uxtb.w r5, r2", 2, f"{LLVM}: both on the SIMD unit"),
    Case(
        "usada8 chain", "usada8 r4, r2, r3, r4", 1, f"{LLVM}: latency 2, accumulator read 1 later"
    ),
    Case("uadd8, uxtb", "uadd8 r4, r2, r3; uxtb.w r5, r2", 2, f"{JNK} bitfield"),
    Case("rev, rev", "rev.w r4, r2; rev.w r5, r3", 2, f"{JNK} bitfield"),
    Case("clz, uxtab", "clz r4, r2; uxtab r5, r2, r3", 2, f"{JNK} bitfield"),
    Case(
        "pkhbt, shifted",
        "pkhbt r4, r2, r3, lsl #16; add.w r5, r2, r2, lsl #3",
        2,
        f"{JNK} bitfield: not with a shifted operand",
    ),
    Case(
        "uxtb to address",
        "uxtb.w r4, r5; ldr.w r5, [r0, r4]",
        3,
        f"{JNK} bitfield: address one cycle later",
        setup="movs r5, #0; str r5, [r0]",
    ),
    # Multiplication
    Case("mul, mul", "mul r4, r2, r3; mul r5, r2, r3", 2, f"{JNK} multiplication"),
    Case("mul chain", "mul r4, r4, r2", 2, f"{QUIN}: latency 2"),
    Case("smull", "smull r4, r5, r2, r3", 1, f"{QUIN}: throughput 1"),
    Case("umlal chain", "umlal r4, r5, r2, r3", 1, f"{QUIN}: accumulator 1"),
    Case("smlad chain", "smlad r4, r2, r3, r4", 1, f"{JNK} multiplication: chains every cycle"),
    Case("mla, add", "mla r4, r2, r3, r4; add.w r5, r5, #1", 1, f"{QUIN}: with an ALU operation"),
    Case(
        "smlad, sxtb16",
        "smlad r4, r2, r3, r4; nop.w; sxtb16 r5, r2; smlad r6, r2, r3, r6",
        2,
        f"{JNK} multiplication: with DSP",
    ),
    Case("ldr, mul", "ldr.w r4, [r0]; mul r5, r2, r3", 1, f"{QUIN}: ldr + mul 1"),
    Case("mul, str", "mul r5, r2, r3; str.w r4, [r0]", 2, f"{JNK} multiplication: not with stores"),
    Case(
        "mul to eor",
        "mul r4, r5, r2; eor.w r5, r4, r2",
        3,
        f"{JNK} multiplication: 1 more cycle of latency",
    ),
    Case("ldr to mul", "ldr.w r4, [r0]; mul r5, r4, r2", 2, f"{JNK} multiplication: not from ldr"),
    Case(
        "ldrb to accumulator",
        "ldrb.w r4, [r0]; mla r5, r2, r3, r4",
        1,
        f"{JNK} multiplication: accumulator a cycle later",
    ),
    # Loads
    Case("ldr to eor", "ldr.w r4, [r0]; eor.w r5, r4, r2", 1, f"{JNK} loads: late ALU next cycle"),
    Case("ldrb to eor", "ldrb.w r4, [r0]; eor.w r5, r4, r2", 2, f"{JNK} loads: byte one later"),
    Case(
        "ldr to shifted",
        "ldr.w r4, [r0]; add.w r5, r2, r4, lsl #2",
        2,
        f"{JNK} loads: not to the early ALU next cycle",
    ),
    Case(
        "ldr to the plain operand of shifted",
        "ldr.w r4, [r0]; add.w r5, r4, r2, lsl #2; nop.w",
        3,
        f"{JNK} loads: though consumed in the late ALU; {LLVM}: M7Ex1ReadNoFastBypass",
    ),
    Case(
        "ldr to uxtab",
        "ldr.w r4, [r0]; uxtab r5, r4, r2; nop.w",
        3,
        f"{JNK} loads: though consumed in the late ALU",
    ),
    Case(
        "ldrb to the plain operand of shifted",
        "ldrb.w r4, [r0]; add.w r5, r4, r2, lsl #2; nop.w",
        3,
        f"{JNK} loads: byte loads are not affected",
    ),
    Case(
        "ldr to ldr, the same bank",
        "ldr.w r4, [r0]; ldr.w r5, [r4]",
        3,
        f"{QUIN}: a load and a load from what it loaded 3",
        setup="str r1, [r0]",
        figure="rich",
    ),
    Case(
        "ldr to address",
        "ldr.w r4, [r4]",
        2,
        f"{LLVM}: load 1, address needed 1 earlier",
        setup="mov r4, r0; str r4, [r4]",
    ),
    Case("ldr, ldr in two banks", "ldr.w r4, [r0]; ldr.w r5, [r0, #4]", 1, f"{JNK} loads: banks"),
    Case("ldr, ldr in one bank", "ldr.w r4, [r0]; ldr.w r5, [r0, #8]", 2, f"{JNK} loads: banks"),
    Case(
        "ldr, ldr in one bank, by two bases",
        "ldr.w r4, [r0]; ldr.w r5, [r1]",
        2,
        f"{JNK} loads: banks",
        figure="rich",
    ),
    Case(
        "ldr, ldr in two banks, by two bases",
        "ldr.w r4, [r0]; ldr.w r5, [r1, #4]",
        1,
        f"{JNK} loads: banks",
        figure="rich",
    ),
    Case(
        "post-indexed loads",
        "ldr.w r4, [r0], #8; ldr.w r5, [r1], #8",
        1,
        f"{JNK} loads: post-indexed, back to back",
        setup="add r1, r1, #4",
        figure="rich",
    ),
    Case("ldr, str", "ldr.w r4, [r0]; str.w r5, [r1]", 1, f"{JNK} stores: with a load"),
    Case(
        "ldr to str", "ldr.w r4, [r0]; str.w r4, [r1]", 1, f"{JNK} stores: any result, same cycle"
    ),
    Case(
        "unaligned ldr",
        "ldr.w r4, [r0, #1]; nop.w",
        4,
        f"{JNK} loads: 3 more as the older",
        figure="rich",
    ),
    Case(
        "unaligned loads, two",
        "ldr.w r4, [r0, #1]; ldr.w r5, [r0, #9]",
        5,
        f"{JNK} loads: 4 more when both are",
        figure="rich",
        exception="the model adds 3 to each and pairs nothing of the same bank: what the pair "
        "shares is not modelled",
    ),
    # Several registers
    Case("ldm 4", "ldm r0, {r4-r7}", 2, f"{JNK} multiple: ceil(n/2)"),
    Case("ldm 3", "ldm r0, {r4-r6}", 2, f"{JNK} multiple: ceil(n/2)"),
    Case("ldm 8", "ldm.w r0, {r4-r11}", 4, f"{JNK} multiple: ceil(n/2)"),
    Case("stm 4", "stm.w r0, {r4-r7}", 2, f"{JNK} multiple: ceil(n/2)"),
    Case("push, pop", "push {r4-r7}; pop {r4-r7}", 4, f"{JNK} multiple: ceil(n/2)"),
    Case("ldrd, add", "ldrd r4, r5, [r0]; add.w r6, r6, #1", 2, f"{JNK} multiple: alone"),
    Case("strd", "strd r4, r5, [r0]", 1, f"{JNK} multiple: ceil(n/2)"),
    # Stores
    Case("str, str", "str.w r4, [r0]; str.w r5, [r1, #4]", 2, f"{JNK} stores: one a cycle"),
    Case(
        "str to lines that miss",
        "str.w r4, [r0]; add.w r0, r0, #WAY",
        22,
        f"{REF}: as fast as linefills",
        figure="rich",
        setup=_TO_CACHED,
        is_cached=True,
    ),
    Case(
        "lines written whole",
        "; ".join(f"str.w r4, [r0, #{4 * n}]" for n in range(8)) + "; add.w r0, r0, #WAY",
        26,
        f"{REF}: the sixth store waits for the line; {JNK} bitfield: late ALU to an address 2",
        figure="rich",
        setup=_TO_CACHED,
        is_cached=True,
    ),
    Case(
        "str that misses now and then",
        "str.w r4, [r0]; add.w r0, r0, #WAY; udiv r5, r2, r3; udiv r5, r2, r3; udiv r5, r2, r3; "
        "udiv r5, r2, r3",
        29,
        f"{REF}: the linefill ends before the next store; {LLVM}: udiv 7",
        figure="rich",
        setup=_TO_CACHED,
        is_cached=True,
    ),
    Case(
        "ldr that misses",
        "ldr.w r4, [r0]; add.w r0, r0, #WAY",
        24,
        f"{REF}: 22 for the line; {JNK} bitfield: late ALU to an address 2",
        figure="rich",
        setup=_TO_CACHED,
        is_cached=True,
    ),
    Case(
        "str that misses, ldr that misses",
        "str.w r4, [r0]; ldr.w r5, [r1]; add.w r0, r0, #WAY; add.w r1, r1, #WAY",
        46,
        f"{REF}: the load waits for the store's linefill, then for its own",
        figure="rich",
        setup=_TO_CACHED,
        is_cached=True,
    ),
    *prefetch_cases(_TO_CACHED),
    Case("pld, pld", "pld [r0]; pld [r0, #4]", 1, f"{JNK} loads: pld, as a load"),
    Case(
        "str to lines of tightly coupled memory",
        "str.w r4, [r0], #32",
        1,
        f"{REF}: not cached; {JNK} stores: one a cycle",
        figure="rich",
        is_cached=True,
    ),
    Case("strb in one bank", "strb.w r4, [r0]", 4, f"{JNK} stores: 4", figure="rich"),
    Case(
        "strb in two banks",
        "strb.w r4, [r0]; strb.w r5, [r0, #4]",
        4,
        f"{JNK} stores: 2 each",
        figure="rich",
    ),
    Case(
        "strb in a row",
        "; ".join(f"strb.w r4, [r0, #{n}]" for n in range(8)),
        19.2,
        f"{JNK} stores: 2.4 each",
        figure="rich",
        exception="five entries and two banks, four cycles an entry, let two stores pass in four "
        "cycles: what else delays a row of bytes is not published",
    ),
    Case(
        "strh in a row",
        "; ".join(f"strh.w r4, [r0, #{2 * n}]" for n in range(4)),
        8,
        f"{JNK} stores: 2 each",
        figure="rich",
    ),
    Case("unaligned str", "str.w r4, [r0, #1]", 4, f"{JNK} stores: 4", figure="rich"),
    # Branches and predication
    Case(
        "loop of 20",
        "; ".join(["nop.w"] * 18 + ["subs r12, r12, #1", "bne.w 1b"]),
        10,
        f"{JNK} overall: 20 instructions, one a branch, 10 cycles",
        is_loop=True,
    ),
    Case(
        "branch not taken",
        "beq.w 2f; add.w r4, r4, #1",
        1,
        f"{JNK} branching: pairs",
        setup="movs r4, #1",
    ),
    Case(
        "it takes a slot",
        "it eq; addeq.w r4, r4, #1; eor.w r5, r5, r2; eor.w r6, r6, r2",
        2,
        f"{JNK} predication: it is not issued for free",
        setup="movs r4, #1",
    ),
    Case(
        "ldm predicated off",
        "it eq; ldmeq.w r0, {r4-r7}",
        3,
        f"{JNK} predication: as if executed",
        setup="movs r4, #1",
    ),
    Case("udiv chain", "udiv r4, r4, r3", 7, LLVM),
    # Floating point
    Case("vadd, vadd", "vadd.f32 s0, s2, s3; vadd.f32 s1, s2, s3", 2, f"{JNK} fpu: not two"),
    Case("vadd chain", "vadd.f32 s0, s0, s2", 3, f"{JNK} fpu: latency table"),
    Case(
        "vmul to vadd", "vmul.f32 s0, s1, s2; vadd.f32 s1, s0, s2", 6, f"{JNK} fpu: latency table"
    ),
    Case("vfma chain", "vfma.f32 s0, s2, s3", 3, f"{JNK} fpu: latency table"),
    Case("vmla chain", "vmla.f32 s0, s2, s3", 3, f"{JNK} fpu: latency table"),
    Case(
        "vfma, three sums",
        "vfma.f32 s0, s4, s5; vfma.f32 s1, s4, s5; vfma.f32 s2, s4, s5",
        3,
        f"{JNK} fpu: one a cycle with three sums",
    ),
    Case("vadd, add", "vadd.f32 s0, s2, s3; add.w r4, r4, #1", 1, f"{JNK} fpu: with integer"),
    Case("vdiv", "vdiv.f32 s0, s2, s3", 16, f"{JNK} fpu: 16"),
    Case("vsqrt", "vsqrt.f32 s0, s2", 14, f"{JNK} fpu: 14"),
)

M4 = (
    Case("add", "add.w r4, r4, #1", 1, ARM4),
    Case("mul", "mul r4, r2, r3", 1, ARM4),
    Case("smlad", "smlad r4, r2, r3, r4", 1, ARM4),
    Case("smlal", "smlal r4, r5, r2, r3", 1, ARM4),
    Case("ldr, add", "ldr.w r4, [r0]; add.w r5, r5, #1", 3, f"{ARM4}: load 2"),
    Case("ldr, ldr, add", "ldr.w r4, [r0]; ldr.w r6, [r0, #4]; add.w r5, r5, #1", 4,
         f"{ARM4}: the second load is pipelined"),
    Case("str", "str.w r4, [r0]", 1, ARM4),
    Case("str, ldr", "str.w r4, [r0]; ldr.w r5, [r1]", 3, "jnk0le cortex_m3m4.md: not pipelined"),
    Case("ldm 4", "ldm r0, {r4-r7}", 5, f"{ARM4}: 1 + N"),
    Case("strd", "strd r4, r5, [r0]", 3, f"{ARM4}: 1 + N"),
    Case("push, pop", "push {r4-r7}; pop {r4-r7}", 10, f"{ARM4}: 1 + N"),
    Case("loop of 4", "nop.w; nop.w; subs r12, r12, #1; bne.w 1b", 6, f"{ARM4}: 1 + P, P 1 to 3",
         is_loop=True),
    Case("vdiv", "vdiv.f32 s0, s2, s3", 14, ARM4),
)  # fmt: skip

#: The cases for each core whose timing is published.
CASES: Mapping[str, Sequence[Case]] = {"cortex-m7": M7, "cortex-m4": M4}


def assembly(cases: Sequence[Case], cached: Cached | None) -> str:
    """As ``Sequences.assembly`` says."""
    lines = [".syntax unified", ".thumb"]
    if cached is not None:
        lines += [
            f".equ WAY, {cached.way_bytes}",
            f".equ CACHED, {cached.first:#x}",
            f".equ CACHED_TOO, {cached.second:#x}",
        ]
    lines.append(".text")
    frame = FIRST_BYTES + SECOND_BYTES
    for number, case in enumerate(cases):
        for length, times in (("short", SHORT), ("long", LONG)):
            name = f"case_{number}_{length}"
            lines += [".balign 32", f".global {name}", f".type {name}, %function", f"{name}:"]
            lines += ["push.w {r4-r12, lr}", f"sub.w sp, sp, #{frame}"]
            lines += ["mov r0, sp", f"add.w r1, sp, #{FIRST_BYTES}", "movs r2, #0", "movs r3, #4"]
            lines += [part.strip() for part in case.setup.split(";") if part.strip()]
            body = [part.strip() for part in case.body.split(";")]
            if case.is_loop:
                turns = LOOP_SHORT if length == "short" else LOOP_LONG
                lines += [f"movw r12, #{turns}", "isb", ".balign 32", "1:", *body]
            else:
                lines += ["isb", *(body * times)]
            lines += ["2:", "isb", f"add.w sp, sp, #{frame}", "pop.w {r4-r12, pc}"]
            lines.append(f".size {name}, . - {name}")
    return "\n".join(lines) + "\n"


SEQUENCES = Sequences(CASES, assembly)
