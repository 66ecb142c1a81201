"""The options of the backend, and the device that its graphs share."""

from __future__ import annotations

import weakref
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from utvm_deploy.base.errors import UsageError
from utvm_deploy.boards.board import Board, load_board
from utvm_deploy.compiler.compiled.model import CompiledModel
from utvm_deploy.device import Device, DeviceModel, connect
from utvm_deploy.quality.quantizing.facts import FLOAT, SCHEMES

_OPTIONS = ("board", "device", "scheme", "calibrate")


@dataclass(frozen=True)
class Options:
    """What ``options=`` of ``torch.compile`` says."""

    board: Board
    device: Device | None  # an open one of the caller's
    scheme: str
    calibrate: int  # calls that run in eager first, and that calibrate


def checked_options(given: Mapping[str, Any] | None) -> Options:
    """The options; UsageError for unknown ones, and where the board is missing."""
    options = dict(given or {})
    unknown = sorted(set(options) - set(_OPTIONS))
    if unknown:
        raise UsageError(f"there is no option {unknown[0]!r}; the options: {', '.join(_OPTIONS)}")
    device = options.get("device")
    board = device.board if isinstance(device, Device) else options.get("board")
    if board is None:
        raise UsageError('give the board: torch.compile(..., options={"board": "host"})')
    scheme, calibrate = options.get("scheme", FLOAT), options.get("calibrate", 32)
    check_scheme(scheme)
    if not isinstance(calibrate, int) or calibrate < 1:
        raise UsageError(f"calibrate is {calibrate!r}; give the number of calls, at least 1")
    found = board if isinstance(board, Board) else load_board(board)
    return Options(found, device, scheme, calibrate)


def check_scheme(scheme: Any) -> None:
    """UsageError for what is not a scheme of the backend."""
    if scheme not in (FLOAT, *SCHEMES):
        raise UsageError(f"{scheme!r} is not a scheme; the schemes: {', '.join((FLOAT, *SCHEMES))}")


class Place:
    """A device that holds one model at a time."""

    def __init__(self, device: Device, *, is_ours: bool) -> None:
        self.device = device
        self._compiled: CompiledModel | None = None
        self._model: DeviceModel | None = None
        if is_ours:
            weakref.finalize(self, device.close)

    def model(self, compiled: CompiledModel) -> DeviceModel:
        """The model on the device, loaded again if another graph has loaded its own since."""
        if self._model is None or self._compiled is not compiled:
            self._model, self._compiled = self.device.load(compiled), compiled
        return self._model


#: A board's name, or the identity of the caller's device -> where graphs run. An entry goes with
#: the last graph that uses it.
_places: weakref.WeakValueDictionary[str, Place] = weakref.WeakValueDictionary()


def place_of(options: Options) -> Place:
    """The device of these options; graphs of one board share it."""
    given = options.device
    key = options.board.name if given is None else f"device {id(given)}"
    place = _places.get(key)
    if place is None:
        device = connect(options.board) if given is None else given
        place = Place(device, is_ours=given is None)
        _places[key] = place
    return place
