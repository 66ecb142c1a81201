"""Takes out of texts what says whose computer this is: paths, user, host, serial numbers."""

from __future__ import annotations

import contextlib
import getpass
import os
import re
import socket
import tempfile
from collections.abc import Iterable
from pathlib import Path

from utvm_deploy.base.errors import UtvmError
from utvm_deploy.base.paths import cache_dir

#: The replacement for something private.
HIDDEN = "(hidden)"
#: As much of an error as a report keeps.
MOST_CHARACTERS = 1000
#: Shorter names are found in ordinary words.
_SHORTEST = 2

# A path from the root, from the home folder or from a drive; its last part stays.
_PATH = re.compile(r"(?<![\w./~:])(?:~|[A-Za-z]:)?(?:[/\\][^\s/\\'\",;:()]+)+[/\\]?")
_LAST = re.compile(r"[^/\\]+(?=[/\\]?$)")


class Cleaner:
    """Cleans texts for a report; ``secrets`` are further texts to hide, such as serial numbers."""

    def __init__(self, *, folders: Iterable[Path] = (), secrets: Iterable[str] = ()) -> None:
        self._folders = sorted({*_own_folders(), *map(str, folders)} - {"/", "."}, key=len)[::-1]
        wanted = {*_own_names(), *secrets}
        self._secrets = sorted((s for s in wanted if len(s) >= _SHORTEST), key=len)[::-1]

    def __call__(self, text: str) -> str:
        """One printable line without anything private."""
        text = "".join(c if c.isprintable() else " " for c in text)
        for folder in self._folders:
            for separator in ("/", "\\"):
                text = text.replace(f"{folder}{separator}", "")
        text = _PATH.sub(_last_part, text)
        for secret in self._secrets:
            text = re.sub(rf"(?<!\w){re.escape(secret)}(?!\w)", HIDDEN, text, flags=re.IGNORECASE)
        return text[:MOST_CHARACTERS]


def _last_part(match: re.Match[str]) -> str:
    last = _LAST.search(match.group())
    return last.group() if last else HIDDEN


def _own_folders() -> set[str]:
    """Folders whose names may hold spaces, which a pattern would not see."""
    found = {str(Path.cwd()), tempfile.gettempdir(), os.path.expanduser("~")}
    with contextlib.suppress(UtvmError):  # there is none
        found.add(str(cache_dir()))
    return found


def _own_names() -> set[str]:
    names = {socket.gethostname(), socket.gethostname().partition(".")[0]}
    with contextlib.suppress(OSError, KeyError):  # a user without a name: a container's, mostly
        names.add(getpass.getuser())
    return names
