"""``UTVM_TRACE=1`` shows the wire on standard error, with the time since the line before."""

from __future__ import annotations

import logging
import os

VARIABLE = "UTVM_TRACE"
_LINK_LOG = "utvm_deploy.device.link"


class _TraceHandler(logging.StreamHandler):  # type: ignore[type-arg]
    """A class that shows whether the handler is installed already."""


def trace_if_asked() -> None:
    """Show what the links log, if the environment asks for it; once per process."""
    log = logging.getLogger(_LINK_LOG)
    if os.environ.get(VARIABLE, "0") in ("", "0"):
        return
    if not any(isinstance(handler, _TraceHandler) for handler in log.handlers):
        handler = _TraceHandler()
        handler.setFormatter(logging.Formatter("%(message)s"))
        log.addHandler(handler)
        log.setLevel(logging.DEBUG)
