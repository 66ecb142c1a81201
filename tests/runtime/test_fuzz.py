"""Bytes of every kind into the runtime, under the sanitizers and its own assertions."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.runtime import fuzz
from tests.runtime.conftest import HERE, build
from utvm_deploy.base.paths import runtime_dir

INPUTS = 60_000  # about four seconds
MINUTE_S = 60

# Bugs to plant, each against one of PROTOCOL.md's invariants: file, right text, wrong text.
BUGS = {
    "an address beyond its region": (
        "utvm_memory.c",
        "size <= end - address)",
        "size <= end - address + 1)",
    ),
    "a reply that overflows": (
        "utvm_tasks.c",
        "calls_left -= repeat;",
        "calls_left -= repeat ? 1 : 0;",
    ),
}


@pytest.mark.tools
def test_random_bytes(tmp_path: Path) -> None:
    sources = (HERE / "fuzz_poll.c", HERE / "memory_port.c")
    flags = ("-DUTVM_FUZZ_MAIN", "-include", str(HERE / "fuzz_assert.h"))
    program = build(tmp_path / "fuzz", *sources, flags=flags)
    done = subprocess.run(
        [str(program), str(INPUTS), "2463534242"], capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stderr
    match = re.fullmatch(r"(\d+) inputs, (\d+) answers, (\d+) calls\n", done.stdout)
    assert match is not None
    inputs, answers, calls = map(int, match.groups())
    assert inputs == INPUTS
    # It reached what lies behind the CRC, and even would have run tasks.
    assert answers > INPUTS
    assert calls > INPUTS / 200


@pytest.fixture(scope="module")
def libfuzzer() -> None:
    reason = fuzz.missing()
    if reason:
        pytest.skip(reason)


@pytest.mark.slow
@pytest.mark.usefixtures("libfuzzer")
@pytest.mark.parametrize("seconds", [12, pytest.param(MINUTE_S, marks=pytest.mark.soak)])
def test_libfuzzer_finds_nothing(seconds: int, tmp_path: Path) -> None:
    program = fuzz.build(tmp_path / "fuzz", runtime_dir())
    found = fuzz.fuzz(program, tmp_path, seconds=seconds)
    assert found.finding == ""
    assert found.inputs > 1000 * seconds
    # All that unit tests reach, and more: it did not stop at the CRC.
    assert found.edges > 120


@pytest.mark.slow
@pytest.mark.usefixtures("libfuzzer")
@pytest.mark.parametrize("bug", BUGS)
def test_a_planted_bug_is_found(bug: str, tmp_path: Path) -> None:
    name, right, wrong = BUGS[bug]
    runtime = tmp_path / "runtime"
    shutil.copytree(runtime_dir(), runtime)
    text = (runtime / name).read_text()
    assert text.count(right) == 1
    (runtime / name).write_text(text.replace(right, wrong))
    found = fuzz.fuzz(fuzz.build(tmp_path / "fuzz", runtime), tmp_path, seconds=MINUTE_S, seed=1)
    assert "not true" in found.finding or "AddressSanitizer" in found.finding
