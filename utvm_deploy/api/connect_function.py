"""``utvm_deploy.connect``."""

from __future__ import annotations

from pathlib import Path

from utvm_deploy.boards.board import Board
from utvm_deploy.device import Device
from utvm_deploy.device import connect as connect_device


def connect(
    board: Board | str | Path,
    *,
    port: str | None = None,
    probe: str | None = None,
    serial: str | None = None,
    link: str | None = None,
    strict: bool = False,
    timing: str = "cycles",
    server: str | None = None,
) -> Device:
    """A device on a board; nothing is started until it is used, or by ``with``.

    - ``board`` is a name, a board file's path, a ``Board``, or ``utvm://HOST[:PORT]/BOARD``: a
      board of a server.
    - ``port`` is where a real board's link is (``/dev/ttyACM0``, ``socket://host:port``).
      ``probe`` names one of the file's probes, and ``serial`` its serial number if there are
      several. If these are None, ``bench.toml`` decides, then USB.
    - ``link`` is "monitor", "debug" or "monitor+debug": tasks over the monitor, much memory
      through the debugger. Without it, the board's file decides.
    - ``strict`` runs each call at once, so that an error comes from where it was made.
    - ``timing`` is "cycles", or "instructions": an emulated board runs without its cycle model
      then, about twice as fast.
    - ``server`` is the URL of the server that the board is connected to.

    ``device.load(compiled)`` gives a ``DeviceModel``. Raises BoardError for an unknown board or
    arguments that do not fit it; later, use of the device raises UtvmError if the board fails.
    """
    return connect_device(
        board,
        port=port,
        probe=probe,
        serial=serial,
        link=link,
        strict=strict,
        timing=timing,
        server=server,
    )
