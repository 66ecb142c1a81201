"""Devices started, used and closed, many alive at once: nothing of them is left."""

from __future__ import annotations

import gc
import os
import shutil
from collections import deque
from pathlib import Path

import pytest

import utvm_deploy
from utvm_deploy.boards.board import load_board
from utvm_deploy.device import Device
from utvm_deploy.device.link.base import Task

SHORT, LONG = 40, 1000
ALIVE = 24
EMULATED_EVERY = 5  # the others are processes, which start faster
# What Python may keep for itself, after the first devices have been there.
GROWTH_BYTES = 8 << 20


def descriptors() -> set[str]:
    gc.collect()  # images hold their entry of the cache
    return {
        f"{name} {os.readlink(f'/proc/self/fd/{name}')}"
        for name in os.listdir("/proc/self/fd")
        if os.path.exists(f"/proc/self/fd/{name}")
    }


def children() -> set[int]:
    """Processes whose parent is this one, or was; a device's may have lost it."""
    mine = set()
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            fields = (folder / "stat").read_text().rpartition(")")[2].split()
        except OSError:
            continue
        if int(fields[1]) == os.getpid():
            mine.add(int(folder.name))
    return mine


def resident_bytes() -> int:
    gc.collect()
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


def use(device: Device, number: int) -> None:
    """Memory and a task: what this device says is its own."""
    address = device.hello.workspace_address
    data = number.to_bytes(4, "little") * 8
    device.write(address, data)
    out = address + 64
    device.execute([Task(device.symbol("utvm_crc32_of"), (address, len(data), out))], 20.0)
    assert device.read(address, len(data)) == data
    assert int.from_bytes(device.read(out, 4), "little") == device.checksum(address, len(data))


@pytest.mark.tools
@pytest.mark.parametrize("count", [SHORT, pytest.param(LONG, marks=pytest.mark.soak)])
def test_nothing_is_left(count: int) -> None:
    names = ["host"]
    if shutil.which("qemu-system-arm"):
        names.append("mps2_an500")
    # Whatever is made once (caches, imports) is made by these.
    for name in names:
        with utvm_deploy.connect(load_board(name)) as device:
            use(device, 0)
    fds, processes = descriptors(), children()
    resident, most = 0, 0
    alive: deque[Device] = deque()
    try:
        for number in range(count):
            name = names[-1] if number % EMULATED_EVERY == 0 else names[0]
            alive.append(utvm_deploy.connect(load_board(name)))
            use(alive[-1], number)
            most = max(most, len(children()) - len(processes))
            if len(alive) == ALIVE:
                # The oldest still knows what it was told, among all the others.
                use(alive[0], number)
                alive.popleft().close()
            if number == min(count // 4, 4 * ALIVE):
                resident = resident_bytes()
    finally:
        for device in alive:
            device.close()
        alive.clear()
    assert most >= ALIVE
    assert children() == processes
    assert descriptors() == fds
    growth = resident_bytes() - resident
    print(f"{count} devices, {most} at once; {growth / 1024:.0f} KiB more than after the first")
    assert growth < GROWTH_BYTES
