"""Trained weights as the bytes of ``NAME_store``."""

from __future__ import annotations

import hashlib
import struct
import zlib
from collections.abc import Sequence

from utvm_deploy.base.errors import ModelError

#: The first bytes of stored weights.
MAGIC = b"utvmW1\0\0"
#: Bytes of the header: magic, digest of the model, bytes in all, CRC-32 of what follows.
HEADER = struct.Struct("<8s16sII")


def digest_of(model: str, names: Sequence[str]) -> str:
    """The digest of a model and of the weights that train; ``model`` is its digest, or its text."""
    return hashlib.sha256("\0".join([model, *names]).encode()).hexdigest()


def check_stored(stored: bytes, digest: str, name: str, size: int) -> None:
    """Raise ModelError unless these are whole weights of a model; ``name`` is for messages."""
    start = MAGIC + bytes.fromhex(digest)[:16]
    if stored[: len(start)] != start:
        raise ModelError(f"these are not weights of {name}; give those that it has stored")
    if stored[len(start) : HEADER.size] != struct.pack("<II", size, zlib.crc32(stored[32:])):
        raise ModelError(f"the weights of {name} are damaged; restore another copy of them")
