"""Every error that is not a bug in utvm_deploy.

    UtvmError
    ├── UsageError               the command line is wrong
    ├── ModelError               the model file: damaged, float, dynamic
    │   └── UnsupportedOperator  an operator that has no row in the import table
    ├── DataError                a dataset: damaged, empty, or it does not fit the model
    ├── BoardError               a board or bench file
    ├── CompileError             graph -> C failed, or the result does not fit the board
    ├── PluginError              a plug-in is missing, wrong, or raised an exception
    ├── BuildError               the C compiler or CMake failed (log_path)
    │   └── SystemRefused        for lack of room, rights or memory, and not by what it was given
    ├── ProbeError               an image did not reach, or start on, a board
    │   ├── MissingTool          a program is not installed (tool, install)
    │   └── NoDevice             nothing is plugged in where it should be
    ├── LinkError                bytes between host and device
    │   ├── LinkTimeout          no answer within the deadline
    │   └── LinkClosed           the other end went away
    ├── DeviceError              the device answered with an error status
    │   ├── StoppedTask          a task did not end by itself (cause, pc, lr, address)
    │   │   ├── DeviceFault      it faulted
    │   │   └── TaskTimeout      its deadline passed
    │   └── DeviceReset          the device restarted: its RAM is lost
    ├── VerifyError              output bytes differ from the reference
    ├── BenchError               two results cannot be compared
    ├── TuneError                there is nothing to tune, or nowhere to measure
    │   └── RecordsError         a records file cannot be read or written
    ├── ServerError              a server cannot be reached, or refuses
    ├── ClusterError             a scheduler, a worker, a certificate or the lease of a board
    └── BundleError              a bundle is damaged or cannot be written

The text of an error is one sentence: what failed, with which value, what to do next.
Only ``cli.main`` prints it. Anything else that escapes is a bug and keeps its traceback.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


class UtvmError(Exception):
    """Root of all expected errors."""


class UsageError(UtvmError):
    """The command line is wrong. The contents of the files that it names do not matter."""


class ModelError(UtvmError):
    """The model file cannot be used."""


class UnsupportedOperator(ModelError):
    """The model holds an operator, or a variant of one, that cannot be imported."""


class DataError(UtvmError):
    """A dataset cannot be read, or does not fit the model."""


class BoardError(UtvmError):
    """A board file, a bench file or a board's name is wrong."""


class CompileError(UtvmError):
    """The graph cannot be compiled for this board."""


class PluginError(UtvmError):
    """A plug-in cannot be loaded, or did not do what its interface asks."""


class BuildError(UtvmError):
    """Building an image failed; ``log_path`` holds the tools' whole output."""

    def __init__(self, message: str, log_path: Path | None = None) -> None:
        super().__init__(message)
        self.log_path = log_path


class SystemRefused(BuildError):
    """The system refused a build what it needs, such as room on the disk: nothing is known of what
    was to be built."""


class ProbeError(UtvmError):
    """An image could not be put on a board or started there."""


class MissingTool(ProbeError):
    """A program is not installed; ``install`` is the command that installs it."""

    def __init__(self, tool: str, purpose: str, install: str) -> None:
        super().__init__(
            f"{tool} is not installed; it is needed to {purpose}. Install it: {install}"
        )
        self.tool = tool
        self.install = install


class NoDevice(ProbeError):
    """No board is connected where one was expected."""


class LinkError(UtvmError):
    """Bytes could not be moved between host and device."""


class LinkTimeout(LinkError):
    """The device did not answer within the deadline."""


class LinkClosed(LinkError):
    """The other end of the link went away."""


class DeviceError(UtvmError):
    """The device refused or failed a request.

    ``status`` is the protocol's (``link.messages.Status``) if the device gave one. ``index`` is the
    position of the task, and ``detail`` the address, length or number at fault.
    """

    def __init__(
        self, message: str, *, status: int | None = None, index: int = 0, detail: int = 0
    ) -> None:
        super().__init__(message)
        self.status = status
        self.index = index
        self.detail = detail


class StoppedTask(DeviceError):
    """A task did not end normally; the tasks after it in its list did not run.

    ``index`` is its position among the tasks of the list, and ``detail`` the number of its calls
    that ended. ``pc`` is where it was, ``lr`` where it would have returned to, and ``address`` what
    it accessed. Each is None if the device does not know it. The caller may describe the task in
    ``task``.
    """

    def __init__(
        self,
        cause: str,
        *,
        status: int | None = None,
        index: int = 0,
        detail: int = 0,
        pc: int | None = None,
        lr: int | None = None,
        address: int | None = None,
    ) -> None:
        super().__init__(cause, status=status, index=index, detail=detail)
        self.cause = cause
        self.pc = pc
        self.lr = lr
        self.address = address
        self.task = ""

    def _sentence(self, what: str) -> str:
        name = f" ({self.task})" if self.task else ""
        cause = f": {self.cause}" if self.cause else ""
        return (
            f"task {self.index}{name} {what}{cause}; the tasks behind it did not run, and the "
            "device waits for the next ones"
        )


class DeviceFault(StoppedTask):
    """A task faulted and was stopped. The device continues, and its RAM is as the task left it."""

    def __str__(self) -> str:
        return self._sentence("faulted")


class TaskTimeout(StoppedTask):
    """A task did not end within its deadline and was stopped. The device continues."""

    def __str__(self) -> str:
        return self._sentence("did not end within its deadline and was stopped")


class DeviceReset(DeviceError):
    """The device restarted since the last message: the contents of its RAM are lost."""


class VerifyError(UtvmError):
    """Output bytes differ from those of the reference interpreter."""


class FileRefused(VerifyError):
    """LiteRT refuses the file: there is nothing to be exact to."""


class TuneError(UtvmError):
    """There is nothing to tune, or no way to measure it."""


class RecordsError(TuneError):
    """A records file cannot be read or written."""


class BenchError(UtvmError):
    """Two engines, or two results, cannot be compared."""


class ServerError(UtvmError):
    """A server of utvm_deploy cannot be reached, or refuses a request."""


class ClusterError(UtvmError):
    """Other machines cannot be reached or trusted, or one of their boards is in use."""


class BundleError(UtvmError):
    """A bundle is damaged or cannot be written."""


#: Characters that ``last_words`` keeps.
_MOST_SAID = 200


_PRINTED = re.compile(
    r"# from tvm\.script import \S+ as \w+ |# from tvm\.\S+ import \w+ "
    r"|# Metadata omitted\. Use show_meta=True in script\(\) method to show it\. ?"
)
_PRINTED_CONSTANT = re.compile(r'metadata\["[^"]*"\]\[\d+\]')


@contextmanager
def refused_with(path: Path) -> Iterator[None]:
    """What refuses a model here names its file first."""
    try:
        yield
    except ModelError as exc:
        raise type(exc)(f"{path}: {exc}") from exc


def last_words(error: Exception) -> str:
    """The end of an error's text on one line, where C++ libraries say what was wrong.

    What TVM prints round an expression is left out.
    """
    said = _PRINTED.sub("", " ".join(str(error).split()))
    said = _PRINTED_CONSTANT.sub("a constant", said)
    if len(said) <= _MOST_SAID:
        return said
    _, _, whole = said[-_MOST_SAID:].partition(" ")
    return f"... {whole}"
