"""Which code a family's candidates become: a digest of what generates it, one for each family.

A record tells with which one it was measured, so that a kernel that was rewritten since is measured
anew, within one version of utvm too. Comments do not count, nor does the order of a space.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path

from utvm_deploy.candidate import GENERIC
from utvm_deploy.kernels.lowering import FAMILIES

_KERNELS = Path(__file__).resolve().parent
_PACKAGE = _KERNELS.parent
#: What every kernel goes through, whichever family it is of.
_COMMON = (
    _KERNELS / "quantize.py",
    _KERNELS / "utvm_kernels.h",
    _PACKAGE / "compiler" / "lower_c.py",
)
#: What families that generate assembly have in common.
_SHARED = (_KERNELS / "micro", _KERNELS / "c", _PACKAGE / "cores")
#: These choose between kernels and make none.
_NOT_CODE = ("__init__.py", "call.py", "code_version.py", "identity.py", "lowering.py", "space.py")
_SUFFIXES = (".py", ".h")


@cache
def code_versions() -> Mapping[str, str]:
    """Family -> digest of its generators."""
    versions = {GENERIC: _digest([*_COMMON, *_files(_KERNELS), *_files(_KERNELS / "c")])}
    shared = [path for folder in _SHARED for path in _files(folder)]
    for family in FAMILIES:
        own = [path for path in sorted((_KERNELS / family).rglob("*")) if _counts(path)]
        versions[family] = _digest([*_COMMON, *shared, *own])
    return versions


def _files(folder: Path) -> Iterator[Path]:
    return (path for path in sorted(folder.glob("*")) if _counts(path))


def _counts(path: Path) -> bool:
    return path.suffix in _SUFFIXES and path.name not in _NOT_CODE


def _digest(paths: list[Path]) -> str:
    found = hashlib.sha256()
    for path in paths:
        found.update(path.name.encode())
        for line in path.read_bytes().splitlines():
            words = line.strip()
            if words and not words.startswith(b"#" if path.suffix == ".py" else b"//"):
                found.update(line)
    return found.hexdigest()[:12]
