"""The process that owns a board for one session: requests come in, replies go out.

    length (4 bytes, little-endian) │ message of client.session_messages

It is started with a socket and the board's name. Its end is the session's end.
"""

from __future__ import annotations

import contextlib
import io
import json
import socket
import struct
import sys
from contextlib import ExitStack
from dataclasses import asdict
from pathlib import Path
from typing import Any

from utvm_deploy import __version__
from utvm_deploy.base.errors import BoardError, DeviceError, LinkError, UtvmError
from utvm_deploy.base.temporary import TemporaryFolder
from utvm_deploy.boards.board import load_board, with_template
from utvm_deploy.boards.digest import facts_digest
from utvm_deploy.boards.facts import Board
from utvm_deploy.device.link.base import Link, Task
from utvm_deploy.device.probe import LocalLauncher, StartedBoard, check_place, choose_link
from utvm_deploy.project import Image
from utvm_deploy.service.client import session_messages
from utvm_deploy.service.client.session_errors import error_fields, mark_place
from utvm_deploy.service.client.session_server import other_facts

LENGTH = struct.Struct("<I")
_Reply = tuple[dict[str, Any], bytes]


class BoardService:
    """Answers requests about one board. ``serial`` chooses among several of one kind."""

    def __init__(self, board: Board, serial: str | None = None) -> None:
        self._board = board
        self._serial = serial
        self._resources = ExitStack()
        self._image: Path | None = None
        self._image_bytes = 0
        self._launcher: LocalLauncher | None = None
        self._started: StartedBoard | None = None

    def close(self) -> None:
        """Let go of the board. May be called again."""
        started, self._started = self._started, None
        if started is not None:
            started.close()
        self._resources.close()

    def answer(self, data: bytes) -> bytes:
        """The reply to a request; LinkError if it is none."""
        message = session_messages.decode(data)
        session_messages.check_request(message)
        number = message.fields["id"]
        try:
            fields, body = getattr(self, f"_on_{message.fields['op']}")(message)
        except UtvmError as error:
            fields, body = {"error": error_fields(error)}, b""
        return session_messages.encode({"id": number, **fields}, body)

    # Before the image runs.

    def _on_open(self, message: session_messages.Message) -> _Reply:
        fields = message.fields
        if fields["version"] != session_messages.SESSION_VERSION:
            raise BoardError(
                f"the client speaks version {fields['version']} of sessions, and this worker "
                f"(utvm_deploy {__version__}) {session_messages.SESSION_VERSION}; install the same "
                "utvm_deploy"
            )
        board = with_template(self._board, fields["template"])
        if fields["digest"] != facts_digest(board):
            raise BoardError(other_facts(board, "the worker", __version__))
        if self._started is not None or self._image is not None:
            raise BoardError("an image was sent already; begin another session for the next")
        check_place(board, serial=self._serial)
        link = choose_link(board, fields["link"])
        self._launcher = LocalLauncher(
            board, link, serial=self._serial, with_cycle_model=fields["cycle_model"]
        )
        self._launcher.check_ready()
        folder = self._resources.enter_context(TemporaryFolder("utvm-session"))
        self._image, self._image_bytes = folder / "image.elf", fields["image_bytes"]
        self._image.touch()
        return {}, b""

    def _on_image(self, message: session_messages.Message) -> _Reply:
        if self._image is None or self._started is not None:
            raise BoardError("nobody waits for a part of an image now")
        if self._image.stat().st_size + len(message.body) > self._image_bytes:
            raise BoardError(
                f"the image has more than the {self._image_bytes} bytes it was to have"
            )
        with self._image.open("ab") as file:
            file.write(message.body)
        return {}, b""

    def _on_start(self, _message: session_messages.Message) -> _Reply:
        if self._image is None or self._launcher is None or self._started is not None:
            raise BoardError("there is no image to start now")
        if self._image.stat().st_size != self._image_bytes:
            raise BoardError("a part of the image is missing")
        if self._board.is_host:
            self._image.chmod(0o700)
        image = Image(self._image, self._launcher.board)
        _check_readable(image)
        self._started = self._launcher.start(image, mark_place)
        return {}, b""

    # The primitives.

    @property
    def _link(self) -> Link:
        return self._running.link

    @property
    def _running(self) -> StartedBoard:
        if self._started is None:
            raise LinkError("no image was started in this session")
        return self._started

    def _on_hello(self, _message: session_messages.Message) -> _Reply:
        return {"hello": asdict(self._link.hello())}, b""

    def _on_regions(self, _message: session_messages.Message) -> _Reply:
        return {"regions": [asdict(region) for region in self._link.regions()]}, b""

    def _on_read(self, message: session_messages.Message) -> _Reply:
        return {}, self._link.read(message.fields["address"], message.fields["size"])

    def _on_write(self, message: session_messages.Message) -> _Reply:
        if len(message.body) > session_messages.PART_BYTES:
            raise LinkError(f"{len(message.body)} bytes are too many for one message")
        self._link.write(message.fields["address"], message.body)
        return {}, b""

    def _on_execute(self, message: session_messages.Message) -> _Reply:
        tasks = [
            Task(function, tuple(arguments), repeat, deadline_s)
            for function, arguments, repeat, deadline_s in message.fields["tasks"]
        ]
        if 8 * sum(max(task.repeat, 0) for task in tasks) > session_messages.PART_BYTES:
            raise DeviceError(
                f"more than {session_messages.PART_BYTES // 8} calls do not fit one message; run "
                "fewer"
            )
        ticks = self._link.execute(tasks, message.fields["timeout_s"])
        return {}, session_messages.pack_words([tick for of_task in ticks for tick in of_task])

    def _on_checksum(self, message: session_messages.Message) -> _Reply:
        crc = self._link.checksum(message.fields["address"], message.fields["size"])
        return {"crc": crc}, b""

    def _on_reset(self, _message: session_messages.Message) -> _Reply:
        self._link.reset()
        return {}, b""

    # Of the board itself.

    def _on_restart(self, _message: session_messages.Message) -> _Reply:
        self._running.reset()
        return {}, b""

    def _on_notes(self, _message: session_messages.Message) -> _Reply:
        return {"notes": self._running.notes()}, b""

    def _on_counted(self, message: session_messages.Message) -> _Reply:
        counted = self._running.counted(session_messages.unpack_words(message.body))
        return {}, session_messages.pack_words([value for one in counted for value in one.values])

    def _on_report(self, _message: session_messages.Message) -> _Reply:
        return {}, json.dumps(dict(self._running.report())).encode()


def _check_readable(image: Image) -> None:
    """Raise BoardError for a damaged ELF file. A client sent the file, so it may hold anything."""
    try:
        _ = image.symbols, image.load_segments
    except UtvmError:
        raise
    except Exception as error:
        # For a damaged file, the reader of ELF files may raise any exception.
        raise BoardError(f"the image is damaged ({type(error).__name__}); send it again") from error


def serve(service: BoardService, stream: io.BufferedRWPair) -> None:
    """Answer until the requests end, or until one makes no sense."""
    while True:
        head = stream.read(LENGTH.size)
        if len(head) < LENGTH.size:
            return
        (length,) = LENGTH.unpack(head)
        if length > session_messages.MESSAGE_BYTES:
            raise LinkError(f"a message of {length} bytes is too long")
        data = stream.read(length)
        if len(data) < length:
            return  # the other end went away within a message: a part of it is not a request
        _send(stream, service.answer(data))


def _send(stream: io.BufferedRWPair, reply: bytes) -> None:
    stream.write(LENGTH.pack(len(reply)) + reply)
    stream.flush()


def main(arguments: list[str]) -> int:
    """``DESCRIPTOR BOARD [SERIAL]``: the descriptor is a socket's."""
    descriptor, board, *rest = arguments
    with ExitStack() as stack:
        line = stack.enter_context(socket.socket(fileno=int(descriptor)))
        stream = stack.enter_context(line.makefile("rwb"))
        try:
            service = BoardService(load_board(board), rest[0] if rest else None)
            stack.callback(service.close)
            serve(service, stream)
        except UtvmError as error:
            with contextlib.suppress(OSError):
                _send(stream, session_messages.encode({"session": "ended", "reason": str(error)}))
            return 1
        except ConnectionError:
            return 0  # the other end closed the session
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
