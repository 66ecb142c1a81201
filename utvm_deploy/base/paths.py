"""Where the package's data and the user's cache are; the only module that knows."""

from __future__ import annotations

import os
from pathlib import Path

from utvm_deploy.base.errors import UtvmError

_PACKAGE = Path(__file__).resolve().parents[1]


def data_dir(kind: str) -> Path:
    """The folder of shipped data of one kind: ``boards``, ``docs``, ``templates`` or ``models``.

    In a checkout they are next to the package, in an installed wheel inside it.
    """
    installed = _PACKAGE / "data" / kind
    return installed if installed.is_dir() else _PACKAGE.parent / kind


def records_file(core: str) -> Path:
    """The records that ship for a core, if there are any."""
    return _PACKAGE / "kernels" / "data" / f"{core}.jsonl"


def estimates_file(core: str) -> Path:
    """The constants of formulas for a core's kernels, if they were fitted."""
    return _PACKAGE / "targets" / "estimates" / f"{core}.json"


def runtime_dir() -> Path:
    """The folder of the C runtime's sources."""
    return _PACKAGE / "runtime"


def cache_dir() -> Path:
    """Where built images are kept between runs: ``UTVM_CACHE``, else the user's cache folder."""
    configured = os.environ.get("UTVM_CACHE")
    if configured:
        return Path(configured)
    return _user_folder("XDG_CACHE_HOME", ".cache", "UTVM_CACHE", "keep images in")


def runs_file() -> Path:
    """The database of runs: ``UTVM_RUNS``, else in the user's folder of data."""
    configured = os.environ.get("UTVM_RUNS")
    if configured:
        return Path(configured)
    folder = _user_folder("XDG_DATA_HOME", ".local/share", "UTVM_RUNS", "keep runs in")
    return folder / "runs.sqlite"


def token_file() -> Path:
    """The file with the token for servers, in the user's folder of settings."""
    folder = _user_folder("XDG_CONFIG_HOME", ".config", "UTVM_TOKEN", "find the token in")
    return folder / "token"


def _user_folder(variable: str, default: str, ours: str, purpose: str) -> Path:
    """Our folder in one of the user's folders, which a variable of the XDG standard may name."""
    base = os.environ.get(variable)
    if base:
        return Path(base) / "utvm_deploy"
    try:
        return Path.home() / default / "utvm_deploy"
    except RuntimeError as error:  # no HOME, and a user without an entry, usually in a container
        raise UtvmError(f"no home folder is known to {purpose}; set {ours}") from error
