"""bench.toml: which board hangs where on this desk; its reader.

    [boards.my_board]          # a board's name
    port = "/dev/ttyACM0"      # serial port, or a pyserial URL
    probe_serial = "0670FF"    # optional: which of several debug probes
    baud = 115200              # optional: instead of the board file's

It is looked for at UTVM_BENCH, else in the current folder. Board files never say such things.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from utvm_deploy.toml_table import read_toml

FILE_NAME = "bench.toml"


@dataclass(frozen=True)
class BenchEntry:
    """Where one board hangs; None where the file does not say."""

    port: str | None = None
    probe_serial: str | None = None
    baud: int | None = None


def bench_path() -> Path:
    """Where the bench file is, or would be."""
    return Path(os.environ.get("UTVM_BENCH") or FILE_NAME)


def load_bench_entry(board_name: str) -> BenchEntry:
    """What the bench file says of a board; an empty entry if it, or the file, is not there."""
    path = bench_path()
    if not path.is_file():
        return BenchEntry()
    top = read_toml(path)
    entries: dict[str, BenchEntry] = {}
    boards = top.table("boards")
    top.finish()
    # All entries are read, so that a mistake anywhere shows at once.
    for name in boards.keys_present:
        table = boards.table(name)
        entries[name] = BenchEntry(
            port=table.text("port") if table.has("port") else None,
            probe_serial=table.text("probe_serial") if table.has("probe_serial") else None,
            baud=table.integer("baud", minimum=1) if table.has("baud") else None,
        )
        table.finish()
    return entries.get(board_name, BenchEntry())
