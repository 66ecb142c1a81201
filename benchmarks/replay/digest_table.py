"""The digests of everything that is replayed: one file per core, one sorted line each.

    4606d6c0215a record add_16384:int8 dsp

A line is a digest and a name. A name is ``record KERNEL CANDIDATE``, or ``model MODEL OPTIONS``
and one of the model's kernels, its calls or its weights.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path

from emission import Emitted

from utvm_deploy.compiler.lowering.code_digest import code_digest

FOLDER = Path(__file__).resolve().parent / "digests"
#: Names to list in a message; there may be thousands.
_LISTED = 10


def table_file(core: str) -> Path:
    """Where a core's digests are."""
    return FOLDER / f"{core}.txt"


def parsed(text: str) -> dict[str, str]:
    """Name -> digest."""
    rows = (line.split(" ", 1) for line in text.splitlines())
    return {name: digest for digest, name in rows}


def written(table: Mapping[str, str]) -> str:
    """The file's text."""
    return "".join(f"{table[name]} {name}\n" for name in sorted(table))


def digests(emitted: Iterable[Emitted]) -> dict[str, str]:
    """Name -> digest."""
    return {one.name: code_digest(one.code()) for one in emitted}


def differing(
    known: Mapping[str, str], found: Mapping[str, str], absent: Iterable[str] = ()
) -> list[str]:
    """Names whose digests differ, and those that only one of both has, ``absent`` ones apart."""
    names = sorted((known.keys() - set(absent)) | found.keys())
    return [name for name in names if known.get(name) != found.get(name)]


def listed(names: list[str]) -> str:
    """The first of them, a line each, and how many more there are."""
    more = len(names) - _LISTED
    lines = [*names[:_LISTED], *([f"and {more} more"] if more > 0 else [])]
    return "\n".join(f"    {line}" for line in lines)
