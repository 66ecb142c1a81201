"""Where the server is, and what its clients prove who they are with.

The token is a secret. It comes from UTVM_TOKEN or a file, never from the command line, where every
user of the computer can read it.
"""

from __future__ import annotations

import ipaddress
import os
import ssl
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import SplitResult, urlsplit

from utvm_deploy.base.errors import ServerError
from utvm_deploy.base.paths import token_file

#: What ``utvm serve`` listens on, and what an address without a port means.
DEFAULT_PORT = 8086
#: The certificate of the authority, in the folder that ``serve --make-certificates`` fills.
AUTHORITY_FILE = "authority.pem"

#: An address of a server, for messages.
EXAMPLE = "https://bench.example.org:8086"
#: A longer file is none that holds a token.
_LONGEST_TOKEN = 4096


@dataclass(frozen=True)
class ServerSettings:
    """A server and how to speak to it."""

    url: str  # without a slash at its end, such as "http://127.0.0.1:8086"
    # The secret; None on loopback, where a server needs none. Never shown.
    token: str | None = field(default=None, repr=False)
    # Who vouches for the server's certificate; None: whom this computer trusts anyway.
    authority: Path | None = None

    @property
    def headers(self) -> dict[str, str]:
        """What every request carries."""
        return {"Authorization": f"Bearer {self.token}"} if self.token else {}

    def tls_context(self) -> ssl.SSLContext | None:
        """What checks the server's certificate; None for plain HTTP."""
        if not self.url.startswith("https:"):
            return None
        if self.authority is None:
            return ssl.create_default_context()
        try:
            return ssl.create_default_context(cafile=self.authority)
        except (OSError, ssl.SSLError) as error:
            raise ServerError(
                f"{self.authority} is not a certificate of an authority ({error}); set "
                "UTVM_CERTIFICATES to the folder that `utvm serve --make-certificates` made"
            ) from error


def server_settings(url: str | None = None) -> ServerSettings:
    """The server of ``--server`` or UTVM_SERVER, with the token and the authority.

    ServerError if no server is named, or if the token would cross a network unencrypted.
    """
    text = url or os.environ.get("UTVM_SERVER")
    if not text:
        raise ServerError(
            f"no server is named; give --server URL or set UTVM_SERVER, such as {EXAMPLE}"
        )
    parts = _parsed(text)
    assert parts.hostname is not None
    token = _token()
    if token and parts.scheme == "http" and not is_loopback(parts.hostname):
        raise ServerError(f"{text} would send the token unencrypted over the network; use https://")
    return ServerSettings(
        f"{parts.scheme}://{parts.netloc}{parts.path.rstrip('/')}", token, _authority()
    )


def missing_packages() -> ServerError:
    """What is said where the packages for clients are not installed."""
    return ServerError(
        "clients of a server need packages that are not installed; "
        "run pip install 'utvm-deploy[client]'"
    )


def untrusted(error: ssl.SSLCertVerificationError) -> ServerError:
    """What is said of a server whose certificate nobody vouches for."""
    return ServerError(
        f"the server's certificate is not trusted ({error.verify_message}); set UTVM_CERTIFICATES "
        "to the folder with its authority.pem"
    )


def is_loopback(host: str) -> bool:
    """Whether what is sent there stays on this computer."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _parsed(text: str) -> SplitResult:
    try:
        parts = urlsplit(text)
        host, _ = parts.hostname, parts.port
    except ValueError as error:
        raise ServerError(f"{text!r} is not a server's address ({error})") from error
    if parts.scheme not in ("http", "https") or not host or parts.query or parts.fragment:
        raise ServerError(f"{text!r} is not a server's address; give one such as {EXAMPLE}")
    if "@" in parts.netloc:
        raise ServerError(
            "the server's address has a user or password in it; leave that out and put the token "
            "into UTVM_TOKEN"
        )
    return parts


def _token() -> str | None:
    """UTVM_TOKEN, else the contents of the token file; None if there is neither."""
    token = os.environ.get("UTVM_TOKEN", "").strip()
    where = "UTVM_TOKEN"
    if not token:
        named = os.environ.get("UTVM_TOKEN_FILE")
        path = Path(named) if named else token_file()
        where = str(path)
        try:
            with path.open("rb") as file:
                token = file.read(_LONGEST_TOKEN).decode("ascii", "replace").strip()
        except FileNotFoundError:
            if named is None:
                return None
            raise ServerError(f"UTVM_TOKEN_FILE names {path}, which does not exist") from None
        except OSError as error:
            raise ServerError(f"cannot read the token in {path}: {error.strerror}") from error
    # Only what a header may hold. The token itself is not shown.
    if not token or not all("!" <= letter <= "~" for letter in token):
        raise ServerError(f"{where} holds no token; put the one line in it that the server gave")
    return token


def _authority() -> Path | None:
    folder = os.environ.get("UTVM_CERTIFICATES")
    if not folder:
        return None
    path = Path(folder) / AUTHORITY_FILE
    if not path.is_file():
        raise ServerError(
            f"UTVM_CERTIFICATES names {folder}, which has no {AUTHORITY_FILE}; name the folder "
            "that `utvm serve --make-certificates` made"
        )
    return path
