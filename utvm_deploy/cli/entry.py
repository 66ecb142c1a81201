"""The process around a command: its signals and its exit code when one of them ends it.

Imports almost nothing, so that Ctrl-C while the rest is loading gives no traceback either.
"""

from __future__ import annotations

import contextlib
import io
import os
import signal
import sys
from collections.abc import Callable
from types import FrameType

#: Exit code of a command that was called wrongly.
EXIT_USAGE = 2
#: What a shell makes of a process that a signal ended is this plus the signal's number.
EXIT_SIGNALLED = 128
#: Exit code of a process that Ctrl-C ended.
EXIT_INTERRUPTED = EXIT_SIGNALLED + signal.SIGINT
#: A job scheduler or a closed terminal ends this process; no child must survive that.
_ENDING = ("SIGTERM", "SIGHUP")


def as_process(work: Callable[[], int]) -> int:
    """Do ``work``, which gives the exit code; a signal ends it the way an exception does.

    ``work`` loads its modules and calls ``loaded``.
    """
    quiet_until_loaded()
    for name in _ENDING:
        number = getattr(signal, name, None)
        # `nohup` has SIGHUP ignored: leave it so.
        if number is not None and signal.getsignal(number) == signal.SIG_DFL:
            signal.signal(number, _end)
    # Closed by the caller (`>&-`): the output is lost, and that is not an error.
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, "w", encoding="utf-8"))  # noqa: SIM115
    # Characters that the user's locale cannot show are shown as escapes.
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
    try:
        code = work()
    except KeyboardInterrupt:
        code = EXIT_INTERRUPTED
    # Nothing is left to clean up: from here to the end Ctrl-C need not be an exception.
    if signal.getsignal(signal.SIGINT) == signal.default_int_handler:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    return code


def quiet_until_loaded() -> None:
    """While modules load, Ctrl-C ends the process at once: nothing has begun, nothing to clean up.

    An exception could come out of any line of any module, and some modules would report it in their
    way.
    """
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, _leave)


def loaded() -> None:
    """From here on Ctrl-C is an exception, as usual."""
    if signal.getsignal(signal.SIGINT) is _leave:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def _leave(_number: int, _frame: FrameType | None) -> None:
    with contextlib.suppress(OSError):
        os.write(2, b"interrupted\n")
    os._exit(EXIT_INTERRUPTED)


def discard_stdout() -> None:
    """Send what is still buffered for stdout nowhere: it is closed, or its disk is full."""
    if sys.stdout is not None:
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, sys.stdout.fileno())
        os.close(nowhere)


def _end(number: int, _frame: FrameType | None) -> None:
    raise SystemExit(EXIT_SIGNALLED + number)
