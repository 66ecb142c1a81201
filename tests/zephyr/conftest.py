"""Zephyr, where there is one: what runs and builds for real is skipped elsewhere."""

from __future__ import annotations

import os

import pytest

from utvm_deploy.errors import UtvmError
from utvm_deploy.project.zephyr_build import Zephyr, find_zephyr


@pytest.fixture(scope="session")
def zephyr() -> Zephyr:
    """The tree that ZEPHYR_BASE names."""
    if "ZEPHYR_BASE" not in os.environ:
        pytest.skip("ZEPHYR_BASE is not set: no Zephyr to build with (see docs/zephyr.md)")
    try:
        return find_zephyr()
    except UtvmError as error:
        pytest.skip(str(error))
