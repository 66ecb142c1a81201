"""docs/reference/json.md has a row for each object that a verb prints."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
#: How code and page name the form of an object.
SCHEMA = re.compile(r"utvm\.[a-z-]+/\d+")


def test_each_schema_has_a_row() -> None:
    code = "".join(path.read_text("utf-8") for path in (ROOT / "utvm_deploy").rglob("*.py"))
    rows = (ROOT / "docs" / "reference" / "json.md").read_text("utf-8").splitlines()
    described = {name for row in rows if row.startswith("| `") for name in SCHEMA.findall(row)}
    printed = set(SCHEMA.findall(code))
    assert len(printed) > 20
    assert printed - described == set()
