"""Downloads what a job made. A file is there whole and with the right bytes, or not at all."""

from __future__ import annotations

import hashlib
import io
import time
from pathlib import Path
from typing import IO

from utvm_deploy.base.errors import ServerError
from utvm_deploy.base.files import write_atomically
from utvm_deploy.service.client.api import ANSWER_S, BYTES_PER_S, LostAnswer, Server
from utvm_deploy.service.client.facts import RemoteFile, RemoteJob, printable

#: What file systems take, in bytes, with room for the name of the temporary file.
_LONGEST_NAME = 200
#: Separators of paths, here and on Windows; ":" names a drive or a stream there.
_SEPARATORS = frozenset("/\\:")


def download(server: Server, job: RemoteJob, file: RemoteFile, folder: Path) -> Path:
    """Write a file of a job into a folder that is there. Raises ServerError and UtvmError."""
    path = folder / safe_name(file.name)
    write_atomically(path, lambda part: _receive(server, job, file, part))
    return path


def content(server: Server, job: RemoteJob, name: str) -> bytes:
    """The content of a small file. Raises ServerError."""
    for file in job.files:
        if file.name == name:
            part = io.BytesIO()
            _receive(server, job, file, part)
            return part.getvalue()
    raise ServerError(f"job {job.key} has no file {name}; it is {job.state}")


def safe_name(name: str) -> str:
    """The name of a file in the folder that the user chose. Raises ServerError for others.

    A hostile server must not choose where on this computer it writes.
    """
    is_safe = (
        name
        and name.isprintable()
        and not name.startswith((".", "~"))
        and not _SEPARATORS & set(name)
        and len(name.encode("utf-8", "replace")) <= _LONGEST_NAME
    )
    if not is_safe:
        raise ServerError(
            f"the server names a file {printable(name)[:80]!r}, which is refused: it could be "
            "written outside of your folder; name the files that you want"
        )
    return name


def _receive(server: Server, job: RemoteJob, file: RemoteFile, part: IO[bytes]) -> None:
    digest, have = hashlib.sha256(), 0
    deadline = time.monotonic() + ANSWER_S + file.size / BYTES_PER_S

    def attempt() -> None:
        nonlocal digest, have
        with server.reading(job.key, file.name, have) as (start, pieces):
            if start != have:  # it cannot begin in the middle
                digest, have = hashlib.sha256(), 0
                part.seek(0)
                part.truncate()
            for piece in pieces:
                have += len(piece)
                if have > file.size:
                    raise ServerError(
                        f"{printable(file.name)} of job {job.key} is longer than the "
                        f"{file.size:,} bytes that the server said; it was not kept"
                    )
                part.write(piece)
                digest.update(piece)
                if time.monotonic() > deadline:
                    raise ServerError(
                        f"{printable(file.name)} of job {job.key} comes too slowly; it was not kept"
                    )
        if have < file.size:
            raise LostAnswer("the file ended early")

    server.repeated(attempt)
    if digest.hexdigest() != file.sha256:
        raise ServerError(
            f"{printable(file.name)} of job {job.key} has another SHA-256 than the server said; "
            "it was not kept; fetch it again"
        )
