"""Files by the SHA-256 of their content: DATA/files/ab/abcdef...

    with files.holding():
        digest = files.add(content)
        database.finish_job(...)  # names the digest

A file is stored before the database names it. Nobody removes it in between while its thread is in
a block of ``holding``.
"""

from __future__ import annotations

import errno
import hashlib
import os
import re
import secrets
import shutil
import threading
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from utvm_deploy.base.errors import UtvmError
from utvm_deploy.base.files import sync
from utvm_deploy.service.server.store.refusals import NoRoom

_DIGEST = re.compile(r"[0-9a-f]{64}")
_FULL = (errno.ENOSPC, errno.EDQUOT)


class Writing:
    """A file that is being written; its digest and size so far."""

    def __init__(self, path: Path, file: IO[bytes], take: Callable[[int], None]) -> None:
        self.path = path
        self._file = file
        self._take = take
        self._digest = hashlib.sha256()
        self.size = 0

    def write(self, data: bytes) -> None:
        """Add bytes. Raises NoRoom, or UtvmError."""
        self._take(len(data))
        self.size += len(data)
        with _told():
            self._file.write(data)
        self._digest.update(data)

    def flush(self) -> None:
        """Let other processes that read ``path`` see what was written."""
        with _told():
            self._file.flush()

    @property
    def sha256(self) -> str:
        """Of what was written, in hexadecimal digits."""
        return self._digest.hexdigest()


class Files:
    """A folder of files that never change. A file is in it whole, or not at all.

    Threads may share it.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._parts = folder / "parts"
        #: Called when the folder grew; raises NoRoom if it is too large and nothing can be removed.
        self.make_room: Callable[[], None] = lambda: None
        self._lock = threading.Lock()
        self._held = Counter[str]()
        self._thread = threading.local()
        with _told():
            # What a killed server left half written.
            shutil.rmtree(self._parts, ignore_errors=True)
            self._parts.mkdir(parents=True, exist_ok=True)
            self._total = sum(self._size(digest) for digest in self.digests())

    @property
    def total_bytes(self) -> int:
        """The size of all files, with those that are being written."""
        return self._total

    def path(self, sha256: str) -> Path:
        """Where the content with this digest is, if it is here."""
        if not _DIGEST.fullmatch(sha256):
            raise UtvmError(f"{sha256!r} is not a SHA-256; give 64 hexadecimal digits")
        return self.folder / sha256[:2] / sha256

    def digests(self) -> list[str]:
        """Of all files."""
        return [
            path.name
            for path in self.folder.glob("[0-9a-f][0-9a-f]/*")
            if _DIGEST.fullmatch(path.name)
        ]

    @contextmanager
    def holding(self) -> Iterator[None]:
        """``remove`` leaves the files alone that this thread adds in the block.

        Blocks inside such a block belong to it.
        """
        if getattr(self._thread, "added", None) is not None:
            yield
            return
        self._thread.added = added = list[str]()
        try:
            yield
        finally:
            self._thread.added = None
            with self._lock:
                for digest in added:
                    self._held[digest] -= 1
                    if not self._held[digest]:
                        del self._held[digest]

    @contextmanager
    def writing(self) -> Iterator[Writing]:
        """A new file; it is kept, on the disk, if the block ends without an exception.

        Raises NoRoom, or UtvmError.
        """
        part = self._parts / secrets.token_hex(8)
        written: Writing | None = None
        is_kept = False
        try:
            with _told():
                file = part.open("xb")
            with file:
                written = Writing(part, file, self._take)
                yield written
                with _told():
                    file.flush()
                    os.fsync(file.fileno())
            with _told():
                is_kept = self._keep(part, written.sha256)
        finally:
            part.unlink(missing_ok=True)
            if written is not None and not is_kept:
                self._count(-written.size)

    def add(self, content: bytes) -> str:
        """Keep content; returns its digest. Raises NoRoom, or UtvmError."""
        with self.writing() as file:
            file.write(content)
        return file.sha256

    def remove(self, digests: Iterable[str], is_used: Callable[[str], bool]) -> int:
        """Remove those that nobody holds or uses; returns how many bytes that were."""
        removed = 0
        for digest in digests:
            # What is added meanwhile waits here, so that the answer of ``is_used`` stays true.
            with self._lock:
                if digest in self._held or is_used(digest):
                    continue
                size = self._size(digest)
                with _told():
                    self.path(digest).unlink(missing_ok=True)
                self._total -= size
            removed += size
        return removed

    def _keep(self, part: Path, digest: str) -> bool:
        """Give a part its place; False if its content was there before."""
        place = self.path(digest)
        with self._lock:
            added = getattr(self._thread, "added", None)
            if added is not None:
                added.append(digest)
                self._held[digest] += 1
            is_new = not place.exists()
            if not place.parent.exists():
                place.parent.mkdir()
                sync(self.folder)
            # Also if it was there: a damaged disk may have changed it.
            part.replace(place)
        sync(place.parent)
        return is_new

    def _take(self, size: int) -> None:
        self._count(size)
        try:
            self.make_room()
        except BaseException:
            self._count(-size)
            raise

    def _count(self, size: int) -> None:
        with self._lock:
            self._total += size

    def _size(self, digest: str) -> int:
        try:
            return self.path(digest).stat().st_size
        except FileNotFoundError:
            return 0


@contextmanager
def _told() -> Iterator[None]:
    """Errors of the disk as one sentence."""
    try:
        yield
    except OSError as error:
        if error.errno in _FULL:
            raise NoRoom(
                "the disk of the server is full, so nothing was stored; make room there"
            ) from error
        raise UtvmError(
            f"the server's files cannot be used: {error.strerror or error}; look at its disk"
        ) from error
