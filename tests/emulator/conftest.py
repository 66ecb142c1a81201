"""The decoder as a program, and the plugin, built once."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from utvm_deploy.targets.emulator.plugin import SOURCES, build_plugin, installed_qemu_version
from utvm_deploy.targets.emulator.table import header_texts

HERE = Path(__file__).resolve().parent
QEMU = "qemu-system-arm"


@pytest.fixture(scope="session")
def decode_tool(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A program that decodes what it reads."""
    folder = tmp_path_factory.mktemp("decode")
    for name, text in header_texts().items():
        (folder / name).write_text(text)
    tool = folder / "decode_tool"
    sources = [HERE / "decode_tool.c", SOURCES / "decode.c", *sorted(SOURCES.glob("*/*.c"))]
    subprocess.run(
        ["cc", "-std=c11", "-O1", "-g", "-fsanitize=address,undefined", "-Wall", "-Wextra",
         "-Wconversion", "-pedantic", "-Werror", f"-I{folder}", f"-I{SOURCES}", "-o", str(tool),
         *map(str, sources)],
        check=True,
    )  # fmt: skip
    return tool


@pytest.fixture(scope="session")
def plugin(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The plugin for the QEMU that is installed."""
    if shutil.which(QEMU) is None:
        pytest.skip(f"{QEMU} is not installed")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("UTVM_CACHE", str(tmp_path_factory.mktemp("cache")))
        return build_plugin(installed_qemu_version(QEMU))
