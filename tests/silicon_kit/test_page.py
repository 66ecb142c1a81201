"""docs/guides/silicon.md shows the files of real boards, and no others."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from types import ModuleType

import pytest

from utvm_deploy.base.errors import UtvmError
from utvm_deploy.silicon_kit.report import (
    BoardUsed,
    CaseResult,
    LayerResult,
    Modelling,
    ModelResult,
    Report,
    Setup,
    Timing,
    Versions,
    write_report,
)

SCRIPT = Path(__file__).resolve().parents[2] / "benchmarks" / "silicon" / "tables.py"

BOARD = BoardUsed(
    name="my_board",
    core="cortex-m7",
    clock_hz=216_000_000,
    facts_sha256="0" * 64,
    template="baremetal",
    is_silicon=True,
    probe="openocd",
    usb=("0483:374b",),
    link="monitor",
)
REPORT = Report(
    setup=Setup(
        Versions("0.2.0", "0.27", "2.3.0", "gcc 12", "Linux 6.1 x86_64", "3.11"),
        BOARD,
        Modelling("emulated", "ab" * 32, "qemu 7.2"),
    ),
    timing=Timing("cycles", 216_000_000, "dwt"),
    models=(
        ModelResult(
            file="<b>m|[x](y).tflite",
            sha256="1" * 64,
            state="equal",
            ticks=3000,
            modelled={"memory": 2000},
            layers=(
                LayerResult(0, "CONV_2D", "y", "dsp", 100, True, False, 1500, {"memory": 1000}),
                LayerResult(1, "SOFTMAX", "z", "generic", 0, True, True, 1500),
            ),
        ),
    ),
    micro_benchmarks=(CaseResult("add", "add r4", "", "core", 1.5, None, 1.0, "JNK"),),
)


@pytest.fixture(scope="module")
def tables() -> ModuleType:
    spec = importlib.util.spec_from_file_location("silicon_tables", SCRIPT)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_page_shows_the_files() -> None:
    assert subprocess.run([sys.executable, str(SCRIPT), "--check"]).returncode == 0


def test_a_file_becomes_tables(tables: ModuleType, tmp_path: Path) -> None:
    assert tables.NOTHING in tables.generated(tmp_path)
    write_report(tmp_path / "mine.json", REPORT)
    text = tables.generated(tmp_path)
    assert tables.NOTHING not in text
    assert "### my_board (mine.json)" in text
    assert "cortex-m7 at 216 MHz, cycles by dwt" in text
    assert "| &lt;b&gt;m&#124;&#91;x&#93;(y).tflite | all | equal | 3,000 | 2,000 | 1.50 |" in text
    assert "| 0 CONV_2D | equal | 1,500 | 1,000 | 1.50 |" in text
    assert "| 1 SOFTMAX | differs | 1,500 |  |  |" in text
    assert "| add | 1.50 |  | 1.00 | JNK |" in text


def test_files_of_emulated_boards_are_refused(tables: ModuleType, tmp_path: Path) -> None:
    board = replace(BOARD, is_silicon=False)
    report = replace(REPORT, setup=replace(REPORT.setup, board=board))
    write_report(tmp_path / "emulated.json", report)
    with pytest.raises(UtvmError, match=r"emulated\.json is of an emulated board"):
        tables.generated(tmp_path)
