"""What ESP-IDF built: its list of files and addresses, ``flasher_args.json`` in the build folder.

ESP-IDF writes the file for esptool, next to what it names ("Flashing Firmware" of esptool's manual;
the rule is ``flash_targets.cmake`` of ESP-IDF).
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from pathlib import Path

from utvm_deploy.base.errors import BuildError
from utvm_deploy.boards.board import Board, board_of_device
from utvm_deploy.boards.facts import ESP_IDF
from utvm_deploy.boards.probe_programs import ESP_IDF_BUILD
from utvm_deploy.project.image import Image

#: What flash is like, and no other option: others encrypt, erase, or need keys.
_OPTION = re.compile(r"--flash[-_](?:mode|freq|size)|\w+", re.ASCII)
_ADDRESS = re.compile(r"0x[0-9a-fA-F]{1,8}", re.ASCII)
#: OpenOCD's Tcl would read other characters as commands, or as the end of a name.
_PATH = re.compile(r"[\w./+@~-]+", re.ASCII)


@dataclass(frozen=True)
class EspIdfBuild:
    """A build whose files are all there."""

    image: Image
    # Options about the flash, then address and file of each part.
    parts: tuple[str, ...]


def esp_idf_build(directory: Path) -> Path | None:
    """The build folder, if ``directory`` is one of ESP-IDF, or a project with its folder build."""
    folders = (directory, directory / "build")
    return next((one for one in folders if (one / ESP_IDF_BUILD.file).is_file()), None)


def read_esp_idf(folder: Path, board: Board | None = None) -> EspIdfBuild:
    """What there is to flash; BuildError if the list is wrong, or a file of it is missing.

    Without ``board`` it is the one whose file knows the chip.
    """
    path = folder.absolute() / ESP_IDF_BUILD.file
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
        options = [str(one) for one in found["write_flash_args"]]
        files = {str(at): path.parent / str(name) for at, name in found["flash_files"].items()}
        chip = str(found["extra_esptool_args"]["chip"])
        elf = (path.parent / str(found["app"]["file"])).with_suffix(".elf")
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as exc:
        raise BuildError(
            f"{path} is not as ESP-IDF writes it ({type(exc).__name__}: {exc}); run: idf.py build"
        ) from exc
    for wrong in [one for one in options if not _OPTION.fullmatch(one)]:
        raise BuildError(f"{path} asks for {wrong!r}, which is left to ESP-IDF: idf.py flash")
    for at, file in files.items():
        if not _ADDRESS.fullmatch(at) or not _PATH.fullmatch(str(file)):
            raise BuildError(
                f"{path} has {at!r}: {str(file)!r}, and flashing programs may take its characters "
                "for commands; build in a folder whose path is letters and digits"
            )
        if not file.is_file():
            raise BuildError(f"{file} is missing, which {path.name} lists; run: idf.py build")
    parts = [word for at in sorted(files, key=lambda at: int(at, 16)) for word in (at, files[at])]
    return EspIdfBuild(Image(elf, board or _board_of(chip, path)), (*options, *map(str, parts)))


def _board_of(chip: str, path: Path) -> Board:
    board = board_of_device(chip)
    if board is None or ESP_IDF not in board.project.templates:
        raise BuildError(
            f"{path} is for the chip {chip!r}, which no board file of ESP-IDF knows; set "
            "UTVM_BOARDS to the folder of your board file, or flash it with: idf.py flash"
        )
    return board
