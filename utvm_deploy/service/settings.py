"""What a server is started with."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Settings:
    """The options of `utvm serve`."""

    data: Path
    host: str = "127.0.0.1"
    port: int = 0  # 0: any that is free
    scheduler: str | None = None  # the address of a Dask scheduler; None: a cluster inside
    certificates: Path | None = None
    allow_code: bool = False  # whether uploads may be code: .pt2, programs for the board `host`
