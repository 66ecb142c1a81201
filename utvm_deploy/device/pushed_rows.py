"""A model on a device whose input is pushed row by row: the host pushes a whole input."""

from __future__ import annotations

from typing import TYPE_CHECKING

from utvm_deploy.base.errors import DeviceError
from utvm_deploy.compiler.compiled.model import InputRows, Layer
from utvm_deploy.compiler.row_state import ROW_STATE_BYTES

if TYPE_CHECKING:
    from utvm_deploy.device.model import DeviceModel

#: Bytes of rows that the host writes at once if there is no room for the whole input.
_FEW_BYTES = 2048
_WHAT = "rows of the input"


class PushedRows:
    """The rows of an input, as bytes that the host keeps."""

    def __init__(self, model: DeviceModel, rows: InputRows) -> None:
        self._model, self._rows = model, rows
        self._first = [0, *(strip.end for strip in rows.strips)]
        self._strip_of = {strip.layer: index for index, strip in enumerate(rows.strips)}
        self._data = b""

    def begin(self, data: bytes) -> None:
        """Keep the next input, and have the device forget rows that were pushed before."""
        self._data = data
        place = self._model.arena_address + self._rows.state_offset
        self._model.device.session.write(place, bytes(ROW_STATE_BYTES))

    def push_all(self) -> int:
        """Push the input by ``NAME_push_rows``; the ticks of all calls.

        It is one call where the device has room for all rows: then the cycle model
        has the figures of the run.
        """
        size, at_once = self._rows.row_bytes, self._rows.count
        session, ticks = self._model.device.session, 0
        try:
            buffer = session.allocate(at_once * size, _WHAT)
        except DeviceError:
            at_once = min(max(_FEW_BYTES // size, 1), at_once)
            buffer = session.allocate(at_once * size, _WHAT)
        try:
            for first in range(0, self._rows.count, at_once):
                count = min(at_once, self._rows.count - first)
                session.write(buffer.address, self._data[first * size : (first + count) * size])
                ticks += self._model.call_run(buffer.address, count, blocks=(buffer,))
        finally:
            if not session.ended:
                session.free(buffer)
        return ticks

    def place(self, layer: Layer) -> None:
        """Write the rows that a layer INPUT_ROWS stands for; nothing for other layers."""
        index = self._strip_of.get(layer.index)
        if index is not None:
            strip, size = self._rows.strips[index], self._rows.row_bytes
            data = self._data[self._first[index] * size : strip.end * size]
            session = self._model.device.session
            session.write(self._model.arena_address + strip.offset, data)
