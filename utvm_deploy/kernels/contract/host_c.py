"""C functions of generated code, called on this computer with arrays."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from utvm_deploy.base import process
from utvm_deploy.base.errors import PluginError
from utvm_deploy.base.temporary import TemporaryFolder
from utvm_deploy.graph.model import Array

_COMPILER = "cc"
_FLAGS = ("-std=c99", "-O1", "-ffp-contract=off", "-Wall", "-Wextra", "-Werror")
_TIMEOUT_S = 120.0
_C_TYPES = {"float32": "float", "bool": "uint8_t"}


@dataclass(frozen=True)
class Call:
    """A function for each element of arrays of one shape, and the type that it gives."""

    function: str
    operands: tuple[Array, ...]
    result: str  # NumPy's name of the type


def computed_by_c(text: str, calls: Sequence[Call], what: str) -> list[Array]:
    """What the functions give that C text defines; ``what`` begins messages.

    Raises PluginError for text that does not compile or does not end, and MissingTool.
    """
    process.find_tool(_COMPILER)
    with TemporaryFolder("utvm-c") as folder:
        source, program = folder / "functions.c", folder / "functions"
        given, made = folder / "given", folder / "made"
        source.write_text(_program(text, calls), encoding="utf-8")
        given.write_bytes(b"".join(a.tobytes() for call in calls for a in call.operands))
        for argv in (
            [_COMPILER, *_FLAGS, "-o", str(program), str(source)],
            [str(program), str(given), str(made)],
        ):
            done = process.run(argv, timeout_s=_TIMEOUT_S, env={"TMPDIR": str(folder)})
            if not done.is_ok:
                said = next((s for s in done.output.splitlines() if "error:" in s), "")
                said = said.rpartition("error: ")[2] or f"it ended with status {done.returncode}"
                raise PluginError(f"{what}: its C does not compile or run: {said}; correct it")
        data, results, begin = made.read_bytes(), [], 0
        for call in calls:
            first = call.operands[0]
            size = first.size * np.dtype(call.result).itemsize
            found = np.frombuffer(data[begin : begin + size], call.result)
            results.append(found.reshape(first.shape))
            begin += size
    return results


def _program(text: str, calls: Sequence[Call]) -> str:
    """A program that reads all operands from its first file, and writes all results."""
    lines = ["#include <stdint.h>", "#include <stdio.h>", "", text]
    body = ['    FILE *given = fopen(arguments[1], "rb"), *made = fopen(arguments[2], "wb");']
    body.append("    if (count != 3 || !given || !made) return 1;")
    for n, call in enumerate(calls):
        size = call.operands[0].size
        names = [f"operand_{n}_{i}" for i in range(len(call.operands))]
        for name, operand in zip(names, call.operands, strict=True):
            lines.append(f"static {_c_type(str(operand.dtype))} {name}[{size}];")
            body.append(
                f"    if (fread({name}, sizeof *{name}, {size}, given) != {size}) return 1;"
            )
        values = ", ".join(f"{name}[i]" for name in names)
        body += [
            f"    for (long i = 0; i < {size}; ++i) {{",
            f"        const {_c_type(call.result)} value = {call.function}({values});",
            "        fwrite(&value, sizeof value, 1, made);",
            "    }",
        ]
    return "\n".join([*lines, "int main(int count, char **arguments) {", *body,
                      "    return fclose(made) != 0;", "}", ""])  # fmt: skip


def _c_type(dtype: str) -> str:
    return _C_TYPES.get(dtype, f"{dtype}_t")
