"""The gate of ``pytest --without-tools`` refuses compilers, emulators and the oracle."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from without_tools import GATE, Gate, is_tool, leaves_out

from utvm_deploy.base import process


@pytest.mark.parametrize(
    ("command", "expected"),
    [
        ("/usr/bin/cc -c x.c", True),
        ("gcc-13 --version", True),
        ("arm-none-eabi-objcopy a b", True),
        ("qemu-system-arm -M mps2-an500", True),
        ("cmake --build x", True),
        ("python3 -m utvm_deploy boards", True),
        ("python3 tests/random_models/oracle_child.py", True),
        ("python3 -c 'pass'", False),
        ("sh -c true", False),
        ("st-flash --version", False),
        ("occ", False),
    ],
)
def test_what_a_tool_is(command: str, expected: bool) -> None:
    assert is_tool(command.split()) == expected


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("pytestmark = pytest.mark.tools", True),
        (
            "pytestmark = [\n    pytest.mark.filterwarnings('ignore'),\n    pytest.mark.slow,\n]",
            True,
        ),
        ("pytestmark = pytest.mark.toolsmith", False),
        ('torch = pytest.importorskip("torch")', True),
        ('    torch = pytest.importorskip("torch")', False),
        ("pytestmark = pytest.mark.filterwarnings('ignore')", False),
        ("@pytest.mark.tools\ndef test() -> None: ...", False),
    ],
)
def test_a_module_without_fast_tests_is_not_imported(
    tmp_path: Path, line: str, expected: bool
) -> None:
    path = tmp_path / "test_any.py"
    path.write_text(f"import pytest\n\n{line}\n")
    assert leaves_out(path) == expected


@pytest.fixture
def gate(monkeypatch: pytest.MonkeyPatch) -> Iterator[Gate]:
    """A gate of this test's own; the one of ``--without-tools`` stays open meanwhile."""
    monkeypatch.setattr(GATE, "is_shut", False)
    made = Gate()
    sys.addaudithook(made.watch)
    made.is_shut = True
    yield made
    made.is_shut = False  # an audit hook cannot be taken away


def test_a_tool_fails_the_test_that_starts_it(gate: Gate, tmp_path: Path) -> None:
    tool = tmp_path / "gcc"
    tool.write_text("#!/bin/sh\n")
    tool.chmod(0o755)
    for start in (
        lambda: process.run([str(tool)], timeout_s=10),
        lambda: process.start([str(tool)]).close(),
        lambda: subprocess.run([tool], check=True),
    ):
        with pytest.raises(pytest.fail.Exception, match=r"without the mark `tools` starts .*gcc"):
            start()
    assert gate.refused == [str(tool)] * 3
    process.run(["sh", "-c", "true"], timeout_s=10)
    gate.is_shut = False
    assert process.run([str(tool)], timeout_s=10).is_ok
