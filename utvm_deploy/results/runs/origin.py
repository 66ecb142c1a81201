"""Where a run comes from: versions of the tools, and the git revision of the folder."""

from __future__ import annotations

import platform
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from utvm_deploy import __version__
from utvm_deploy.base import process
from utvm_deploy.base.errors import MissingTool

_GIT_TIMEOUT_S = 2.0
_PACKAGES = ("apache-tvm", "ai-edge-litert", "numpy")


def versions() -> dict[str, str]:
    """Versions of utvm, Python and the packages that decide what a run finds."""
    found = {"utvm": __version__, "python": platform.python_version()}
    for package in _PACKAGES:
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            continue
    return found


def git_revision(folder: Path) -> str:
    """The commit that a folder has checked out, "-dirty" behind it if files were changed.

    Empty outside a repository, and where git is missing or slow.
    """
    command = ["git", "-C", str(folder), "describe", "--always", "--dirty", "--abbrev=12"]
    try:
        done = process.run([*command, "--exclude=*"], timeout_s=_GIT_TIMEOUT_S)
    except MissingTool:
        return ""
    return done.stdout.strip() if done.returncode == 0 and not done.timed_out else ""
