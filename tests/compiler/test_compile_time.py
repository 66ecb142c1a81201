"""The page about compile time says what a compilation takes today."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "benchmarks"))
from compile_time import COUNTED, PAGE, counted_model, in_process  # noqa: E402

#: Versions of Python count some calls otherwise.
FACTOR = 2.0


@pytest.mark.slow
def test_a_compilation_calls_about_as_many_functions_as_the_page_says() -> None:
    """Calls are counted, because a time depends on the computer and on what else it does."""
    (line,) = re.findall(
        rf"^{COUNTED}, .* calls ([\d,]+) thousand functions", PAGE.read_text(), re.M
    )
    told = int(line.replace(",", ""))
    found = in_process(counted_model(), "mps2_an500", "time", counts=True).thousand_calls
    assert told / FACTOR <= found <= told * FACTOR, (
        f"a compilation of {COUNTED} calls {found:,} thousand functions, and the page says "
        f"{told:,}: run benchmarks/compile_time.py --write"
    )
