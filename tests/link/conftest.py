"""The real C runtime in a child process, with a few functions to call."""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.link.fakes import HostDevice
from utvm_deploy.base.paths import data_dir, runtime_dir
from utvm_deploy.device.link.monitor import MonitorLink

WARNINGS = "-std=c99 -Wall -Wextra -pedantic -Werror -Wmissing-prototypes -Wundef -Wconversion"


def build_host(program: Path, *flags: str) -> Path:
    """One compiler line; small payloads, so that ordinary tests split and chunk."""
    sources = [
        data_dir("templates") / "host" / "main.c",
        data_dir("templates") / "host" / "guard.c",
        Path(__file__).parent / "tasks.c",
        *sorted(runtime_dir().glob("*.c")),
    ]
    command = ["cc", *WARNINGS.split(), "-O1", "-fno-pie", "-no-pie"]
    command += [f"-I{runtime_dir()}", *flags, *map(str, sources), "-o", str(program)]
    subprocess.run(command, check=True, timeout=60)
    return program


@pytest.fixture(scope="session")
def host_program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("host")
    flags = ("-DUTVM_PAYLOAD_BYTES=256", "-DUTVM_WORKSPACE_BYTES=262144")
    return build_host(folder / "host", *flags, '-DUTVM_IMAGE_ID="tests/link"')


@pytest.fixture(scope="session")
def symbols(host_program: Path) -> dict[str, int]:
    """Symbol -> address; such as ``symbols["test_count"]``."""
    listing = subprocess.run(
        ["nm", str(host_program)], check=True, capture_output=True, text=True, timeout=60
    ).stdout
    rows = [line.split() for line in listing.splitlines()]
    return {row[2]: int(row[0], 16) for row in rows if len(row) == 3}


@pytest.fixture
def start_device(host_program: Path) -> Iterator[Callable[[], HostDevice]]:
    """Start a device's process, as often as needed; none outlives the test."""
    started: list[HostDevice] = []

    def start() -> HostDevice:
        started.append(HostDevice(host_program))
        return started[-1]

    yield start
    for device in started:
        device.close()


@pytest.fixture
def device(start_device: Callable[[], HostDevice]) -> HostDevice:
    return start_device()


@pytest.fixture
def link(device: HostDevice) -> Iterator[MonitorLink]:
    """A link without faults and with the timeouts that users have."""
    with MonitorLink(device.stream) as link:
        yield link
