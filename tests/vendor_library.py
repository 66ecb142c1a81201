"""The example's vendor library, copied to a folder and built there as its vendor would."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path

EXAMPLES = Path(__file__).resolve().parents[1] / "examples" / "backends"
COMPILE_TIMEOUT_S = 60
FOR_HOST = ("-fno-pie",)


def vendor_plugin(
    folder: Path,
    flags: tuple[str, ...] = FOR_HOST,
    *,
    prefix: str = "",
    changes: Mapping[str, tuple[str, str]] | None = None,
) -> Path:
    """The plug-in of a copy whose library is built, for this computer or by a cross compiler.

    ``changes`` are of the copy: file -> (old text, new text).
    """
    shutil.copytree(EXAMPLES / "vendor_dense", folder)
    for name, (old, new) in (changes or {}).items():
        text = (folder / name).read_text()
        assert old in text, f"{name} has no {old!r}"
        (folder / name).write_text(text.replace(old, new))
    compiler = f"{prefix}gcc" if prefix else "cc"
    for command in (
        [compiler, "-Wall", "-Wextra", "-Werror", "-O2", *flags, "-c", "vendor_dense.c"],
        [f"{prefix}ar", "rcs", "libvendor_dense.a", "vendor_dense.o"],
    ):
        subprocess.run(command, cwd=folder, check=True, timeout=COMPILE_TIMEOUT_S)
    return folder / "plugin.py"
