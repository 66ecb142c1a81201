"""What goes over a link, as lines of the log: UTVM_TRACE=1 shows them, or ``utvm -vvv``."""

from __future__ import annotations

import logging
import os
import time

from utvm_deploy.device.link.frame import Damage, Frame
from utvm_deploy.device.link.messages import opcode_name

VARIABLE = "UTVM_TRACE"

log = logging.getLogger("utvm_deploy.device.link")


class _TraceHandler(logging.StreamHandler):  # type: ignore[type-arg]
    """A class that shows whether the handler is installed already."""


def trace_if_asked() -> None:
    """Show what the links log, if the environment asks for it; once per process."""
    if os.environ.get(VARIABLE, "0") in ("", "0"):
        return
    if not any(isinstance(handler, _TraceHandler) for handler in log.handlers):
        handler = _TraceHandler()
        handler.setFormatter(logging.Formatter("%(message)s"))
        log.addHandler(handler)
        log.setLevel(logging.DEBUG)


class Trace:
    """The frames of one link, each with the time since the one before it."""

    def __init__(self) -> None:
        self._last_s = time.monotonic()

    def __call__(self, arrow: str, item: Frame | Damage) -> None:
        """Show that it was sent (``->``) or came (``<-``)."""
        if not log.isEnabledFor(logging.DEBUG):
            return
        now = time.monotonic()
        delta_ms, self._last_s = (now - self._last_s) * 1000, now
        if isinstance(item, Damage):
            log.debug("%+9.3f ms %s damaged, %s: %s", delta_ms, arrow, item.why, Hex(item.data))
            return
        log.debug(
            "%+9.3f ms %s %s #%08x session %08x, %d bytes: %s",
            delta_ms,
            arrow,
            opcode_name(item.opcode),
            item.sequence,
            item.session,
            len(item.payload),
            Hex(item.payload),
        )


class Hex:
    """Bytes for a log line, formatted only if it is written."""

    SHOWN_BYTES = 32

    def __init__(self, data: bytes) -> None:
        self._data = data

    def __str__(self) -> str:
        more = "..." if len(self._data) > self.SHOWN_BYTES else ""
        return self._data[: self.SHOWN_BYTES].hex(" ", -4) + more
