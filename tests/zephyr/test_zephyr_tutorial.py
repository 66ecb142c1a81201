"""The tutorial of a Zephyr application works as it stands; without Zephyr, what needs none.

`west build` needs a workspace, so CMake builds the application here, and QEMU runs it.
"""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
sys.path.append(str(ROOT / "tests" / "tutorials"))
from page_runner import blocks, run_page  # noqa: E402

PAGE = "zephyr-application.md"


@pytest.mark.tools
def test_what_needs_no_zephyr(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("ZEPHYR_BASE", raising=False)
    run_page(PAGE, capfd, leave_out=("--template zephyr",))
    app = tmp_path / "app"
    assert (app / "digits" / "zephyr" / "module.yml").is_file()
    assert "config DIGITS" in (app / "digits" / "zephyr" / "Kconfig").read_text()
    assert (app / "src" / "picture.h").is_file() and (app / "src" / "main.c").is_file()


@pytest.mark.emulator
@pytest.mark.slow
@pytest.mark.usefixtures("zephyr")
def test_with_zephyr(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    from zephyr_apps import build_by_cmake, console_of, zephyr_board

    monkeypatch.setenv("ZEPHYR_TOOLCHAIN_VARIANT", "gnuarmemb")
    monkeypatch.setenv("GNUARMEMB_TOOLCHAIN_PATH", "/usr")
    board = zephyr_board("mps2_an385")
    run_page(PAGE, capfd)
    elf = build_by_cmake(tmp_path / "app", tmp_path / "build", "-DBOARD=mps2/an385")
    shown = blocks(PAGE)[-1].text.strip()
    assert shown in console_of(board, elf, until="sees")
