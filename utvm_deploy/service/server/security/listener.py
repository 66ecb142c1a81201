"""The socket that the server listens at, with a limit of connections.

asyncio alone takes connections until the process may open no more files, also those that never
finish TLS's handshake. Then nothing else works either: no job, no database.
"""

from __future__ import annotations

import socket
from typing import Any

#: More are closed at once. Pages that follow a job hold one each.
MOST_CONNECTIONS = 512


class Listener(socket.socket):
    """For one thread. Close connections explicitly: it knows them until then."""

    def __init__(self, family: int, kind: int, protocol: int) -> None:
        super().__init__(family, kind, protocol)
        self._taken: list[socket.socket] = []

    def accept(self) -> tuple[socket.socket, Any]:
        """The next connection. Raises ConnectionAbortedError if there are too many."""
        connection, address = super().accept()
        self._taken = [one for one in self._taken if one.fileno() >= 0]
        if len(self._taken) >= MOST_CONNECTIONS:
            connection.close()
            raise ConnectionAbortedError(f"{MOST_CONNECTIONS} connections are open")
        self._taken.append(connection)
        return connection, address
