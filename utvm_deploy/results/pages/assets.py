"""Styles and scripts that a server's pages load, by their digest: browsers may keep them."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from functools import cache
from importlib.resources import files

_TYPES = {
    "css": "text/css; charset=utf-8",
    "js": "text/javascript; charset=utf-8",
    "svg": "image/svg+xml",
}
#: Name -> the file in ``templates``.
_FILES = {
    "style.css": "style.css",
    "table.js": "table.js",
    "try.css": "try.css",
    "net.js": "net.js",
    "try_it.js": "try_it.js",
    "service.css": "service/service.css",
    "icon.svg": "service/icon.svg",
    "live.js": "service/live.js",
    "start.js": "service/start.js",
}


@dataclass(frozen=True)
class Asset:
    """A file that pages load."""

    name: str
    content: bytes
    digest: str
    media_type: str

    @property
    def path(self) -> str:
        """Of its URL; another content has another path."""
        return f"/static/{self.digest}/{self.name}"


@cache
def assets() -> dict[str, Asset]:
    """All of them, by name."""
    return {name: _read(name, place) for name, place in _FILES.items()}


def _read(name: str, place: str) -> Asset:
    content = files("utvm_deploy.results.pages").joinpath("templates").joinpath(place).read_bytes()
    digest = hashlib.sha256(content).hexdigest()[:16]
    return Asset(name, content, digest, _TYPES[name.rpartition(".")[2]])
