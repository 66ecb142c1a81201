"""Which code a family's candidates become: a digest of what generates it, one for each family.

A record tells with which one it was measured, so that a kernel that was rewritten since is measured
anew, within one version of utvm too. Comments do not count, nor does the order of a space.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path

from utvm_deploy.kernels.choose.lowering import FAMILIES
from utvm_deploy.records.candidate import GENERIC

_KERNELS = Path(__file__).resolve().parents[1]
_PACKAGE = _KERNELS.parent
#: What every kernel goes through, whichever family it is of.
_COMMON = (_KERNELS / "utvm_kernels.h", _PACKAGE / "compiler" / "lower_c.py")
#: These choose between kernels, or name them, and make none.
_NOT_CODE = (
    *("__init__.py", "call.py", "code_version.py", "estimate.py", "identity.py", "lowering.py"),
    *("space.py", "dsp_space.py", "mve_space.py", "thumb_space.py"),
)
_GENERIC_FOLDERS = ("contract", "portable", "native", "native/routines")
_IMPORT = re.compile(r"^from utvm_deploy\.((?:kernels|cores)[\w.]*) import (.*)$", re.MULTILINE)
#: Any import statement, one in parentheses over several lines included.
_ANY_IMPORT = re.compile(
    rb"^[ ]*(?:import [^\n]*|from [^\n]* import (?:\([^)]*\)|[^(\n]*))$", re.MULTILINE
)


@cache
def code_versions() -> Mapping[str, str]:
    """Family -> digest of its generators."""
    return {family: _digest(sources_of(family)) for family in (GENERIC, *FAMILIES)}


def sources_of(family: str) -> list[Path]:
    """The files that a family's code is made by, or of."""
    folder = _KERNELS / "native" / family
    folders = [folder] if family != GENERIC else [_KERNELS / one for one in _GENERIC_FOLDERS]
    found = {path for one in folders for path in one.glob("*.py") if path.name not in _NOT_CODE}
    waiting = list(found)
    while waiting:
        new = set(_imported(waiting.pop())) - found
        found |= new
        waiting += new
    headers = {*(_KERNELS / "c").glob("*.h"), *(folder / "c").glob("*.h")}
    return sorted({*_COMMON, *found, *headers})


def _imported(path: Path) -> Iterator[Path]:
    """What it takes from kernels and cores."""
    for module, names in _IMPORT.findall(path.read_text(encoding="utf-8")):
        place = _PACKAGE.joinpath(*module.split("."))
        files = [place.with_suffix(".py"), *(place / f"{n}.py" for n in re.findall(r"\w+", names))]
        yield from (one for one in files if one.is_file() and one.name not in _NOT_CODE)


def _digest(paths: list[Path]) -> str:
    """Where a file lies and what it imports do not count, only its other lines."""
    parts = []
    for path in paths:
        is_python = path.suffix == ".py"
        data = path.read_bytes()
        found = hashlib.sha256()
        for line in (_ANY_IMPORT.sub(b"", data) if is_python else data).splitlines():
            words = line.strip()
            if words and not words.startswith(b"#" if is_python else b"//"):
                found.update(line)
        parts.append(found.digest())
    return hashlib.sha256(b"".join(sorted(parts))).hexdigest()[:12]
