"""Addresses of schedulers: who may be talked to, and where may be listened, without encryption.

A scheduler runs what anybody who reaches it sends. So beyond this machine it needs TLS.
"""

from __future__ import annotations

import ipaddress
import re
import socket
from dataclasses import dataclass
from pathlib import Path

from utvm_deploy.base.errors import ClusterError

#: Where schedulers listen if nothing else is said; Dask's own default.
DEFAULT_PORT = 8786

_ADDRESS = re.compile(r"(tcp|tls)://(\[[0-9A-Fa-f:.]+\]|[^\s\[\]:/]+):([0-9]{1,5})/?")


@dataclass(frozen=True)
class Place:
    """A host and a port."""

    host: str
    port: int

    @property
    def in_address(self) -> str:
        """The host as it is written before a port: an IPv6 address has brackets."""
        return f"[{self.host}]" if ":" in self.host else self.host


def check_address(address: str, certificates: Path | None) -> None:
    """Raise ClusterError unless the scheduler there may be talked to."""
    match = _ADDRESS.fullmatch(address)
    if match is None or int(match[3]) >= 1 << 16:
        raise ClusterError(
            f"{address!r} is not a scheduler's address; write tls://HOST:PORT, or tcp://HOST:PORT "
            "on this machine"
        )
    if match[1] == "tls" and certificates is None:
        raise ClusterError(
            f"{address} needs certificates; give the folder with its scheduler's certificates "
            "(--certificates DIR)"
        )
    if match[1] == "tcp" and certificates is not None:
        raise ClusterError(
            f"{address} is not encrypted, so certificates have no use there; write tls:// if its "
            "scheduler has them, else leave them out"
        )
    if match[1] == "tcp" and not is_loopback(match[2]):
        raise ClusterError(
            f"{address} is another machine, and tcp:// is not encrypted; start its scheduler with "
            "certificates and write tls://"
        )


def check_listen(listen: str, certificates: Path | None) -> Place:
    """HOST or HOST:PORT as a place; ClusterError beyond this machine without certificates."""
    host, port = listen, DEFAULT_PORT
    match = re.fullmatch(r"(\[[0-9A-Fa-f:.]+\]|[^\s\[\]:/]+)(?::([0-9]{1,5}))?", listen)
    if match is not None:
        host, port = match[1].strip("[]"), int(match[2] or DEFAULT_PORT)
    elif ":" not in listen or not _is_address(listen):  # an IPv6 address needs no brackets
        port = -1
    if not 0 <= port < 1 << 16:
        raise ClusterError(f"{listen!r} is not HOST or HOST:PORT; correct where to listen")
    if certificates is None and not is_loopback(host):
        raise ClusterError(
            f"a scheduler on {host} would run what anybody sends it; make certificates (utvm serve "
            "--make-certificates DIR) and give their folder (--certificates DIR)"
        )
    return Place(host, port)


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach that host; False for a name that is not known."""
    try:
        found = socket.getaddrinfo(host.strip("[]"), None, type=socket.SOCK_STREAM)
    except OSError:
        return False
    return all(ipaddress.ip_address(str(one[4][0]).split("%")[0]).is_loopback for one in found)


def _is_address(text: str) -> bool:
    try:
        ipaddress.ip_address(text)
    except ValueError:
        return False
    return True
