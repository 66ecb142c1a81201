"""A server in this process, without a network, for the tests of sessions."""

from __future__ import annotations

from collections import deque

from utvm_deploy.base.errors import LinkTimeout
from utvm_deploy.boards.board import Board, load_board
from utvm_deploy.device import Device
from utvm_deploy.device.probe import choose_link
from utvm_deploy.service.client.remote_board import RemoteBoard, RemoteLauncher
from utvm_deploy.service.client.session_exchange import Transport
from utvm_deploy.service.cluster.session_child import BoardService


class DirectTransport:
    """Requests are answered when they are sent, by what a worker's process runs."""

    def __init__(self, service: BoardService) -> None:
        self.service = service
        self._replies: deque[bytes] = deque()

    def send(self, data: bytes) -> None:
        self._replies.append(self.service.answer(data))

    def receive(self, timeout_s: float) -> bytes:
        if not self._replies:
            raise LinkTimeout("nothing came")
        return self._replies.popleft()

    def close(self) -> None:
        self.service.close()


class DirectServer:
    """A ``client.remote_board.Server`` whose boards run in this process."""

    url = "utvm://direct"

    def __init__(self) -> None:
        self.transports: list[DirectTransport] = []

    def check_board(self, board: Board) -> None:
        pass

    def open(self, board: Board) -> Transport:
        transport = DirectTransport(BoardService(load_board(board.name)))
        self.transports.append(transport)
        return transport


def remote_device(
    server: DirectServer, board: str, link: str | None = None, *, cycle_model: bool = False
) -> Device:
    found = load_board(board)
    kind = choose_link(found, link)
    return Device(found, RemoteLauncher(found, server, kind, cycle_model))


def round_trips(device: Device) -> int:
    """How many requests went to the board so far."""
    assert isinstance(device._started, RemoteBoard)
    return device._started.exchange.round_trips
