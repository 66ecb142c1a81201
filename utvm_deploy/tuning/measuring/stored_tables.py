"""Tables of kernels in the flash of a device's image, where models have them.

A kernel that reads its weights from RAM while it is tuned may be fast there and slow in a model.
The tables of one kernel are one block, which begins at the start of a cache line and of a cache.
So what a modelled cache misses does not depend on the tables of other kernels.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass

from utvm_deploy.base.errors import BuildError, SystemRefused
from utvm_deploy.device import Device
from utvm_deploy.graph.model import Array
from utvm_deploy.project.image import Image
from utvm_deploy.tuning.measuring.build import image_with_tables

log = logging.getLogger(__name__)

#: A kernel's tables, by their keys (``inputs.key_of``).
Tables = Mapping[bytes, Array]


@dataclass(frozen=True)
class _Place:
    symbol: str
    offset: int


class StoredTables:
    """What the image on a device has in flash; empty until ``store``."""

    def __init__(self, device: Device) -> None:
        self._device = device
        self._image: Image | None = None
        self._tables: dict[str, Tables] = {}
        self._places: dict[tuple[str, bytes], _Place] = {}

    def check_image(self) -> None:
        """Forget the tables if another image has replaced the one that has them."""
        if self._device.image is not self._image:
            self._tables, self._places = {}, {}

    def has(self, kernel: str, key: bytes) -> bool:
        """Whether a table of a kernel is in flash."""
        return (kernel, key) in self._places

    def address(self, kernel: str, key: bytes) -> int:
        """Where such a table is."""
        place = self._places[kernel, key]
        return self._device.symbol(place.symbol) + place.offset

    def store(self, wanted: Mapping[str, Tables]) -> bool:
        """Start an image that has these tables, by kernel's key, and those that it has already.

        If the flash has no room for all, the tables that it has already are removed. False if that
        does not help, or if there is nothing to store. If True, everything else on the device is
        lost.
        """
        new = {
            kernel: tables
            for kernel, tables in wanted.items()
            if not all(self.has(kernel, key) for key in tables)
        }
        if not new:
            return False
        both = {kernel: {**self._tables.get(kernel, {}), **new[kernel]} for kernel in new}
        attempts = [{**self._tables, **both}]
        if self._tables:
            attempts.append(new)
        for tables in attempts:
            try:
                image, offsets = image_with_tables(tables, self._device.image.board)
            except SystemRefused:
                raise
            except BuildError as error:
                log.info("no image with the tables of %s: %s", ", ".join(tables), error)
                continue
            self._device.start(image)
            self._image = self._device.image
            self._tables = tables
            self._places = {where: _Place(*place) for where, place in offsets.items()}
            return True
        return False
