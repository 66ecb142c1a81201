"""What the server refuses, so that the HTTP interface can give each the right status."""

from __future__ import annotations

from utvm_deploy.base.errors import UtvmError


class NoRoom(UtvmError):
    """The disk is full, or the data folder has reached its limit."""


class UploadRefused(UtvmError):
    """A file that was uploaded is not a model, is too large, or is not allowed here."""


class NotFound(UtvmError):
    """There is nothing of this name."""


class Conflict(UtvmError):
    """A request contradicts what the server has."""


class Busy(UtvmError):
    """The server has too much to do; the same request may succeed later."""
