"""A browser for the tests of pages."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "scripts" / "screenshots"))


@pytest.fixture(scope="session")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[object]:
    """Headless Chromium; without one the test is skipped."""
    pytest.importorskip("selenium", reason="selenium is not installed (pip install '.[test]')")
    from chromium import chromium, missing

    if missing():
        pytest.skip(missing())
    with chromium(tmp_path_factory.mktemp("downloads")) as driver:
        yield driver
