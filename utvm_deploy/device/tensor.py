"""A tensor in the device's memory."""

from __future__ import annotations

from typing import Any

import numpy as np

from utvm_deploy.base.errors import DeviceError
from utvm_deploy.device.session import Session
from utvm_deploy.device.workspace_blocks import Block
from utvm_deploy.graph.model import Array

Shape = int | tuple[int, ...] | list[int]


class Tensor:
    """An array on the device; ``Device.tensor`` and ``Device.empty`` make them.

    Functions on the device get its address. Free it, or use it as a context manager. The end of the
    device's session removes it in any case.
    """

    def __init__(
        self, session: Session, block: Block, shape: tuple[int, ...], dtype: Any, name: str | None
    ) -> None:
        self._session = session
        self._block = block
        self.shape = shape
        self.dtype = np.dtype(dtype)
        self.name = name

    def __str__(self) -> str:
        return self.name or f"{self.dtype}{list(self.shape)}"

    def __repr__(self) -> str:
        state = "freed" if self._block.is_freed else "lost" if self._session.ended else "at"
        return f"<{self._block.what} {state} {self._block.address:#x}>"

    def __enter__(self) -> Tensor:
        return self

    def __exit__(self, *_exc: object) -> None:
        self.free()

    @property
    def block(self) -> Block:
        """Its block of memory; raises if it was freed."""
        self._session.check(self._block.what)
        if self._block.is_freed:
            raise DeviceError(f"{self._block.what} was freed; make it again")
        return self._block

    @property
    def address(self) -> int:
        """Address of its first byte, for tables of pointers, for example."""
        # From here on, any function on the device may know the address.
        self.block.is_shown = True
        return self._block.address

    @property
    def nbytes(self) -> int:
        """Its size in bytes."""
        return self._block.size

    def numpy(self) -> Array:
        """Its values, after every call that is queued."""
        block = self.block
        read = self._session.read if block.is_shown else self._session.read_now
        values = np.empty(self.shape, self.dtype)
        if block.size:
            values.reshape(-1).view(np.uint8)[:] = np.frombuffer(
                read(block.address, block.size), np.uint8
            )
        return values

    def write(self, array: Any) -> None:
        """Give it other values, of its type and shape."""
        block = self.block
        values = np.asarray(array)
        if values.dtype != self.dtype or values.shape != self.shape:
            raise DeviceError(
                f"{block.what} cannot take an array of {values.dtype} {list(values.shape)}; "
                f"convert it to {self.dtype} {list(self.shape)} first"
            )
        write = self._session.write if block.is_shown else self._session.write_now
        write(block.address, device_bytes(values))

    def free(self) -> None:
        """Give its memory back, after every call that is queued; may be called again."""
        if not self._block.is_freed:
            self._session.free(self._block)


def device_dtype(dtype: Any) -> np.dtype[Any]:
    """The type as the device has it; devices are little-endian."""
    found: np.dtype[Any] = np.dtype(dtype)
    if found.hasobject or found.itemsize == 0 or found.kind in "USmM":
        raise DeviceError(f"a tensor cannot be of type {found}; use numbers such as int8")
    little: np.dtype[Any] = found.newbyteorder("<")
    return little


def device_bytes(values: Array) -> bytes:
    """The bytes of the values, in the device's order."""
    return np.ascontiguousarray(values, device_dtype(values.dtype)).tobytes()


def tensor_shape(shape: Shape) -> tuple[int, ...]:
    """``shape`` as a tuple of extents, none of them negative."""
    extents = (shape,) if isinstance(shape, int) else tuple(int(extent) for extent in shape)
    if any(extent < 0 for extent in extents):
        raise DeviceError(f"a tensor cannot have the shape {list(extents)}")
    return extents


def tensor_name(dtype: np.dtype[Any], shape: tuple[int, ...], name: str | None) -> str:
    """What errors call it."""
    named = f"tensor {name}" if name else "tensor"
    return f"{named} ({dtype} {list(shape)})"
