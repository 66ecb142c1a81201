"""The emitted C of networks on every core: no compiler warns.

Clang does of functions that nobody calls, and of strings that are longer than C99 promises.
"""

from __future__ import annotations

import functools
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "benchmarks" / name) for name in ("replay", "cmsis_nn")]

from emission import board_of, cores  # noqa: E402
from networks import NETWORKS  # noqa: E402

from utvm_deploy.compiler.options import CompileOptions  # noqa: E402
from utvm_deploy.compiler.stages.pipeline import compile_model  # noqa: E402
from utvm_deploy.frontend.tflite import load_model  # noqa: E402
from utvm_deploy.graph.model import Graph  # noqa: E402

STRICT = ("-std=c99", "-Wall", "-Wextra", "-pedantic", "-Werror", "-Wmissing-prototypes")
TIMEOUT_S = 120
#: What the kernels may include of a C library, which clang does not have for Arm.
STRING_H = """\
#include <stddef.h>
void *memcpy(void *restrict to, const void *restrict from, size_t size);
void *memset(void *to, int value, size_t size);
"""
#: Networks with most kinds of layers; clang names unused functions, which GCC does not if inline.
CHOSEN = ("u_net", "shufflenet", "transformer", "svdf_words")
COMPILER = "clang"


@functools.cache
def graph_of(name: str) -> Graph:
    """The same for every core."""
    with tempfile.TemporaryDirectory() as folder:
        model = Path(folder, f"{name}.tflite")
        model.write_bytes(NETWORKS[name]())
        return load_model(model)


@pytest.mark.tools
@pytest.mark.skipif(shutil.which(COMPILER) is None, reason=f"{COMPILER} is not installed")
@pytest.mark.parametrize("core", cores())
def test_no_compiler_warns(core: str, tmp_path: Path) -> None:
    cpu = board_of(core).cpu
    (tmp_path / "library").mkdir()
    (tmp_path / "library" / "string.h").write_text(STRING_H)
    # This computer's C is compiled elsewhere, too; the assembly is only where its core is.
    flags = (flag for flag in cpu.compiler_flags if flag != "-mfpu=auto")  # GCC's, of the core
    arm = ("--target=arm-none-eabi", *flags, f"-I{tmp_path / 'library'}")
    targets = ((), arm) if cpu.target.name == "arm_m" else ((),)
    for name in CHOSEN:
        folder = tmp_path / name
        folder.mkdir()
        sources = compile_model(graph_of(name), board_of(core), CompileOptions(name="some")).sources
        for file, text in sources.items():
            (folder / file).write_text(text)
        for target in targets:
            command = [COMPILER, *STRICT, *target, "-fsyntax-only", folder / "some_kernels.c"]
            subprocess.run(command, check=True, timeout=TIMEOUT_S)
