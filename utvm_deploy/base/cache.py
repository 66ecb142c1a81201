"""The cache's folders: an entry is complete or absent, locked while it is used, removed when old.

    CACHE/images/KEY/lock ...      conversions, modules, objects and zephyr in the same way

An object that was made from an entry holds a shared lock on it as long as the object lives. The
lock ends with the process. ``trim`` skips locked entries. An entry is renamed into its
place and renamed out of it before it is deleted, so nobody ever sees a part of one. ``SUMS`` in an
entry holds sizes and SHA-256 of what is used of it: a damaged entry is removed, and made again.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import hashlib
import logging
import os
import weakref
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from utvm_deploy.base.files import sync
from utvm_deploy.base.paths import cache_dir
from utvm_deploy.base.temporary import MARK, TemporaryFolder

logger = logging.getLogger("utvm_deploy.base.cache")

_MIB = 1 << 20

#: Bytes on the disk that each folder is cut back to, its entries unused longest first.
MOST_BYTES: Mapping[str, int] = {
    "images": 512 * _MIB,
    "modules": 256 * _MIB,
    # Model files of other formats, as .tflite files or Relax models.
    "conversions": 256 * _MIB,
    # The kernel of one board and one release of Zephyr.
    "zephyr": 512 * _MIB,
    # The same of ESP-IDF, whose builds are larger.
    "esp-idf": 1024 * _MIB,
    # Plugins of QEMU: some hundred KiB for each version of QEMU.
    "emulator": 16 * _MIB,
    # Object files of the runtime: some hundred KiB for each board and version.
    "objects": 16 * _MIB,
    # Logs of builds.
    "failed": 4 * _MIB,
}

#: Looking at all entries takes as long as building one, so only every sixteenth new entry does it.
_KEYS_THAT_LOOK = "0"

_LOCK_FILE = "lock"
SUMS = "sums"
# A disk uses units of this size, even if its blocks have another size.
_STAT_BLOCK_BYTES = 512


def take(entry: Path, owner: object) -> bool:
    """``hold`` of an entry whose content is as it was made; a damaged one is removed, and told."""
    if not hold(entry, owner):
        return False
    with contextlib.suppress(OSError):
        checked = entry.stat()
        reason = _damage(entry)
        if reason is None:
            return True
        if (entry / SUMS).exists():
            logger.warning("%s in the cache is damaged (%s); it is made again", entry, reason)
        else:
            logger.info("%s in the cache has no sums, as of 0.1.0; it is made again", entry)
        # Another process may have found the damage, too, and may have replaced the entry.
        if os.path.samestat(checked, entry.stat()):
            # If the entry must not be removed, the next process that makes it meets the same error.
            _discard(entry)
    return False


def _damage(entry: Path) -> str | None:
    """What is wrong with the files that ``SUMS`` lists; None if nothing is wrong."""
    try:
        lines = (entry / SUMS).read_text(encoding="utf-8").splitlines()
        if not lines:
            return f"{SUMS} is empty"
        for line in lines:
            size, digest, name = line.split(" ", 2)
            data = (entry / name).read_bytes()
            if len(data) != int(size):
                return f"{name} has {len(data):,} bytes, not {int(size):,}"
            if hashlib.sha256(data).hexdigest() != digest:
                return f"{name} has another content"
    except (OSError, ValueError) as error:
        return str(getattr(error, "strerror", None) or f"{SUMS} cannot be read")
    return None


def seal(fresh: Path, files: Iterable[Path]) -> None:
    """Record sizes and digests of the files that ``verify`` checks, and write them to the disk."""
    lines = []
    for file in files:
        data = file.read_bytes()
        name = file.relative_to(fresh).as_posix()
        lines.append(f"{len(data)} {hashlib.sha256(data).hexdigest()} {name}\n")
        sync(file)
    (fresh / SUMS).write_text("".join(lines), encoding="utf-8")
    sync(fresh / SUMS, fresh)


class User:
    """Holds entries until an object is made of them."""


def hold(entry: Path, owner: object) -> bool:
    """Whether the entry is there; then it stays, as long as ``owner`` lives, and counts as used."""
    try:
        descriptor = _lock(entry, fcntl.LOCK_SH)
    except OSError:
        # The cache is read-only, or has no locks. Then nothing is removed there either.
        return entry.is_dir()
    if descriptor is None:
        return False
    with contextlib.suppress(OSError):
        os.utime(descriptor)
    weakref.finalize(owner, os.close, descriptor)
    return True


@contextlib.contextmanager
def folder_for_one(folder: Path) -> Iterator[Path]:
    """The folder, made if it does not exist. One process at a time gets it; the others wait."""
    descriptor = None
    while descriptor is None:
        folder.mkdir(parents=True, exist_ok=True)
        descriptor = _lock(folder, fcntl.LOCK_EX)
    try:
        with contextlib.suppress(OSError):
            os.utime(descriptor)
        yield folder
    finally:
        os.close(descriptor)


def keep(fresh: Path, entry: Path) -> bool:
    """Rename a sealed folder into its place; False if another process was faster."""
    try:
        fresh.rename(entry)
        sync(entry.parent)
    except OSError as error:
        if error.errno in (errno.EEXIST, errno.ENOTEMPTY):
            return False
        raise
    trim_now_and_then(entry)
    return True


def keep_held(fresh: Path, entry: Path, owner: object) -> None:
    """``keep``, where ``owner`` holds what then is in the place: this folder, or an equal one."""
    hold(fresh, owner)
    # What was there first may be removed before it is held.
    while not keep(fresh, entry) and not hold(entry, owner):
        pass


def trim_now_and_then(entry: Path) -> None:
    """Called for each new entry: looks at its folder's size at some of them."""
    if entry.name.startswith(_KEYS_THAT_LOOK):
        trim(entry.parent, MOST_BYTES[entry.parent.name])


def trim(folder: Path, most_bytes: int) -> None:
    """Remove what was unused longest, and is not in use, until ``most_bytes`` are left or less."""
    try:
        found = list(folder.iterdir())
    except OSError:  # somebody empties the cache
        return
    # What is being made belongs to its maker, or to nobody any more: base/temporary.py removes it.
    entries = [
        (_used_s(entry), _bytes_of(entry), entry) for entry in found if MARK not in entry.name
    ]
    total = sum(size for _, size, _ in entries)
    for _, size, entry in sorted(entries):
        if total <= most_bytes:
            return
        if _remove(entry):
            total -= size


def cache_bytes() -> int:
    """The bytes that the whole cache takes on the disk."""
    return _bytes_of(cache_dir())


def _lock(entry: Path, operation: int) -> int | None:
    """A descriptor that holds the entry; None where there is none. OSError if it cannot be had."""
    return locked_file(entry / _LOCK_FILE, operation, 0o666)


def locked_file(path: Path, operation: int, mode: int) -> int | None:
    """A descriptor that locks a file, which is made if its folder exists; None without a folder.

    ``operation`` is of ``flock``, and ``mode`` of a new file. OSError if it cannot be locked.
    """
    while True:
        try:
            descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, mode)
        except FileNotFoundError:
            return None
        is_held = False
        try:
            fcntl.flock(descriptor, operation)
            # The file was removed meanwhile, and the path now belongs to another process.
            with contextlib.suppress(FileNotFoundError):
                is_held = os.path.samestat(os.fstat(descriptor), path.stat())
        finally:
            if not is_held:
                os.close(descriptor)
        if is_held:
            return descriptor


def _remove(entry: Path) -> bool:
    """Remove an entry, unless somebody uses it."""
    try:
        if not entry.is_dir():
            entry.unlink()
            return True
        descriptor = _lock(entry, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if descriptor is None:
            return True
        try:
            _discard(entry)
        finally:
            os.close(descriptor)
    except OSError:
        return False
    return True


def _discard(entry: Path) -> None:
    """Rename an entry away, then delete it."""
    with TemporaryFolder("removed", entry.parent) as gone, contextlib.suppress(FileNotFoundError):
        entry.rename(gone / entry.name)


def _used_s(entry: Path) -> float:
    """When it was used last, in seconds since the epoch; 0 if it was removed meanwhile."""
    for path in (entry / _LOCK_FILE, entry):
        with contextlib.suppress(OSError):
            return path.stat().st_mtime
    return 0.0


def _bytes_of(path: Path) -> int:
    """The bytes of a file or a folder; files that disappear meanwhile do not count."""
    paths = [path]
    for root, _, names in os.walk(path):
        paths += [Path(root, name) for name in names]
    total = 0
    for one in paths:
        with contextlib.suppress(OSError):
            total += one.lstat().st_blocks * _STAT_BLOCK_BYTES
    return total
