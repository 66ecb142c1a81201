"""Writing flash through a GDB server, as GDB's ``load`` does.

The server's memory map says where flash is and how large its blocks are: whole blocks are erased,
then written in packets. A server without a map, such as J-Link's, takes plain writes to flash.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from utvm_deploy.base.errors import DeviceError
from utvm_deploy.device.link.deadlines import flash_s
from utvm_deploy.device.link.gdb.client import GdbClient
from utvm_deploy.device.link.gdb.packets import escaped_prefix

# In addition to the time for the bytes: a step of writing flash. The server may do the whole
# work at vFlashDone.
STEP_FLOOR_S = 30.0
# No microcontroller's flash has larger blocks. Part of one is erased at each end of a segment.
_LARGEST_BLOCK_BYTES = 512 * 1024

_FLASH = re.compile(r'<memory\s[^>]*type="flash"[^>]*>.*?</memory>', re.DOTALL)
_ATTRIBUTE = r'\b{}="(0x[0-9a-fA-F]+|\d+)"'
_BLOCK = re.compile(r'<property\s+name="blocksize"\s*>\s*(0x[0-9a-fA-F]+|\d+)')


@dataclass(frozen=True)
class FlashArea:
    """A stretch of flash whose blocks are of one size."""

    start: int
    length: int
    block_bytes: int


def write_flash(client: GdbClient, segments: Sequence[tuple[int, bytes]]) -> None:
    """Erase and write ``segments``; the core is halted, and stands anywhere afterwards."""
    if not client.offer.has("qXfer:memory-map:read"):
        for address, data in segments:
            client.write_memory(address, data)
        return
    total = sum(len(data) for _, data in segments)
    # The server says how large blocks and packets are, and so how many steps there are: the time
    # for all of them follows from the image alone.
    erased = total + 2 * len(segments) * _LARGEST_BLOCK_BYTES
    with client.within(flash_s(erased + total, STEP_FLOOR_S * (len(segments) + 2))):
        _write_by_map(client, segments, total)


def _write_by_map(client: GdbClient, segments: Sequence[tuple[int, bytes]], total: int) -> None:
    areas = parse_memory_map(client.read_object("memory-map", ""))
    for start, length in blocks_of(segments, areas):
        what = f"to erase {length} bytes of flash at {start:#010x}"
        _must(client, b"vFlashErase:%x,%x" % (start, length), what, flash_s(length, STEP_FLOOR_S))
    for address, data in segments:
        at = 0
        while at < len(data):
            count, coded = escaped_prefix(
                data[at : at + client.offer.payload_bytes], client.offer.payload_bytes
            )
            what = f"to write {count} bytes of flash at {address + at:#010x}"
            _must(
                client,
                b"vFlashWrite:%x:%b" % (address + at, coded),
                what,
                flash_s(count, STEP_FLOOR_S),
            )
            at += count
    _must(client, b"vFlashDone", "to finish writing flash", flash_s(total, STEP_FLOOR_S))


def parse_memory_map(text: str) -> list[FlashArea]:
    """The flash of a server's memory map, in order."""
    areas = []
    for memory in _FLASH.findall(text):
        start, length = (re.search(_ATTRIBUTE.format(key), memory) for key in ("start", "length"))
        block = _BLOCK.search(memory)
        if start and length and block and int(block[1], 0):
            areas.append(FlashArea(int(start[1], 0), int(length[1], 0), int(block[1], 0)))
    return sorted(areas, key=lambda area: area.start)


def blocks_of(
    segments: Iterable[tuple[int, bytes]], areas: Sequence[FlashArea]
) -> list[tuple[int, int]]:
    """Start and length of the runs of whole blocks that hold the segments, each once."""
    blocks: set[tuple[int, int]] = set()
    for address, data in segments:
        end = address + len(data)
        while address < end:
            area = next((a for a in areas if a.start <= address < a.start + a.length), None)
            if area is None:
                raise DeviceError(
                    f"the debug server knows no flash at {address:#010x}, where the image goes; "
                    "was it started for this chip?"
                )
            start = address - (address - area.start) % area.block_bytes
            blocks.add((start, area.block_bytes))
            address = start + area.block_bytes
    runs: list[tuple[int, int]] = []
    for start, length in sorted(blocks):
        if runs and sum(runs[-1]) == start:
            runs[-1] = (runs[-1][0], runs[-1][1] + length)
        else:
            runs.append((start, length))
    return runs


def _must(client: GdbClient, body: bytes, what: str, timeout_s: float) -> None:
    answer = client.request(body, what, timeout_s)
    if answer != b"OK":
        raise DeviceError(
            f"asked {what}, {client.dialect.name} answered {answer[:40]!r} instead of OK; is the "
            "flash protected, and is the server made for this chip?"
        )
