"""A throttled stream delivers the same bytes, each taking its time on the line."""

from __future__ import annotations

import pytest

from utvm_deploy.base.errors import BoardError
from utvm_deploy.boards.board import load_board
from utvm_deploy.device import connect
from utvm_deploy.device.probe import links
from utvm_deploy.device.probe.links import ThrottledStream


class Loop:
    """Gives back what was written."""

    def __init__(self) -> None:
        self.held = b""
        self.is_closed = False

    def read(self, max_bytes: int, timeout_s: float) -> bytes:
        data, self.held = self.held[:max_bytes], self.held[max_bytes:]
        return data

    def write(self, data: bytes, timeout_s: float) -> None:
        self.held += data

    def close(self) -> None:
        self.is_closed = True


def test_bytes_take_their_time(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [100.0]
    monkeypatch.setattr(links.time, "monotonic", lambda: now[0])
    monkeypatch.setattr(links.time, "sleep", lambda s: now.__setitem__(0, now[0] + s))
    inner = Loop()
    stream = ThrottledStream(inner, 9600)
    data = bytes(range(200))
    stream.write(data, 1.0)
    assert now[0] - 100 == pytest.approx(200 * 10 / 9600)
    found = b""
    while len(found) < len(data):
        found += stream.read(1000, 1.0)
    assert found == data
    # The other direction was free meanwhile.
    assert now[0] - 100 == pytest.approx(2 * 200 * 10 / 9600)
    stream.close()
    assert inner.is_closed


@pytest.mark.tools
def test_a_device_behind_a_slow_line() -> None:
    with connect("host", link="monitor@230400") as device:
        tensor = device.tensor([1, 2, 3])
        assert tensor.numpy().tolist() == [1, 2, 3]


@pytest.mark.parametrize("link", ["monitor@", "monitor@fast", "monitor@0", "debug@9600"])
def test_rates_that_are_none(link: str) -> None:
    with pytest.raises(BoardError, match=r"only the monitor's line can be slowed down"):
        connect(load_board("mps2_an500"), link=link)
