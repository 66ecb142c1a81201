"""A board file made from another one: with another name, and other sizes of memory."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import tomlkit

from utvm_deploy.base.errors import BoardError
from utvm_deploy.base.files import write_text
from utvm_deploy.boards.board import Board, check_name, load_board


def write_new_board(
    name: str,
    base: Board,
    *,
    flash_bytes: int | None,
    ram_bytes: int | None,
    folder: Path = Path(),
    dry_run: bool = False,
) -> tuple[Path, Board]:
    """Write ``NAME.toml``, made from the file of ``base``; comments stay.

    ``flash_bytes`` is the new size of the largest region of flash. ``ram_bytes`` is that of the
    largest region of kind ram, or of kind tcm on boards without such. Returns the file and the
    board that it describes. Raises BoardError if the name is none for a board, if there is such a
    file, or if the regions would overlap.
    """
    check_name(name)
    path = folder / f"{name}.toml"
    if path.exists() or path.is_symlink():
        raise BoardError(f"{path} exists; give another name, or remove it first")
    text = _text(name, base, flash_bytes, ram_bytes)
    with tempfile.TemporaryDirectory() as temporary:
        trial = Path(temporary) / path.name
        trial.write_text(text, encoding="utf-8")
        try:
            board = load_board(trial, trust=True)
        except BoardError as error:
            raise BoardError(str(error).replace(str(trial), str(path))) from error
    if not dry_run:
        write_text(path, text)
    return path, board


def _text(name: str, base: Board, flash_bytes: int | None, ram_bytes: int | None) -> str:
    document = tomlkit.parse(base.source)
    regions: Any = document["memory"]
    data = "ram" if any(one["kind"] == "ram" for one in regions) else "tcm"
    for kind, size in (("flash", flash_bytes), (data, ram_bytes)):
        if size is not None:
            of_kind = (one for one in regions if one["kind"] == kind)
            max(of_kind, key=lambda one: int(one["size"]))["size"] = size
    flash = sum(int(one["size"]) for one in regions if one["kind"] == "flash")
    ram = sum(int(one["size"]) for one in regions if one["kind"] != "flash")
    document["name"] = name
    document["description"] = (
        f"{base.cpu.core} with {flash / 1024:g} KiB flash and {ram / 1024:g} KiB RAM"
    )
    return (
        f"# Made from the file of the board {base.name}. Check each line against the datasheet.\n"
        f"{tomlkit.dumps(document)}"
    )
