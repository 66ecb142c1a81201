"""The process around a command: its signals and its exit code when one of them ends it.

Imports almost nothing, so that Ctrl-C while the rest is loading gives no traceback either.
"""

from __future__ import annotations

import contextlib
import gc
import io
import os
import signal
import sys
from collections.abc import Callable, Iterator
from types import FrameType

#: Exit code of a command that was called wrongly.
EXIT_USAGE = 2
#: What a shell makes of a process that a signal ended is this plus the signal's number.
EXIT_SIGNALLED = 128
#: Exit code of a process that Ctrl-C ended.
EXIT_INTERRUPTED = EXIT_SIGNALLED + signal.SIGINT
#: A process that cannot get as much has met the end of its memory: TVM's library takes 250 MiB.
_SPARE_BYTES = 384 << 20
_RAISED_BY_LOADING = (ImportError, AttributeError, OSError, RuntimeError)
_OUT_OF_MEMORY = (
    "error: the system refused more memory (%s); end other programs, or raise the limit (ulimit -v)"
)
#: A job scheduler or a closed terminal ends this process; no child must survive that.
_ENDING = ("SIGTERM", "SIGHUP")
#: New objects between two searches for garbage. TVM and a graph are many objects that stay. To look
#: at them as often as Python does took an eighth of the time of ``utvm compile``.
_NEW_OBJECTS = 50_000


def as_process(work: Callable[[], int]) -> int:
    """Do ``work``, which gives the exit code; a signal ends it the way an exception does.

    ``work`` loads its modules and calls ``loaded``.
    """
    quiet_until_loaded()
    gc.set_threshold(_NEW_OBJECTS)
    for name in _ENDING:
        number = getattr(signal, name, None)
        # `nohup` has SIGHUP ignored: leave it so.
        if number is not None and signal.getsignal(number) == signal.SIG_DFL:
            signal.signal(number, _end)
    # Closed by the caller: what is sent to stdout fails, as on a full disk. What is sent to stderr
    # is lost, and the work continues.
    if sys.stdout is None:
        sys.stdout = open(os.open(os.devnull, os.O_RDONLY), "w", encoding="utf-8")  # noqa: SIM115
    if sys.stderr is None:
        sys.stderr = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115
    # Characters that the user's locale cannot show are shown as escapes.
    if isinstance(sys.stderr, io.TextIOWrapper):
        sys.stderr = _Stream(sys.stderr, is_result=False)
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout = _Stream(sys.stdout, is_result=True)
    try:
        code = work()
    except KeyboardInterrupt:
        code = EXIT_INTERRUPTED
    except Exception as error:
        if not _is_out_of_memory(error):
            raise
        with contextlib.suppress(OSError):
            os.write(2, f"{_OUT_OF_MEMORY % type(error).__name__}\n".encode())
        code = 1
    # Nothing is left to clean up: from here to the end Ctrl-C need not be an exception.
    if signal.getsignal(signal.SIGINT) == signal.default_int_handler:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    return code


def _is_out_of_memory(error: Exception) -> bool:
    """Whether memory is what is missing; what fails to load for want of it raises others, too."""
    if isinstance(error, MemoryError):
        return True
    if not isinstance(error, _RAISED_BY_LOADING):
        return False
    try:
        import mmap

        mmap.mmap(-1, _SPARE_BYTES).close()
    except (ImportError, OSError, MemoryError):
        return True
    return False


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


class _Stream(io.TextIOWrapper):
    """Remembers why it could not be written, even if the error is caught, and discards the rest."""

    def __init__(self, stream: io.TextIOWrapper, *, is_result: bool) -> None:
        encoding, is_terminal, writes_through = (
            stream.encoding,
            stream.line_buffering,
            stream.write_through,
        )
        super().__init__(
            stream.detach(),
            encoding,
            "backslashreplace",
            line_buffering=is_terminal,
            write_through=writes_through,
        )
        self.lost: OSError | None = None
        self._is_result = is_result

    def write(self, text: str) -> int:
        with self._remembered():
            super().write(text)
        return len(text)

    def flush(self) -> None:
        with self._remembered():
            super().flush()

    @contextlib.contextmanager
    def _remembered(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            if self.lost is None:
                self.lost = error
                nowhere = os.open(os.devnull, os.O_WRONLY)
                os.dup2(nowhere, self.fileno())
                os.close(nowhere)
            if self._is_result:
                raise


def lost_stdout() -> OSError | None:
    """Why something that was sent to stdout was not written: it is closed, or its disk is full."""
    with contextlib.suppress(OSError):
        sys.stdout.flush()
    return sys.stdout.lost if isinstance(sys.stdout, _Stream) else None


def _end(number: int, _frame: FrameType | None) -> None:
    raise SystemExit(EXIT_SIGNALLED + number)
