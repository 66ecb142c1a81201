"""The runtime's unit tests in C, and what must hold for its text."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.runtime.conftest import HERE, WARNINGS
from utvm_deploy.base.paths import data_dir, runtime_dir
from utvm_deploy.device.link.messages import PROTOCOL_VERSION

pytestmark = pytest.mark.tools

NAMES = re.findall(r"ENTRY\((test_\w+)\)", (HERE / "unit.c").read_text())
COMPILERS = {
    "gcc": "gcc",
    "clang": "clang",
    "gcc-32-bit-arm": "arm-none-eabi-gcc -mcpu=cortex-m7 -mthumb -ffreestanding",
    "gcc-cortex-m0plus": "arm-none-eabi-gcc -mcpu=cortex-m0plus -mthumb -ffreestanding",
}
SOURCES = sorted(runtime_dir().glob("*.c"))


@pytest.mark.parametrize("name", NAMES)
def test_unit(name: str, unit_program: Path) -> None:
    done = subprocess.run([str(unit_program), name], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr


def test_no_unit_test_is_left_out(unit_program: Path) -> None:
    listed = subprocess.run(
        [str(unit_program)], capture_output=True, text=True, timeout=60, check=True
    ).stdout.split()
    defined = re.findall(r"^static void (test_\w+)\(void\)", (HERE / "unit.c").read_text(), re.M)
    assert listed == NAMES == defined


@pytest.mark.parametrize("flags", ["-Os", "-O3 -DUTVM_NO_ERRMSG"])
@pytest.mark.parametrize("compiler", COMPILERS)
def test_compiles_without_a_warning(compiler: str, flags: str, tmp_path: Path) -> None:
    command = COMPILERS[compiler].split()
    if shutil.which(command[0]) is None:
        pytest.skip(f"{command[0]} is not installed")
    for source in SOURCES:
        subprocess.run(
            [*command, *WARNINGS, *flags.split(), "-c", str(source), "-o", str(tmp_path / "x.o")],
            check=True,
            timeout=60,
        )


@pytest.mark.parametrize("compiler", ["gcc", "clang"])
def test_the_host_program_compiles_without_a_warning(compiler: str, tmp_path: Path) -> None:
    if shutil.which(compiler) is None:
        pytest.skip(f"{compiler} is not installed")
    for source in sorted((data_dir("templates") / "host").glob("*.c")):
        command = [compiler, *WARNINGS, "-O2", "-fno-pie", f"-I{runtime_dir()}", "-c", str(source)]
        subprocess.run([*command, "-o", str(tmp_path / "x.o")], check=True, timeout=60)


@pytest.mark.parametrize("standard", ["c++11", "c++17", "c++20"])
def test_the_sources_compile_as_cplusplus(standard: str, tmp_path: Path) -> None:
    if shutil.which("g++") is None:
        pytest.skip("g++ is not installed")
    command = ["g++", f"-std={standard}", "-Wall", "-Wextra", "-pedantic", "-Werror"]
    for source in SOURCES:
        subprocess.run(
            [*command, "-x", "c++", "-c", str(source), "-o", str(tmp_path / "x.o")],
            check=True,
            timeout=60,
        )


def test_the_header_speaks_cplusplus(tmp_path: Path) -> None:
    if shutil.which("g++") is None:
        pytest.skip("g++ is not installed")
    source = tmp_path / "port.cpp"
    source.write_text(
        '#include "utvm.h"\nint main() { utvm_t *u = nullptr; return u != nullptr; }\n'
    )
    command = [
        "g++",
        "-std=c++11",
        "-Wall",
        "-Wextra",
        "-pedantic",
        "-Werror",
        f"-I{runtime_dir()}",
    ]
    subprocess.run([*command, "-fsyntax-only", str(source)], check=True, timeout=60)


def test_another_protocol_version_does_not_compile(tmp_path: Path) -> None:
    for source in runtime_dir().glob("*.h"):
        text = source.read_text()
        version = "#define UTVM_PROTOCOL_VERSION "
        (tmp_path / source.name).write_text(
            text.replace(f"{version}{PROTOCOL_VERSION}", f"{version}99")
        )
    (tmp_path / "port.c").write_text('#include "utvm.h"\n')
    done = subprocess.run(
        ["gcc", "-fsyntax-only", str(tmp_path / "port.c")],
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode != 0
    assert "utvm_protocol.h is of another version" in done.stderr


def test_what_the_runtime_needs_from_others(tmp_path: Path) -> None:
    """No heap, no mutable globals; of the C library only memcpy and memset."""
    if shutil.which("arm-none-eabi-gcc") is None:
        pytest.skip("arm-none-eabi-gcc is not installed")
    whole = tmp_path / "utvm.o"
    command = ["arm-none-eabi-gcc", "-mcpu=cortex-m7", "-mthumb", "-Os", "-ffreestanding"]
    command += ["-nostdlib", "-r"]
    subprocess.run([*command, *map(str, SOURCES), "-o", str(whole)], check=True, timeout=60)
    listing = subprocess.run(
        ["arm-none-eabi-nm", str(whole)], capture_output=True, text=True, check=True, timeout=60
    ).stdout
    symbols = [line.split()[-2:] for line in listing.splitlines()]
    assert {name for kind, name in symbols if kind == "U"} <= {"memcpy", "memset"}
    assert [name for kind, name in symbols if kind in "bBdDcC"] == []
