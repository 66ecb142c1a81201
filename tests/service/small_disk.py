"""A file system of a few bytes, where the tests may mount one."""

from __future__ import annotations

import contextlib
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest


@contextlib.contextmanager
def small_disk(place: Path, size: int) -> Iterator[Path]:
    """A new folder with room for ``size`` bytes; skips the test where nothing may be mounted."""
    place.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", str(place)]
    try:
        done = subprocess.run(mount, capture_output=True, text=True)
        refusal = done.stderr.strip()
    except FileNotFoundError as error:
        refusal = str(error)
    if refusal:
        pytest.skip(f"these tests may not mount a file system: {refusal}")
    try:
        yield place
    finally:
        subprocess.run(["umount", str(place)], check=True)
