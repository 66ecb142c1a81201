"""What the tests of training share."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

import utvm_deploy
from utvm_deploy.device import Device


@pytest.fixture(scope="session")
def host() -> Iterator[Device]:
    """The host, on which each test unloads its models."""
    with utvm_deploy.connect("host") as device:
        yield device
