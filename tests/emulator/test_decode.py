"""The decoder against GNU objdump: registers read and written, size, target and class."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Iterable
from pathlib import Path

import pytest

from tests.emulator.listing import OBJDUMP, Line, disassemble

HERE = Path(__file__).resolve().parent
GCC = "arm-none-eabi-gcc"
RUNTIME = HERE.parents[1] / "utvm_deploy" / "runtime"
#: Not told by a listing: the program counter, both kinds of flags.
NOT_LISTED = 1 << 15 | 1 << 16 | 1 << 49

#: Mnemonic -> the classes it may have; the first match counts.
CLASSES = (
    (r"it[te]*$", {"it"}),
    (r"b(x|lx)", {"branch_indirect"}),
    (r"tb[bh]$", {"table_branch"}),
    (r"cbn?z$", {"compare_branch"}),
    (r"bl$", {"call"}),
    (r"b$", {"branch"}),
    (r"(bf[ic])", {"field_insert"}),
    (r"[us]bfx", {"field_extract"}),
    (r"bics?", {"logic", "shifted_operand", "shifted_constant"}),
    (r"b..$", {"branch_conditional"}),
    (r"(ldrex|strex)", {"exclusive"}),
    (r"ldrd", {"load_double"}),
    (r"ldr(s?b|s?h(?!i$))", {"load_part"}),
    (r"ldr", {"load_word"}),
    (r"strd", {"store_double"}),
    (r"str(b|h(?!i$))", {"store_part"}),
    (r"str", {"store_word"}),
    (r"(ldm|pop)", {"load_multiple"}),
    (r"(stm|push)", {"store_multiple"}),
    (r"(vldm|vpop)", {"fp_load_multiple"}),
    (r"(vstm|vpush)", {"fp_store_multiple"}),
    (r"vldr", {"fp_load", "fp_load_double"}),
    (r"vstr", {"fp_store", "fp_store_double"}),
    (r"(vfma|vfms|vfnm)", {"fp_fused", "fp64_fused"}),
    (r"vn?ml[as]", {"fp_chained", "fp64_fused"}),
    (r"vn?mul", {"fp_multiply", "fp64_multiply"}),
    (r"(vdiv|vsqrt)", {"fp_divide", "fp_root", "fp64_divide"}),
    (r"(vadd|vsub|vcmp|vcvt|vrint|vsel|vmaxnm|vminnm)", {"fp_add", "fp64_add"}),
    (r"(vmrs|vmsr)", {"fp_status"}),
    (r"v(mov|abs|neg)", {"fp_move", "fp_constant", "fp_pair", "fp_to_core", "fp_from_core"}),
    (r"pl[di]", {"preload"}),
    (r"[us]div", {"divide"}),
    (r"(smlal|smlsld|umlal|umaal)", {"multiply_add_long"}),
    (r"[us]mull", {"multiply_long"}),
    (r"(mla|mls|smla|smls|smmla|smmls)", {"multiply_add"}),
    (r"(mul|smul|smuad|smusd|smmul)", {"multiply"}),
    (r"[us]xta[bh]", {"extend_add"}),
    (r"[us]xt[bh]", {"extend"}),
    (r"(rev|rbit)", {"reverse"}),
    (r"pkhbt", {"pack"}),
    (r"pkhtb", {"pack_top"}),
    (r"([us]sat|qd(add|sub))", {"saturate"}),
    (r"(u?q(add|sub)(8|16)?$|u?q(asx|sax)|usada?8)", {"simd_saturate"}),
    (r"(clz|sel|[us]h?(add|sub)(8|16)|[us]h?(asx|sax))", {"simd"}),
    (r"(nop|sev|yield|wf[ie]|dbg)", {"nop"}),
    (r"(dmb|dsb|isb|clrex)", {"barrier"}),
    (r"(cps|msr|mrs|svc|bkpt)", {"system"}),
    (r"movt", {"move_top"}),
    (r"movw", {"move"}),
    (r"(lsl|lsr|asr|ror)", {"shift"}),
    (r"mov", {"move", "shift", "shifted_constant", "shifted_operand"}),  # rrx is the last
    (r"(addw|subw|adr)", {"add_sub"}),
    (r"(add|sub)", {"add_sub", "shifted_operand", "shifted_constant"}),
    (r".", {"logic", "shifted_operand", "shifted_constant"}),
)


def classes_of(mnemonic: str) -> set[str]:
    return next(kinds for pattern, kinds in CLASSES if re.match(pattern, mnemonic))


def faults(tool: Path, lines: Iterable[Line]) -> list[str]:
    """A sentence for each instruction on which decoder and listing differ."""
    lines = list(lines)
    assert lines
    text = "\n".join(f"{line.address:x} {line.first:x} {line.second:x}" for line in lines)
    done = subprocess.run([tool, "arm"], input=text, capture_output=True, text=True, check=True)
    found = []
    for line, answer in zip(lines, done.stdout.splitlines(), strict=True):
        kind, size, _flow, target, reads, writes, *_ = answer.split()
        is_same = (
            (int(reads, 16) ^ line.reads) & ~NOT_LISTED == 0
            and (int(writes, 16) ^ line.writes) & ~NOT_LISTED == 0
            and int(size) == (4 if line.first >> 11 >= 0x1D else 2)
            and (line.target is None or line.target == int(target, 16))
            and kind in classes_of(line.mnemonic)
        )
        if not is_same:
            found.append(f"{line.text.strip()} | {answer}")
    return found


@pytest.fixture(scope="module", autouse=True)
def needs_cross_compiler() -> None:
    for tool in (GCC, OBJDUMP):
        if shutil.which(tool) is None:
            pytest.skip(f"{tool} is not installed")


def compiled(source: Path, folder: Path, *flags: str) -> Path:
    done = folder / f"{source.stem}.o"
    subprocess.run([GCC, "-c", *flags, f"-I{RUNTIME}", str(source), "-o", str(done)], check=True)
    return done


def test_every_instruction(decode_tool: Path, tmp_path: Path) -> None:
    source = HERE / "every_instruction.s"
    made = compiled(source, tmp_path, "-mcpu=cortex-m7", "-mfpu=fpv5-d16", "-mfloat-abi=hard")
    assert faults(decode_tool, disassemble(made)) == []


SOFT_M3, SOFT_M4 = ("-mcpu=cortex-m3",), ("-mcpu=cortex-m4", "-mfloat-abi=soft")
HARD_M4 = ("-mcpu=cortex-m4", "-mfpu=fpv4-sp-d16", "-mfloat-abi=hard")
HARD_M7 = ("-mcpu=cortex-m7", "-mfpu=fpv5-d16", "-mfloat-abi=hard")


# libm has the floating point, and libc the rest, which is nearly the same for the first three.
@pytest.mark.parametrize(
    ("target", "library"),
    [
        pytest.param(SOFT_M3, "libc.a", id="m3-libc"),
        pytest.param(HARD_M4, "libm.a", id="m4f-libm"),
        pytest.param(HARD_M7, "libm.a", id="m7d-libm"),
        pytest.param(SOFT_M4, "libc.a", id="m4-libc", marks=pytest.mark.soak),
        pytest.param(HARD_M4, "libc.a", id="m4f-libc", marks=pytest.mark.soak),
        pytest.param(HARD_M7, "libc.a", id="m7d-libc", marks=pytest.mark.soak),
        pytest.param(SOFT_M3, "libm.a", id="m3-libm", marks=pytest.mark.soak),
        pytest.param(SOFT_M4, "libm.a", id="m4-libm", marks=pytest.mark.soak),
    ],
)
def test_the_c_library(decode_tool: Path, target: tuple[str, ...], library: str) -> None:
    argv = [GCC, *target, "-mthumb", f"-print-file-name={library}"]
    done = subprocess.run(argv, capture_output=True, text=True, check=True)
    path = Path(done.stdout.strip())
    if not path.is_file():
        pytest.skip(f"the compiler has no {library} for {' '.join(target)}")
    assert faults(decode_tool, disassemble(path)) == []


@pytest.mark.parametrize("optimization", ["-O2", "-O3", "-Os"])
def test_compiled_code(decode_tool: Path, tmp_path: Path, optimization: str) -> None:
    for source in [*sorted(RUNTIME.glob("*.c")), HERE / "dsp_code.c"]:
        made = compiled(
            source, tmp_path, "-mcpu=cortex-m7", "-mfpu=fpv5-sp-d16", "-mfloat-abi=hard",
            optimization, "-funroll-loops",
        )  # fmt: skip
        assert faults(decode_tool, disassemble(made)) == [], source.name


def test_unknown_encodings_are_told(decode_tool: Path) -> None:
    unknown = ("0 de00 0", "0 fb40 f040", "0 ee00 0100", "0 f7f0 a000", "0 e800 0000")
    text = "\n".join(unknown)
    done = subprocess.run(
        [decode_tool, "arm"], input=text, capture_output=True, text=True, check=True
    )
    assert [line.split()[0] for line in done.stdout.splitlines()] == ["unknown"] * len(unknown)


def test_instructions_in_it_blocks_leave_flags_alone(decode_tool: Path) -> None:
    # ite ne; addne r0, #1; subeq r0, #1; adds r0, #1
    text = "0 bf14 0\n2 3001 0\n4 3801 0\n6 3001 0\n"
    done = subprocess.run(
        [decode_tool, "arm"], input=text, capture_output=True, text=True, check=True
    )
    written = [int(line.split()[5], 16) for line in done.stdout.splitlines()]
    assert written == [0, 1, 1, 1 | 1 << 16]
