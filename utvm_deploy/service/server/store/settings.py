"""What a server is started with."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path


@dataclass(frozen=True)
class Tls:
    """The files that a server proves its name with."""

    certificate: Path
    key: Path


@dataclass(frozen=True)
class Settings:
    """The options of `utvm serve`."""

    data: Path
    host: str = "127.0.0.1"
    port: int = 0  # 0: any that is free
    token: str | None = field(default=None, repr=False)  # None: nobody is asked for one
    tls: Tls | None = None
    scheduler: str | None = None  # the address of a Dask scheduler; None: a cluster inside
    certificates: Path | None = None  # of the cluster
    listen: str | None = None  # where workers may join the cluster inside: HOST or HOST:PORT
    allow_code: bool = (
        False  # whether uploads may be code: .pt2, .relax, programs for the board `host`
    )
    keep_days: int = 90
    disk_bytes: int = 10 << 30
