"""A server's JSON interface, ``/api/v1``.

    with Server(server_settings(url)) as server:
        digest = server.upload(Path("kws.tflite"))
        (job,) = server.start("verify", [digest], ["mps2_an500"], {})
        job = server.job(job.key)

A server that was reached once may be restarted: a request is repeated until it is answered, for
PATIENCE_S at most. Repeated requests do nothing twice.

All methods raise ServerError, and UsageError where the server says that the request is wrong.
"""

from __future__ import annotations

import json
import secrets
import ssl
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any
from urllib.parse import quote, urlsplit

import httpx

from utvm_deploy.base.errors import ServerError, UsageError, UtvmError
from utvm_deploy.base.files import check_regular, file_digest
from utvm_deploy.service.client.facts import RemoteJob, is_key, job_of, printable, printable_lines
from utvm_deploy.service.client.settings import EXAMPLE, ServerSettings, is_loopback, untrusted

#: Makes the arguments of one attempt.
_Arguments = Callable[[], Mapping[str, Any]]
#: How long a server that answered before may be away.
PATIENCE_S = 120.0
#: How long one answer may take in all, and how long the server may be silent.
ANSWER_S, _SILENCE_S = 120.0, 30.0
#: What a request may take for each byte that it moves: 100 kB/s at least.
BYTES_PER_S = 100_000
_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 0.2, 5.0
#: Nothing here has a longer answer in JSON.
_MOST_JSON_BYTES = 64 << 20
#: What a server, or a proxy before it, says while it is busy or restarts.
_BUSY = frozenset({502, 503, 504})


class Server:
    """A connection to a server; a context manager. ``waiting`` gets why a request waits."""

    def __init__(
        self, settings: ServerSettings, waiting: Callable[[str], None] = lambda text: None
    ) -> None:
        self.url = settings.url
        self._waiting = waiting
        self._was_reached = False
        # For plain HTTP a context that trusts nobody: httpx would read all authorities, for 20 ms.
        context = settings.tls_context() or ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        self._http = httpx.Client(
            headers={**settings.headers, "Accept-Encoding": "identity"},
            verify=context,
            timeout=_SILENCE_S,
            # A proxy is for servers elsewhere.
            trust_env=not is_loopback(urlsplit(settings.url).hostname or ""),
        )

    def __enter__(self) -> Server:
        return self

    def __exit__(self, *_: object) -> None:
        self._http.close()

    def upload(self, path: Path) -> str:
        """Give the server a model, unless it has it; returns its SHA-256. Raises OSError, too."""
        check_regular(path)
        digest, size = file_digest(path), path.stat().st_size
        status, body = self._answer("GET", f"models/{digest}", absent_status=404)
        known = _object(body) if status < 300 else None
        # The name of a file becomes the prefix of its C symbols.
        if isinstance(known, dict) and known.get("name") == path.name:
            return digest

        with path.open("rb") as file:

            def send() -> Mapping[str, Any]:
                file.seek(0)
                return {"files": {"file": (path.name, _Timed(file, size))}}

            answer = self._json("POST", "models", send, size=size)
        if not isinstance(answer, dict) or answer.get("sha256") != digest:
            raise ServerError(f"{path} reached the server damaged, or changed meanwhile; repeat it")
        return digest

    def start(
        self, verb: str, models: Sequence[str], boards: Sequence[str], options: Mapping[str, Any]
    ) -> list[RemoteJob]:
        """A job for each board."""
        body = {"verb": verb, "models": list(models), "boards": list(boards), "options": options}
        # The server knows a repeated request by this.
        headers = {"Idempotency-Key": secrets.token_hex(16)}
        answer = self._json("POST", "jobs", lambda: {"json": body, "headers": headers})
        return [job_of(job) for job in _list(answer)]

    def job(self, key: str) -> RemoteJob:
        """The job with this key."""
        return job_of(self._get(f"jobs/{_checked(key)}"))

    def jobs(self, most: int, **wanted: str) -> list[RemoteJob]:
        """The newest jobs, the newest first. ``wanted``: state, board, verb, a model's SHA-256."""
        query = {name: value for name, value in wanted.items() if value}
        return [job_of(job) for job in _list(self._get("jobs", limit=str(most), **query))]

    def log(self, key: str) -> str:
        """What a job wrote to stderr: of a job that runs, so far."""
        _, body = self._answer("GET", f"jobs/{_checked(key)}/log")
        return printable_lines(body.decode("utf-8", "replace")).rstrip()

    def cancel(self, key: str) -> RemoteJob:
        """End a job. One that has ended stays as it is."""
        return job_of(self._json("POST", f"jobs/{_checked(key)}/cancel", dict))

    def boards(self) -> dict[str, int]:
        """Each board that the server knows, and how many of it workers offer now."""
        found = {}
        for one in _list(self._get("boards")):
            name, count = (one.get("name"), one.get("count")) if isinstance(one, dict) else (0, 0)
            if not isinstance(name, str) or not isinstance(count, int):
                raise _stranger()
            found[printable(name)] = count
        return found

    def session_facts(self, board: str, template: str) -> Mapping[str, Any]:
        """What it knows of a board. ServerError if there can be no session on it."""
        answer = self._get(f"boards/{quote(board, safe='')}/session", template=template)
        if not isinstance(answer, dict):
            raise _stranger()
        return answer

    @contextmanager
    def reading(self, key: str, name: str, start: int) -> Iterator[tuple[int, Iterator[bytes]]]:
        """A job's file from a byte on: the byte at which the answer begins, and its pieces.

        One attempt, whose pieces raise LostAnswer. The caller repeats it.
        """
        url = f"{self.url}/api/v1/jobs/{_checked(key)}/files/{quote(name, safe='')}"
        headers = {"Range": f"bytes={start}-"} if start else {}
        with _lost(), self._http.stream("GET", url, headers=headers) as answer:
            if answer.status_code >= 400:
                body = _body(answer, time.monotonic() + ANSWER_S)
                raise self._failure(answer.status_code, body)
            self._was_reached = True
            yield (start if answer.status_code == 206 else 0), answer.iter_raw()

    def repeated(self, attempt: Callable[[], Any]) -> Any:
        """The result of ``attempt``, which is repeated while it raises LostAnswer.

        Of a server that never answered the first attempt is the last.
        """
        deadline: float | None = None
        pause = _FIRST_PAUSE_S
        while True:
            try:
                return attempt()
            except LostAnswer as lost:
                now = time.monotonic()
                if not self._was_reached:
                    raise ServerError(
                        f"{self.url} does not answer: {lost}; is the address right, and does "
                        "`utvm serve` run there?"
                    ) from lost
                if deadline is None:
                    deadline = now + PATIENCE_S
                    self._waiting(f"{self.url} does not answer ({lost}); waiting for it")
                if now + pause > deadline:
                    raise ServerError(
                        f"{self.url} has not answered for {PATIENCE_S:.0f} s: {lost}; its jobs "
                        "continue when it is back; `utvm jobs` shows them"
                    ) from lost
                time.sleep(pause)
                pause = min(2 * pause, _LONGEST_PAUSE_S)

    def _get(self, path: str, **query: str) -> Any:
        return self._json("GET", path, lambda: {"params": query})

    def _json(self, method: str, path: str, arguments: _Arguments, *, size: int = 0) -> Any:
        """The object of an answer."""
        return _object(self._answer(method, path, arguments, size=size)[1])

    def _answer(
        self,
        method: str,
        path: str,
        arguments: _Arguments = dict,
        *,
        size: int = 0,
        absent_status: int = 0,
    ) -> tuple[int, bytes]:
        """Status and body of an answer that is good, or has ``absent_status``."""

        def attempt() -> tuple[int, bytes]:
            deadline = time.monotonic() + ANSWER_S + size / BYTES_PER_S
            url = f"{self.url}/api/v1/{path}"
            with _lost(), self._http.stream(method, url, **arguments()) as answer:
                body = _body(answer, deadline)
            if answer.status_code >= 300 and answer.status_code != absent_status:
                raise self._failure(answer.status_code, body)
            self._was_reached = True
            return answer.status_code, body

        status, body = self.repeated(attempt)
        return status, body

    def _failure(self, status: int, body: bytes) -> Exception:
        """LostAnswer if the same request may be answered later."""
        refusal, is_ours = _refusal(status, body)
        self._was_reached = self._was_reached or is_ours
        return LostAnswer(str(refusal)) if status in _BUSY else refusal


class LostAnswer(Exception):
    """The server could not be reached, or went away; what was asked may be asked again."""


@contextmanager
def _lost() -> Iterator[None]:
    try:
        yield
    except httpx.TransportError as error:
        cause: BaseException | None = error
        while cause is not None:
            if isinstance(cause, ssl.SSLCertVerificationError):
                raise untrusted(cause) from error
            cause = cause.__context__
        raise LostAnswer(printable(str(error)) or type(error).__name__) from error
    except (httpx.InvalidURL, UnicodeError) as error:  # of names that no host can have
        raise ServerError(
            f"the server's address cannot be used: {printable(str(error))}; give one such as "
            f"{EXAMPLE}"
        ) from error


def _body(answer: httpx.Response, deadline: float) -> bytes:
    body = b""
    for piece in answer.iter_raw():
        body += piece
        if len(body) > _MOST_JSON_BYTES:
            raise _stranger()
        if time.monotonic() > deadline:
            raise LostAnswer("the answer takes too long")
    return body


class _Timed:
    """A file whose upload has a deadline, also if the receiver is slow."""

    def __init__(self, file: IO[bytes], size: int) -> None:
        self._file = file
        self._deadline = time.monotonic() + ANSWER_S + size / BYTES_PER_S

    def __getattr__(self, name: str) -> Any:
        return getattr(self._file, name)

    def read(self, size: int = -1) -> bytes:
        """Of the file. Raises LostAnswer after the deadline."""
        if time.monotonic() > self._deadline:
            raise LostAnswer("the upload takes too long")
        return self._file.read(size)


def _object(body: bytes) -> Any:
    try:
        return json.loads(body)
    except (ValueError, RecursionError) as error:
        raise _stranger() from error


def _refusal(status: int, body: bytes) -> tuple[UtvmError, bool]:
    """What the server answers instead, as the error that it is here; whether utvm says it."""
    try:
        answer = json.loads(body)
        kind, text = str(answer["kind"]), printable(answer["error"])
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return _stranger(f" (status {status})"), False
    if status == 401:
        return ServerError(
            f"the server refuses: {text}; it belongs into UTVM_TOKEN or a file"
        ), True
    return UsageError(text) if kind == "UsageError" else ServerError(text), True


def _stranger(detail: str = "") -> ServerError:
    return ServerError(
        f"what answers at this address is not a server of utvm{detail}; give the address that "
        "`utvm serve` printed"
    )


def _list(answer: Any) -> list[Any]:
    if not isinstance(answer, list):
        raise _stranger()
    return answer


def _checked(key: str) -> str:
    try:
        return is_key(key)
    except ValueError as error:
        raise UsageError(f"{error}: a job's key, as `utvm jobs` lists them") from error
