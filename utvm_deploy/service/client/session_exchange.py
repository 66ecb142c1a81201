"""Requests to a board elsewhere and their replies, one at a time."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable
from typing import Any, Protocol

from utvm_deploy.base.errors import DeviceError, LinkClosed, LinkError, LinkTimeout
from utvm_deploy.service.client.session_errors import error_of, shown
from utvm_deploy.service.client.session_messages import (
    MESSAGE_BYTES,
    Message,
    check_reply,
    decode,
    encode,
)

_MOST_REASON = 2000


class Transport(Protocol):
    """Moves whole messages. Every failure is a LinkError."""

    def send(self, data: bytes) -> None:
        """Send a message; LinkTimeout if the other end does not take it."""

    def receive(self, timeout_s: float) -> bytes:
        """The next message; LinkTimeout if none came in time, LinkClosed if none ever will."""

    def close(self) -> None:
        """Let go. May be called again."""


class Exchange:
    """A session's requests. ``where`` names the board and the server, for errors."""

    def __init__(self, where: str, place_of: Callable[[int], str]) -> None:
        self.where = where
        #: Requests sent, each of which took one way there and back.
        self.round_trips = 0
        self._place_of = place_of
        self._transport: Transport | None = None
        # Until when the other end may be busy with a request that nobody waits for any more.
        self._busy_until_s = 0.0

    @property
    def is_open(self) -> bool:
        """Whether requests can be sent."""
        return self._transport is not None

    def open(self, transport: Transport) -> None:
        """Use this transport from now on; ``close`` closes it."""
        self.close()
        self._transport = transport
        self._busy_until_s = 0.0

    def close(self) -> None:
        """End the session. May be called again."""
        transport, self._transport = self._transport, None
        if transport is not None:
            transport.close()

    def ask(self, op: str, wait_s: float, body: bytes = b"", /, **fields: Any) -> Message:
        """The reply to a request; raises the error that the reply describes."""
        if self._transport is None:
            raise LinkClosed(f"the session with {self.where} has ended; connect again")
        number = self.round_trips + 1
        request = encode({"op": op, "id": number, **fields}, body)
        if len(request) > MESSAGE_BYTES:
            raise DeviceError(
                f"a request of {len(request):,} bytes is too long for a session, which takes "
                f"{MESSAGE_BYTES:,}; run fewer calls at once"
            )
        now_s = time.monotonic()
        end_s = max(now_s, self._busy_until_s) + wait_s
        self.round_trips = number
        try:
            self._transport.send(request)
            reply = self._reply(self._transport, number, end_s)
        except LinkError:
            # A late reply could be taken for the reply to the next request.
            self.close()
            raise
        except BaseException:
            # Ctrl-C: the reply may still come, and the next request waits behind it.
            self._busy_until_s = end_s
            raise
        error = reply.fields.get("error")
        if error is not None:
            raise error_of(error if isinstance(error, dict) else {}, self._place_of)
        check_reply(op, reply)
        return reply

    def _reply(self, transport: Transport, number: int, end_s: float) -> Message:
        asked_s = time.monotonic()
        while True:
            try:
                message = decode(transport.receive(max(end_s - time.monotonic(), 0)))
            except LinkTimeout:
                waited_s = time.monotonic() - asked_s
                raise LinkTimeout(
                    f"{self.where} did not answer within {waited_s:.0f} s; the session was ended"
                ) from None
            fields = message.fields
            if fields.get("session") == "ended":
                raise LinkClosed(f"the session with {self.where} ended: {reason_of(message)}")
            if fields.get("id") == number:
                return message
            # Older ones are replies to requests that Ctrl-C ended.
            given = fields.get("id")
            if type(given) is not int or not 0 < given < number:
                raise LinkError(f"{self.where} answered something that was not asked")


def reason_of(message: Message) -> str:
    """Why a session ended, as the server says."""
    reason = message.fields.get("reason")
    text = shown(reason[:_MOST_REASON]) if isinstance(reason, str) else ""
    return text or "the server did not say why"


@contextlib.contextmanager
def closing_on_error(exchange: Exchange) -> Any:
    """Ends the session if the block fails, so that the board is free."""
    try:
        yield
    except BaseException:
        exchange.close()
        raise
