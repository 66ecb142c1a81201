"""A device that is a process on this computer, for what does not depend on the board."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

import utvm_deploy
from utvm_deploy.device import Device


@pytest.fixture
def host() -> Iterator[Device]:
    with utvm_deploy.connect("host") as connected:
        yield connected
