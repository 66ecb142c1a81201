"""The decoder of Armv8.1-M against the text that was assembled: registers, targets, classes."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest

HERE = Path(__file__).resolve().parent
GCC, OBJCOPY = "arm-none-eabi-gcc", "arm-none-eabi-objcopy"
SOURCE = HERE / "every_vector.s"
FLAGS = 1 << 16

#: Mnemonic -> class, how many operands are written, whether these are read, too. The first counts.
ROWS = (
    (r"vld2|vld4", "vector_load_parts", 1, True),
    (r"vldr.* \[r\d+, q|vldr.* \[q|vldrd", "vector_gather", 1, False),
    (r"vldr\.16", "fp_load", 1, False),
    (r"vldr", "vector_load", 1, False),
    (r"vst[24]", "vector_store_parts", 0, False),
    (r"vstr.* \[r\d+, q|vstr.* \[q", "vector_scatter", 0, False),
    (r"vstr", "vector_store", 0, False),
    (r"vmov q\d\[", "vector_from_core", 2, True),
    (r"vmov r", "vector_to_core", 2, False),
    (r"vmov\.\d+ q\d\[", "vector_from_core", 1, True),
    (r"vmov\.[su]", "vector_to_core", 1, False),
    (r"(vmov\.[if])", "vector_constant", 1, False),
    (r"(vorr|vbic)\.i", "vector_simple", 1, True),
    (r"v(add|fma)\.f16 s", "fp_", 1, None),
    (r"vdup|vmov q|vmvn|vand|vbic|vor[rn]|veor", "vector_simple", 1, False),
    (r"v(add|sub)\.f\d+ .*r\d", "vector_fp_add_core", 1, False),
    (r"v(add|sub|abd|cadd)\.f", "vector_fp_add", 1, False),
    (r"v(abs|neg|maxnm|minnm)\.f", "vector_fp_simple", 1, False),
    (r"v(max|min)nma\.", "vector_fp_simple", 1, True),
    (r"v(max|min)nmv\.", "vector_fp_simple", 1, True),
    (r"vc?mul\.f", "vector_fp_multiply", 1, False),
    (r"vfm|vcmla", "vector_fp_fused", 1, True),
    (r"vcvt[bt]\.f16.f32", "vector_narrow", 1, True),
    (r"vcvt|vrint", "vector_convert", 1, False),
    (r"vmull[bt]\.p", "vector_shift", 1, False),
    (r"v(r?mulh|mul|mull[bt]|qr?dmulh|qdmull[bt])\.", "vector_multiply", 1, False),
    (r"v(qr?dml|mlas?\.)", "vector_multiply", 1, True),
    (r"vr?ml[as]ldavh?a", "vector_dot", 2, True),
    (r"vr?ml[as]ldavh?", "vector_dot", 2, False),
    (r"(vml[as]davax?|vaddva)\.", "vector_dot", 1, True),
    (r"(vml[as]davx?|vaddv)\.", "vector_dot", 1, False),
    (r"vaddlva", "vector_dot", 2, True),
    (r"vaddlv", "vector_dot", 2, False),
    (r"v(max|min)a?v\.[su]8", "vector_across_8", 1, True),
    (r"v(max|min)a?v\.[su]16|vabav", "vector_across_16", 1, True),
    (r"v(max|min)a?v\.[su]32", "vector_across_32", 1, True),
    (r"v(max|min)a\.", "vector_simple", 1, True),
    (r"v(q?movu?n|qmovun|q?r?shru?n)[bt]", "vector_narrow", 1, True),
    (r"v[id]w?dup", "vector_simple", 1, "second"),
    (r"vshlc", "vector_simple", 2, True),
    (r"v(adci?|sbci?)\.", "vector_shift", 1, False),
    (r"v(rshl|q?r?shlu?)\.\w+ q\d, r", "vector_s", 1, True),
    (r"v(rshl|qrshl|qshlu?|rshr)\.", "vector_shift", 1, False),
    (r"v(sri|sli)\.", "vector_simple", 1, True),
    (r"vpt|vcmp", "vector_compare", 0, False),
    (r"vpst|vpnot|vctp", "vector_predicate", 0, False),
    (r"v", "vector_simple", 1, False),
    (r"(asrl|lsll|lsrl|sqrshrl|uqshll) ", "long_shift", 2, True),
    (r"(sqshl|urshr|sqrshr|uqrshl) ", "long_shift", 1, True),
    (r"cs", "conditional_select", 1, False),
    (r"[dw]ls", "loop_start", 1, False),
    (r"let?p? lr", "loop_end", 1, True),
    (r"le ", "loop_end", 0, False),
    (r"nop", "nop", 0, False),
)  # fmt: skip


def bits(operand: str) -> int:
    """Registers as the decoder numbers them."""
    total = 0
    for kind, number in re.findall(r"\b([rqs])(\d+)\b", operand.replace("lr", "r14")):
        n = int(number)
        total |= 15 << (17 + 4 * n) if kind == "q" else 1 << (n + 17 * (kind == "s"))
    return total


def lanes(text: str, operand: str) -> int:
    """As ``bits``, but a lane of a vector is a part of it."""
    lane = re.fullmatch(r"q(\d)\[(\d+)\]", operand)
    if lane is None or text.startswith(("vmov q", "vmov r")):
        return bits(operand)
    words = {"8": 4, "16": 2}[re.search(r"(8|16) ", text)[1]]  # type: ignore[index]
    return 1 << (17 + 4 * int(lane[1]) + int(lane[2]) // words)


def told(text: str) -> tuple[str, int, int]:
    """Class, registers read and written, by the text of an instruction."""
    _, kind, count, reads_result = next(row for row in ROWS if re.match(row[0], text))
    parts = re.findall(r"\{[^}]*\}|\[[^\]]*\]!?|[^\s,][^,]*", text.partition(" ")[2])
    found = [lanes(text, part.strip()) for part in parts]
    at = next((n for n, part in enumerate(parts) if part.startswith("[")), None)
    back = 0
    if at is not None and (parts[at].endswith("!") or at + 1 < len(parts)):
        back = bits(parts[at].split(",")[0])
    if kind in ("vector_store", "vector_store_parts", "vector_scatter"):
        return kind, _all(found), back
    written = _all(found[:count])
    read = _all(found[count:])
    if reads_result == "second":
        written |= found[1]
    elif reads_result or (reads_result is None and "fma" in text):
        read |= written
    return kind, read, written | back


def _all(parts: list[int]) -> int:
    total = 0
    for one in parts:
        total |= one
    return total


def test_every_vector_instruction(decode_tool: Path, tmp_path: Path) -> None:
    if shutil.which(GCC) is None:
        pytest.skip(f"{GCC} is not installed; sudo apt install gcc-arm-none-eabi")
    made, raw = tmp_path / "vector.o", tmp_path / "vector.bin"
    options = ("-mcpu=cortex-m55", "-mfloat-abi=hard", "-c")
    subprocess.run([GCC, *options, str(SOURCE), "-o", str(made)], check=True)
    subprocess.run([OBJCOPY, "-O", "binary", str(made), str(raw)], check=True)
    code = raw.read_bytes()
    texts = [
        line.strip()
        for line in SOURCE.read_text().splitlines()
        if line and not re.match(r"//|\.|\d:", line)
    ]
    place, lines = 0, []
    for _ in texts:
        first = int.from_bytes(code[place : place + 2], "little")
        size = 4 if first >> 11 >= 0x1D else 2
        second = int.from_bytes(code[place + 2 : place + size], "little")
        lines.append(f"{place:x} {first:x} {second:x}")
        place += size
    assert place == len(code)
    done = subprocess.run(
        [decode_tool, "arm"], input="\n".join(lines), capture_output=True, text=True, check=True
    )
    faults, predicated = [], 0
    for text, line, answer in zip(texts, lines, done.stdout.splitlines(), strict=True):
        kind, _size, flow, _target, reads, writes, *_ = answer.split()
        plain = re.sub(r"^(v\w+?)[te](?=\.i8)", r"\1", text) if predicated else text
        name, read, written = told(plain)
        read |= written if predicated and name != "vector_compare" else 0
        begins = re.match(r"vp(?:s(t[te]*)|(t[te]*)\.)", text)
        predicated = len(begins[1] or begins[2]) if begins else max(predicated - 1, 0)
        is_same = (
            kind.startswith(name)
            and (int(reads, 16) ^ read) & ~FLAGS & ~(1 << 15) == 0
            and int(writes, 16) == written
        )
        if not is_same:
            faults.append(f"{text} | {line} | {answer} | {name} {read:x} {written:x}")
        assert flow == ("4" if kind == "loop_end" else "2" if text.startswith("wls") else "0")
    assert not faults, "\n".join(faults)
