"""Files by the SHA-256 of their content: DATA/files/ab/abcdef..."""

from __future__ import annotations

import hashlib
import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from utvm_deploy.base.errors import UtvmError


class Writing:
    """A file that is being written; its digest and size so far."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file
        self._digest = hashlib.sha256()
        self.size = 0

    def write(self, data: bytes) -> None:
        """Add bytes. Raises OSError."""
        self._file.write(data)
        self._digest.update(data)
        self.size += len(data)

    @property
    def sha256(self) -> str:
        """Of what was written, in hexadecimal digits."""
        return self._digest.hexdigest()


class Files:
    """A folder of files that never change. A file is in it whole, or not at all."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._parts = folder / "parts"
        self._parts.mkdir(parents=True, exist_ok=True)
        # What a killed server left half written.
        for part in self._parts.iterdir():
            part.unlink()

    def path(self, sha256: str) -> Path:
        """Where the content with this digest is, if it is here."""
        if len(sha256) != 64 or not set(sha256) <= set("0123456789abcdef"):
            raise UtvmError(f"{sha256!r} is not a SHA-256; give 64 hexadecimal digits")
        return self._folder / sha256[:2] / sha256

    @contextmanager
    def writing(self) -> Iterator[Writing]:
        """A new file; it is kept, on the disk, if the block ends without an exception."""
        part = self._parts / secrets.token_hex(8)
        try:
            with part.open("xb") as file:
                written = Writing(file)
                yield written
                file.flush()
                os.fsync(file.fileno())
            place = self.path(written.sha256)
            place.parent.mkdir(exist_ok=True)
            part.replace(place)
        finally:
            part.unlink(missing_ok=True)

    def add(self, content: bytes) -> str:
        """Keep content; returns its digest. Raises OSError."""
        with self.writing() as file:
            file.write(content)
        return file.sha256
