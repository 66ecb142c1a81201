"""``utvm_deploy.connect``."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from pathlib import Path

    from utvm_deploy.boards.board import Board
    from utvm_deploy.device import Device


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
    """A device on ``board``: a name, a board file, a ``Board`` or ``utvm://HOST[:PORT]/BOARD``.

    See ``device.connect``.
    """
    from utvm_deploy.device import connect as connect_device

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
