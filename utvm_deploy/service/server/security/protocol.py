"""The HTTP protocol of uvicorn, with deadlines.

uvicorn alone waits forever for a request's headers, and for a client that reads nothing of its
answer. So a few clients could use up all connections.
"""

from __future__ import annotations

import asyncio
from typing import Any

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

#: From the start of a connection, or of its next request, until all headers are there.
HEADER_TIMEOUT_S = 15.0
#: A client that takes nothing of its answer for so long is given up.
WRITE_TIMEOUT_S = 60.0


class GuardedProtocol(H11Protocol):
    """One connection."""

    _deadline: asyncio.TimerHandle | None = None
    _write_deadline: asyncio.TimerHandle | None = None
    _is_upgraded = False

    def connection_made(self, transport: Any) -> None:
        """Start the deadline."""
        super().connection_made(transport)
        self._arm()

    def connection_lost(self, exc: Exception | None) -> None:
        """Nothing is waited for any more."""
        self._disarm()
        self._taken()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Bytes end the deadline only if they end the headers."""
        super().data_received(data)
        if self.cycle is not None and not self.cycle.response_complete:
            self._disarm()
        elif self._deadline is None and not self._is_upgraded:
            self._arm()

    def on_response_complete(self) -> None:
        """A client that was answered early may send the rest of its body, for a while."""
        super().on_response_complete()
        if self.conn.their_state is h11.SEND_BODY and self._deadline is None:
            self._arm()

    def pause_writing(self) -> None:
        """The client takes less than it is sent."""
        super().pause_writing()
        if self._write_deadline is None:
            self._write_deadline = self.loop.call_later(WRITE_TIMEOUT_S, self.transport.abort)

    def resume_writing(self) -> None:
        """The client has taken what was sent."""
        self._taken()
        super().resume_writing()

    def handle_websocket_upgrade(self, event: Any) -> None:
        """From here on another protocol has the connection."""
        self._is_upgraded = True
        self._disarm()
        super().handle_websocket_upgrade(event)

    def _arm(self) -> None:
        self._deadline = self.loop.call_later(HEADER_TIMEOUT_S, self._late)

    def _disarm(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None

    def _taken(self) -> None:
        if self._write_deadline is not None:
            self._write_deadline.cancel()
            self._write_deadline = None

    def _late(self) -> None:
        self._deadline = None
        self.transport.abort()
