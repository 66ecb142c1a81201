"""Which link leads to a running board: its file's choice, or the user's."""

from __future__ import annotations

import time
from collections.abc import Callable

from utvm_deploy.base.errors import BoardError
from utvm_deploy.boards.facts import DEBUG_LINK, LINK_KINDS, MONITOR_LINK, Board
from utvm_deploy.device.link.base import Link
from utvm_deploy.device.link.deadlines import speeds_of
from utvm_deploy.device.link.gdb.client import GdbClient, debugger_of
from utvm_deploy.device.link.gdb.combined import CombinedLink
from utvm_deploy.device.link.gdb.debug_link import DebugLink
from utvm_deploy.device.link.monitor import MonitorLink
from utvm_deploy.device.link.stream import Stream
from utvm_deploy.device.probe.running import RunningBoard
from utvm_deploy.targets.table import target_of

#: A byte on the line: start bit, eight bits, stop bit.
BITS_PER_BYTE = 10
# Portions in which bytes get through, as from a UART's driver.
_PORTION_BYTES = 64


class ThrottledStream:
    """Another stream whose bytes take their time, in each direction by itself."""

    def __init__(self, stream: Stream, baud: int) -> None:
        self._stream = stream
        self._byte_s = BITS_PER_BYTE / baud
        # When the line is free again.
        self._reading_until = 0.0
        self._writing_until = 0.0

    def read(self, max_bytes: int, timeout_s: float) -> bytes:
        data = self._stream.read(min(max_bytes, _PORTION_BYTES), timeout_s)
        self._reading_until = self._wait(self._reading_until, len(data))
        return data

    def write(self, data: bytes, timeout_s: float) -> None:
        for start in range(0, len(data), _PORTION_BYTES):
            portion = data[start : start + _PORTION_BYTES]
            self._writing_until = self._wait(self._writing_until, len(portion))
            self._stream.write(portion, timeout_s)

    def close(self) -> None:
        self._stream.close()

    def _wait(self, busy_until: float, count: int) -> float:
        """Until ``count`` bytes went over a line that is busy until then; when that was."""
        now = time.monotonic()
        done = max(now, busy_until) + count * self._byte_s
        # Sleeping is coarse: what was slept too long, the next bytes need not wait.
        if done > now:
            time.sleep(done - now)
        return done


# Tasks over the monitor, much memory through the debugger.
COMBINED_LINK = f"{MONITOR_LINK}+{DEBUG_LINK}"

# Behind a kind with the monitor: the rate that its line is slowed down to.
RATE_MARK = "@"

# Where code was written past the runtime: see the template's sync_code.c.
SYNC_SYMBOL = "utvm_sync_code"


def choose_link(board: Board, wanted: str | None = None) -> str:
    """``monitor``, ``debug`` or ``monitor+debug``; BoardError if the board has no such link.

    By default a board's tasks run over the first link of its file. If that is the monitor and the
    board has a debug link, too, the two are combined. ``monitor@9600`` is a monitor link that is
    slowed down to a line of that rate.
    """
    chosen = _chosen_link(board, wanted)
    if needs_debugger(chosen):
        debugger_of(target_of(board.cpu.core))
    return chosen


def _chosen_link(board: Board, wanted: str | None) -> str:
    kinds = board.link.kinds
    if wanted is None:
        is_combined = kinds[0] == MONITOR_LINK and DEBUG_LINK in kinds
        return COMBINED_LINK if is_combined else kinds[0]
    check_link(wanted)
    for part in wanted.partition(RATE_MARK)[0].split("+"):
        # A probe's program may serve a debugger although nobody wants it by default.
        if part not in kinds and not (part == DEBUG_LINK and board.has_debug_link):
            raise BoardError(
                f"{board.name} has no {part} link; choose one that its board file names: "
                f"{', '.join(kinds)}"
            )
    return wanted


def check_link(wanted: str) -> None:
    """BoardError if no board can have a link of that name."""
    kind, mark, rate = wanted.partition(RATE_MARK)
    if kind not in (*LINK_KINDS, COMBINED_LINK):
        raise BoardError(
            f"no link {wanted!r}; choose {MONITOR_LINK}, {DEBUG_LINK} or {COMBINED_LINK}"
        )
    if mark and (not rate.isdecimal() or int(rate) == 0 or kind != MONITOR_LINK):
        raise BoardError(
            f"no link {wanted!r}; only the monitor's line can be slowed down, to a rate in bits "
            f"per second: {MONITOR_LINK}{RATE_MARK}115200"
        )


def needs_debugger(kind: str) -> bool:
    """Whether the board must be started with a debug stream for this link."""
    return DEBUG_LINK in kind.split("+")


def needs_line(kind: str) -> bool:
    """Whether the runtime's own line is used by this link."""
    return MONITOR_LINK in kind.partition(RATE_MARK)[0].split("+")


def open_link(running: RunningBoard, kind: str, place_of: Callable[[int], str]) -> Link:
    """The link of that kind; ``place_of`` names the code at an address, for errors."""
    symbols, speeds = running.image.symbols, speeds_of(running.board)
    if kind == DEBUG_LINK:
        client = GdbClient(running.debug_stream, target_of(running.board.cpu.core))
        return DebugLink(client, symbols, place_of=place_of, speeds=speeds)
    kind, _, rate = kind.partition(RATE_MARK)
    stream = ThrottledStream(running.stream, int(rate)) if rate else running.stream
    line = MonitorLink(stream, place_of=place_of, speeds=speeds)
    if kind == MONITOR_LINK:
        return line
    cpu = running.board.cpu
    has_caches = cpu.icache_bytes or cpu.dcache_bytes
    sync_code = symbols.get(SYNC_SYMBOL) if has_caches else None
    client = GdbClient(running.debug_stream, target_of(cpu.core))
    return CombinedLink(line, client, sync_code, speeds)
