"""The reader of bench.toml, which says where each board is connected.

    [boards.my_board]          # a board's name
    port = "/dev/ttyACM0"      # serial port, socket://... or rfc2217://...
    probe = "pyocd"            # optional: which of the board file's probes
    probe_serial = "0670FF"    # optional: which of several debug probes
    server = "localhost:3333"  # optional: a GDB server that runs already
    baud = 115200              # optional: instead of the board file's

Of several boards of one kind, each has its own table, [[boards.my_board]], and is chosen by its
probe_serial. The file is looked for at UTVM_BENCH, else in the current folder. Board files never
say such things.
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from pathlib import Path

from utvm_deploy.base.errors import BoardError
from utvm_deploy.base.toml_table import Table, read_toml, shown

FILE_NAME = "bench.toml"


@dataclass(frozen=True)
class BenchEntry:
    """Where one board is connected; None for everything that the file omits."""

    port: str | None = None
    probe: str | None = None
    probe_serial: str | None = None
    server: str | None = None
    baud: int | None = None

    @property
    def server_address(self) -> tuple[str, int] | None:
        """Host and port of the GDB server that runs already."""
        if self.server is None:
            return None
        host, _, port = self.server.rpartition(":")
        return host.strip("[]"), int(port)


def bench_path() -> Path:
    """The path of the bench file, whether it exists or not."""
    return Path(os.environ.get("UTVM_BENCH") or FILE_NAME)


def load_bench() -> dict[str, tuple[BenchEntry, ...]]:
    """Everything that the bench file says, by the boards' names; empty without a file."""
    path = bench_path()
    if not path.is_file():
        if os.environ.get("UTVM_BENCH"):
            raise BoardError(f"UTVM_BENCH names {str(path)!r}, where no file is; correct it")
        return {}
    top = read_toml(path)
    boards = top.table("boards")
    top.finish()
    # All entries are read, so that a mistake anywhere shows at once.
    return {
        name: tuple(_read_entry(table) for table in boards.table_or_tables(name))
        for name in boards.keys_present
    }


def load_bench_entry(board_name: str, serial: str | None = None) -> BenchEntry:
    """The entry of a board; an empty one if the file or the entry does not exist.

    If several boards have that name, it is the one whose ``probe_serial`` is ``serial``.
    """
    entries = load_bench().get(board_name, ())
    if serial is not None:
        # A serial number that no entry has is a board that the file does not know.
        named = [e for e in entries if (e.probe_serial or "").lower() == serial.lower()]
        entries = tuple(named or [e for e in entries if e.probe_serial is None])
    if len(entries) > 1:
        serials = ", ".join(entry.probe_serial or "(none)" for entry in entries)
        raise BoardError(
            f"{bench_path()} lists {len(entries)} boards {board_name}; choose one by its probe's "
            f"serial number ({serials}) with --serial or UTVM_SERIAL"
        )
    return entries[0] if entries else BenchEntry()


def _read_entry(table: Table) -> BenchEntry:
    def text(key: str) -> str | None:
        return table.text(key) if table.has(key) else None

    entry = BenchEntry(
        port=text("port"),
        probe=text("probe"),
        probe_serial=text("probe_serial"),
        server=text("server"),
        baud=table.integer("baud", minimum=1) if table.has("baud") else None,
    )
    if entry.server is not None:
        host, _, port = entry.server.rpartition(":")
        if not host or not re.fullmatch(r"[0-9]{1,5}", port) or not 0 < int(port) < 1 << 16:
            raise table.error("server", f"{shown(entry.server)} is not HOST:PORT")
    table.finish()
    return entry
