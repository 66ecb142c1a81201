"""Who may use the server: the token, sessions of browsers, names of hosts, wrong attempts."""

from __future__ import annotations

import hashlib
import hmac
import secrets
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Protocol
from urllib.parse import urlsplit

#: How long a browser stays logged in.
SESSION_S = 7 * 24 * 3600
#: How many wrong tokens an address may send within how many seconds.
MOST_WRONG = 10
WRONG_WINDOW_S = 60.0
#: Addresses whose wrong tokens are remembered; the oldest are forgotten.
_MOST_ADDRESSES = 4096
#: Names of this computer that need no look-up elsewhere.
_LOOPBACK_NAMES = frozenset({"localhost", "127.0.0.1", "::1"})


class LoginStore(Protocol):
    """Keeps over a restart which logins were ended; a ``service.database.Database``."""

    def ended_logins(self, now: float) -> tuple[int, dict[str, float]]:
        """How often all were ended, and the others that were ended with when they expire."""

    def end_login(self, login: str, expires: float) -> None:
        """One login is over."""

    def end_all_logins(self, now: float) -> None:
        """All logins so far are over."""


class Logins:
    """Which logins of browsers were ended before their time. Threads may share it."""

    def __init__(self) -> None:
        self._store: LoginStore | None = None
        self._lock = threading.Lock()
        self._ended: dict[str, float] = {}
        #: How often all of them were ended: cookies are signed with it.
        self.generation = 0

    def keep_in(self, store: LoginStore) -> None:
        """Take what is stored, and store what is ended from now on."""
        self.generation, self._ended = store.ended_logins(time.time())
        self._store = store

    def is_ended(self, login: str) -> bool:
        """Whether this one was ended by itself."""
        return login in self._ended

    def end(self, login: str, expires: float) -> None:
        """One login is over: its cookie and all copies of it."""
        with self._lock:
            if self._store is not None:
                self._store.end_login(login, expires)
            self._ended[login] = expires

    def end_all(self) -> None:
        """All logins so far are over."""
        with self._lock:
            if self._store is not None:
                self._store.end_all_logins(time.time())
            self.generation += 1
            self._ended = {}


@dataclass(frozen=True)
class Access:
    """What a request must show."""

    token: str | None = field(default=None, repr=False)  # None: nothing
    is_encrypted: bool = False
    #: Hosts that requests may be addressed to; None: TLS proves the server's name.
    hosts: frozenset[str] | None = _LOOPBACK_NAMES
    logins: Logins = field(default_factory=Logins, compare=False, repr=False)

    def is_token(self, given: str) -> bool:
        """Whether this is the token. The time that it takes says nothing about the token."""
        return self.token is not None and _equal(given, self.token)

    def session(self) -> str:
        """A new cookie for a browser that gave the token."""
        facts = f"{int(time.time()) + SESSION_S}.{secrets.token_hex(16)}"
        return f"{facts}.{self._mark(facts)}"

    def is_session(self, cookie: str) -> bool:
        """Whether the server gave this cookie, for the token of today, and it is not over."""
        found = self._login(cookie)
        return found is not None and not self.logins.is_ended(found[0])

    def end_session(self, cookie: str) -> None:
        """The login of this cookie is over. A cookie of somebody else's making is ignored."""
        found = self._login(cookie)
        if found is not None:
            self.logins.end(*found)

    def _login(self, cookie: str) -> tuple[str, float] | None:
        """The name of a cookie's login and when it expires; None if that is over or was never."""
        facts, _, mark = cookie.rpartition(".")
        if self.token is None or not _equal(mark, self._mark(facts)):
            return None
        expires, _, login = facts.partition(".")
        return (login, float(expires)) if int(expires) > time.time() else None

    def is_here(self, host: str) -> bool:
        """Whether the Host header names this server.

        A page of somebody else's may let its own name lead to this computer. Then the browser
        takes the server for a part of that page, but the header has the name.
        """
        if self.hosts is None:
            return True
        try:
            return urlsplit(f"//{host}").hostname in self.hosts
        except ValueError:
            return False

    def _mark(self, facts: str) -> str:
        generation = self.logins.generation
        key = f"session {f'{generation} ' if generation else ''}of {self.token}".encode()
        return hmac.new(key, facts.encode("utf-8", "replace"), hashlib.sha256).hexdigest()


def access_of(token: str | None, host: str, *, is_encrypted: bool) -> Access:
    """What requests to a server at ``host`` must show."""
    hosts = None if is_encrypted else _LOOPBACK_NAMES | {host.lower()}
    return Access(token, is_encrypted, hosts)


def _equal(given: str, known: str) -> bool:
    return hmac.compare_digest(given.encode("utf-8", "replace"), known.encode())


@dataclass(frozen=True)
class Refusal:
    """Why a request goes no further."""

    status: int
    kind: str
    error: str
    headers: Mapping[str, str] = field(default_factory=dict)


class Judge:
    """Looks at tokens, and counts the wrong ones by address.

    The right token passes, however many wrong ones its address sent: on loopback all users of a
    computer have one address. A token is too long to be guessed (``token_file``); the limit keeps
    a program with a wrong one from asking all the time.
    """

    def __init__(self, access: Access, clock: Callable[[], float] = time.monotonic) -> None:
        self._access = access
        self._clock = clock
        self._wrong: OrderedDict[str, list[float]] = OrderedDict()
        self._lock = threading.Lock()

    def look(self, token: str, address: str) -> Refusal | None:
        """What is wrong with a token from an address; None if it is right."""
        # Attempts at the same time may not count as one.
        with self._lock:
            return self._look(token, address)

    def _look(self, token: str, address: str) -> Refusal | None:
        if self._access.is_token(token):
            return None
        recent = self._recent(address)
        if len(recent) >= MOST_WRONG:
            wait_s = int(recent[0] + WRONG_WINDOW_S - self._clock()) + 1
            text = f"many wrong tokens came from {address}; give the right one or wait {wait_s} s"
            return Refusal(429, "TooManyWrongTokens", text, {"retry-after": str(wait_s)})
        self._wrong[address] = [*recent, self._clock()]
        self._wrong.move_to_end(address)
        while len(self._wrong) > _MOST_ADDRESSES:
            self._wrong.popitem(last=False)
        text = "the token is wrong; take the one of this server"
        return Refusal(401, "WrongToken", text, {"www-authenticate": "Bearer"})

    def _recent(self, address: str) -> list[float]:
        start = self._clock() - WRONG_WINDOW_S
        return [at for at in self._wrong.get(address, ()) if at > start]
