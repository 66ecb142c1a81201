"""Registers and instruction sets of one architecture are named by its target alone."""

from __future__ import annotations

import re
from pathlib import Path

PACKAGE = Path(__file__).resolve().parents[2] / "utvm_deploy"
#: What only ``targets/arm_m`` knows.
WORDS = re.compile(r"\b(cfsr|hfsr|mmfar|bfar|xpsr|aircr|dwt|thumb)\b|armv\d", re.IGNORECASE)


def test_no_register_of_a_core_is_named_elsewhere() -> None:
    found = [
        f"{path.relative_to(PACKAGE)}:{number}: {line.strip()}"
        for room in ("device", "compiler")
        for path in sorted((PACKAGE / room).rglob("*.py"))
        for number, line in enumerate(path.read_text().splitlines(), 1)
        if WORDS.search(line)
    ]
    assert found == []
