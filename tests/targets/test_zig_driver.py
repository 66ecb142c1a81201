"""The compiler driver around zig: what is compiled, what is linked, and with which options."""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path

import pytest

from utvm_deploy.base import process
from utvm_deploy.targets.wasm import toolchain, zig_driver

#: Writes its arguments to a log; fails for a source of this name.
FAKE = """
import sys
with open({log!r}, "a") as log:
    log.write(" ".join(sys.argv[1:]) + "\\n")
sys.exit(3 if "bad.c" in sys.argv else 0)
"""


def run(folder: Path, *arguments: str) -> tuple[int, list[list[str]]]:
    """The exit status, and the arguments of each call of zig."""
    log = folder / "log"
    fake = folder / "zig.py"
    fake.write_text(FAKE.format(log=str(log)))
    settings = {"zig": [sys.executable, str(fake)], "libraries": ["libc.a"]}
    log.unlink(missing_ok=True)
    status = zig_driver.main(json.dumps(settings), arguments)
    return status, [line.split() for line in log.read_text().splitlines()]


def test_a_compilation_is_passed_on(tmp_path: Path) -> None:
    given = ("-target", "wasm32-wasi", "-O2", "-c", "a.c", "-o", "a.o")
    assert run(tmp_path, *given) == (0, [["cc", *given]])


def test_a_link_compiles_its_sources_first(tmp_path: Path) -> None:
    given = ("-O2", "-nostdlib", "a.c", "b.o", "-Wl,--no-entry,-z,stack-size=64", "-lm", "-o", "x")
    status, (compiled, linked) = run(tmp_path, *given)
    assert status == 0 and compiled[:4] == ["cc", "-O2", "-c", "a.c"]
    made = compiled[-1]
    assert linked == [
        *("wasm-ld", "--no-entry", "-z", "stack-size=64"),
        *("b.o", made, "libc.a", "-o", "x"),
    ]


def test_one_object_of_several_has_no_library(tmp_path: Path) -> None:
    status, calls = run(tmp_path, "-r", "-nostdlib", "a.o", "b.o", "-o", "both.o")
    assert (status, calls) == (0, [["wasm-ld", "a.o", "b.o", "-r", "-o", "both.o"]])


def test_a_source_that_is_refused_ends_it(tmp_path: Path) -> None:
    status, calls = run(tmp_path, "bad.c", "good.c", "-o", "x")
    assert status == 3 and len(calls) == 1


def test_another_python_has_another_script(monkeypatch: pytest.MonkeyPatch) -> None:
    mine = toolchain.zig_program()
    assert mine == toolchain.zig_program()
    monkeypatch.setattr(sys, "executable", "/removed/bin/python")
    assert toolchain.zig_program() != mine


def test_the_slow_first_call_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    program = tmp_path / "of-this-python" / "zig-cc"
    linked = process.Completed(("zig",), 0, "", "wasm-ld main.o libc.a -o x\n")
    monkeypatch.setattr(toolchain, "IS_ZIG", True)
    monkeypatch.setattr(toolchain, "COMPILER", str(program))
    monkeypatch.setattr(process, "run", lambda *_, **__: linked)
    with caplog.at_level("WARNING"):
        toolchain.prepare()
        toolchain.prepare()
    assert program.is_file() and caplog.text.count("about a minute, once") == 1


def test_a_long_first_call_is_told_again(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(toolchain, "_TOLD_EVERY_S", 0.01)
    with caplog.at_level("WARNING"), toolchain._telling():
        while caplog.text.count("for WebAssembly: 0 s") < 2:
            time.sleep(0.01)
    told = caplog.text
    time.sleep(0.05)
    assert caplog.text == told
