"""Any bytes into the runtime, under the sanitizers."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

from tests.runtime.conftest import HERE, build

INPUTS = 80_000  # about four seconds


def test_random_bytes(tmp_path: Path) -> None:
    sources = (HERE / "fuzz_poll.c", HERE / "bench.c")
    program = build(tmp_path / "fuzz", *sources, flags=("-DUTVM_FUZZ_MAIN",))
    done = subprocess.run(
        [str(program), str(INPUTS), "2463534242"], capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stderr
    match = re.fullmatch(r"(\d+) inputs, (\d+) answers, (\d+) calls\n", done.stdout)
    assert match is not None
    inputs, answers, calls = map(int, match.groups())
    assert inputs == INPUTS
    # It reached what lies behind the CRC, and even ran tasks.
    assert answers > INPUTS
    assert calls > INPUTS / 200
