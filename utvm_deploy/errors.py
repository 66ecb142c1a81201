"""Every error that is not a bug in utvm_deploy.

    UtvmError
    ├── ModelError               the model file: damaged, float, dynamic
    │   └── UnsupportedOperator  an operator that has no row in the import table
    ├── BoardError               a board or bench file
    ├── CompileError             graph -> C failed, or the result does not fit the board
    ├── BuildError               the C compiler or CMake failed (log_path)
    ├── ProbeError               an image did not reach, or start on, a board
    │   ├── MissingTool          a program is not installed (tool, install)
    │   └── NoDevice             nothing is plugged in where it should be
    ├── LinkError                bytes between host and device
    │   ├── LinkTimeout          no answer within the deadline
    │   └── LinkClosed           the other end went away
    ├── DeviceError              the device answered with an error status
    │   └── DeviceReset          the device restarted: what was in its RAM is lost
    ├── VerifyError              output bytes differ from the reference
    └── BundleError              a bundle is damaged or cannot be written

The text of an error is one sentence: what failed, with which value, what to do next.
Only ``cli.main`` prints it. Anything else that escapes is a bug and keeps its traceback.
"""

from __future__ import annotations

from pathlib import Path


class UtvmError(Exception):
    """Root of all expected errors."""


class ModelError(UtvmError):
    """The model file cannot be used."""


class UnsupportedOperator(ModelError):
    """The model holds an operator, or a variant of one, that cannot be imported."""


class BoardError(UtvmError):
    """A board file, a bench file or a board's name is wrong."""


class CompileError(UtvmError):
    """The graph cannot be compiled for this board."""


class BuildError(UtvmError):
    """Building an image failed; ``log_path`` holds the tools' whole output."""

    def __init__(self, message: str, log_path: Path | None = None) -> None:
        super().__init__(message)
        self.log_path = log_path


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

    ``status`` is the wire's (``link.messages.Status``) where the device gave one, ``index`` the
    position of the task it is about, ``detail`` the address, length or number at fault.
    """

    def __init__(
        self, message: str, *, status: int | None = None, index: int = 0, detail: int = 0
    ) -> None:
        super().__init__(message)
        self.status = status
        self.index = index
        self.detail = detail


class DeviceReset(DeviceError):
    """The device restarted since the last message: the contents of its RAM are lost."""


class VerifyError(UtvmError):
    """Output bytes differ from those of the reference interpreter."""


class BundleError(UtvmError):
    """A bundle is damaged or cannot be written."""
