"""A board whose images are projects of ESP-IDF, and which is a process of this computer."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from utvm_deploy.base.paths import data_dir
from utvm_deploy.boards.board import Board, load_board
from utvm_deploy.targets.contract.core import Core
from utvm_deploy.targets.contract.target import Templates
from utvm_deploy.targets.host.target import HOST
from utvm_deploy.targets.table import registered

DOUBLE = Path(__file__).parent / "double"
TARGET = replace(
    HOST,
    name="double",
    tag=98,
    cores=(Core(name="double-1", architecture="host"),),
    templates=Templates(
        folders={"esp-idf": ("esp_idf", str(DOUBLE / "port"))},
        guard_of=lambda core: ("guard.c",),
        are_processes=True,
    ),
)


@pytest.fixture
def idf(monkeypatch: pytest.MonkeyPatch) -> Path:
    """The double of an ESP-IDF that is installed, as its export.sh tells of it."""
    monkeypatch.setenv("IDF_PATH", str(DOUBLE / "idf"))
    monkeypatch.setenv("IDF_PYTHON_ENV_PATH", sys.prefix)
    monkeypatch.setenv("ESP_IDF_DOUBLE_LIBC", str(data_dir("templates") / "host" / "libc.c"))
    return DOUBLE / "idf"


@pytest.fixture
def double(idf: Path) -> Iterator[Board]:
    """The board."""
    with registered(TARGET):
        yield load_board(DOUBLE / "esp_idf_double.toml")
