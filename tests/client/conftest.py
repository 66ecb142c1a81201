"""What the tests of sessions share."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from session_doubles import DirectServer


@pytest.fixture
def server() -> Iterator[DirectServer]:
    made = DirectServer()
    yield made
    for transport in made.transports:
        transport.close()
