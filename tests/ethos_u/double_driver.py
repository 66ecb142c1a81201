"""Builds the double of Arm's driver for this computer, with what a program computes."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

from npu_interpreter import Npu

from utvm_deploy.backends.ethos_u.check import NpuProgram
from utvm_deploy.graph.model import Array

_SOURCES = Path(__file__).resolve().parent / "driver"
_TIMEOUT_S = 60
_TYPE = """\
struct golden {
    uint32_t stream, weights, input;
    size_t weights_bytes, scratch_bytes, cache_bytes;
    size_t input_offset, input_bytes, output_offset, output_bytes;
    const unsigned char *output;
};
"""


def double_of(
    folder: Path,
    program: NpuProgram,
    samples: Sequence[Array],
    *,
    prefix: str = "",
    flags: Sequence[str] = ("-fno-pie",),
) -> Path:
    """A folder as ``--ethos-u-driver`` takes it; its NPU knows these inputs of one program.

    It is built for this computer, or by the compiler with ``prefix`` and ``flags``.
    """
    shutil.copytree(_SOURCES, folder)
    (given,), (made,) = program.inputs, program.outputs
    npu, rows, tables = Npu(program), [], []
    for number, sample in enumerate(samples):
        (output,) = npu.run([sample])
        tables.append(f"static const unsigned char OUTPUT_{number}[] = {{{_bytes(output)}}};\n")
        fields = (
            *(f"{_digest(one)}u" for one in (program.payload, program.weights, sample.tobytes())),
            *(len(program.weights), program.scratch_bytes, program.cache_bytes),
            *(given.offset, given.size_bytes),
            *(made.offset, made.size_bytes, f"OUTPUT_{number}"),
        )
        rows.append("{" + ", ".join(map(str, fields)) + "},\n")
    table = f"static const struct golden GOLDEN[] = {{\n{''.join(rows)}}};\n"
    (folder / "golden.h").write_text(f"{_TYPE}{''.join(tables)}{table}")
    compiler = f"{prefix}gcc" if prefix else "cc"
    for command in (
        [compiler, "-Wall", "-Wextra", "-Werror", "-O2", *flags, "-c", "ethosu_double.c"],
        [f"{prefix}ar", "rcs", "libethosu_core_driver.a", "ethosu_double.o"],
    ):
        subprocess.run(command, cwd=folder, check=True, timeout=_TIMEOUT_S)
    return folder


def _bytes(values: Array) -> str:
    return ",".join(str(int(one) & 0xFF) for one in values)


def _digest(data: bytes) -> int:
    digest = 2166136261
    for byte in data:
        digest = (digest ^ byte) * 16777619 & 0xFFFFFFFF
    return digest
