"""Zephyr, where there is one: what runs and builds for real is skipped elsewhere."""

from __future__ import annotations

import os
from typing import Any

import pytest

from utvm_deploy.base.errors import UtvmError
from utvm_deploy.project.zephyr_build import Zephyr, find_zephyr


@pytest.fixture(scope="session")
def zephyr() -> Zephyr:
    """The tree that ZEPHYR_BASE names."""
    if "ZEPHYR_BASE" not in os.environ:
        pytest.skip("ZEPHYR_BASE is not set: no Zephyr to build with (see docs/guides/zephyr.md)")
    try:
        return find_zephyr()
    except UtvmError as error:
        pytest.skip(str(error))


_FIGURES = pytest.StashKey[list[str]]()


@pytest.fixture
def figures(request: pytest.FixtureRequest) -> list[str]:
    """Lines that are printed below the tests' results: sizes and seconds."""
    return request.config.stash.setdefault(_FIGURES, [])


def pytest_terminal_summary(terminalreporter: Any, config: pytest.Config) -> None:
    """What was measured, in one place."""
    lines = config.stash.get(_FIGURES, [])
    if lines:
        terminalreporter.section("figures")
        for line in lines:
            terminalreporter.write_line(line)
