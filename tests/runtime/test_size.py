"""The runtime stays small: docs/reference/runtime-size.csv is the budget."""

from __future__ import annotations

import shutil
from dataclasses import replace

import pytest

from tests.runtime.size import COMPILER, CORES, compiler_version, deepest, growth, measure, stored


@pytest.mark.tools
@pytest.mark.parametrize("core", CORES)
def test_no_size_grew(core: str) -> None:
    if shutil.which(COMPILER) is None:
        pytest.skip(f"{COMPILER} is not installed")
    before = stored()[core]
    if compiler_version() != before.compiler:
        pytest.skip(f"the table is of {COMPILER} {before.compiler}, not {compiler_version()}")
    grown = growth(measure(core), before)
    assert not grown, f"{grown}; if that is meant: python -m tests.runtime.size --update"


def test_the_runtime_keeps_nothing_in_ram_of_its_own() -> None:
    assert all(row.data == row.bss == 0 for row in stored().values())
    assert stored()["cortex-m7"].text < 4 * 1024


def test_growth_is_seen() -> None:
    row = stored()["cortex-m7"]
    assert growth(row, row) == []
    assert growth(replace(row, text=int(row.text * 1.01)), row) == []
    (line,) = growth(replace(row, stack=row.stack * 2), row)
    assert "stack grew from" in line
    assert len(growth(replace(row, data=1, bss=4), row)) == 2


def test_the_deepest_chain_is_found() -> None:
    graph = """
node: { title: "utvm_poll" label: "utvm_poll\\na.c:1:1\\n8 bytes (static)" }
node: { title: "utvm_init" label: "utvm_init\\na.c:2:1\\n40 bytes (static)" }
node: { title: "a.c:middle" label: "middle\\na.c:3:1\\n16 bytes (static)" }
node: { title: "memcpy" label: "memcpy\\nstring.h:1:1" shape : ellipse }
edge: { sourcename: "utvm_poll" targetname: "a.c:middle" label: "a.c:1:9" }
edge: { sourcename: "a.c:middle" targetname: "far" label: "a.c:3:9" }
edge: { sourcename: "a.c:middle" targetname: "memcpy" label: "a.c:3:9" }
"""
    other = 'node: { title: "far" label: "far\\nb.c:1:1\\n32 bytes (static)" }'
    assert deepest({"a.ci": graph, "b.ci": other}) == 56
    back = 'edge: { sourcename: "far" targetname: "utvm_poll" label: "b.c:1:2" }'
    with pytest.raises(ValueError, match="recursion"):
        deepest({"a.ci": graph, "b.ci": other + back})
