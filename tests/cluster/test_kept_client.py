"""A client of a cluster that was lost is opened again."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import pytest

from utvm_deploy.base.errors import ClusterError
from utvm_deploy.service.cluster import kept_client
from utvm_deploy.service.cluster.jobs import room
from utvm_deploy.service.cluster.kept_client import KeptClient


class FakeClient:
    """What is used of Dask's client."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.status = "running"
        self.scheduler_comm = object()
        self._run_on_scheduler = object()

    def sync(self, function: object, argument: object, *, callback_timeout: float) -> None:
        """A scheduler that does not answer; Dask itself would wait forever."""
        assert function is self._run_on_scheduler
        assert 0 < callback_timeout < 60
        raise TimeoutError("no answer")


class Cluster:
    """Counts how often it is opened and closed."""

    def __init__(self) -> None:
        self.opened: list[FakeClient] = []
        self.closed = 0
        self.is_there = True

    @contextlib.contextmanager
    def open(self) -> Iterator[FakeClient]:
        if not self.is_there:
            raise ClusterError("no scheduler answers")
        client = FakeClient(len(self.opened))
        self.opened.append(client)
        try:
            yield client
        finally:
            self.closed += 1
            if client.status != "running":
                raise OSError("the connection is lost")


def test_a_lost_client_is_opened_again() -> None:
    cluster = Cluster()
    with KeptClient(cluster.open, is_inside=False) as client:
        assert not client.renew(has_workers=True)
        cluster.opened[0].status = "closed"
        cluster.is_there = False
        for _ in range(2):
            with pytest.raises(ClusterError, match="no scheduler answers"):
                client.renew(has_workers=None)
            with pytest.raises(ClusterError, match="the server tries again until it comes back"):
                _ = client.number
        cluster.is_there = True
        assert client.renew(has_workers=None)
        assert client.number == 1
        assert not client.renew(has_workers=False)
    assert cluster.closed == 2


def test_a_scheduler_that_hangs_does_not_hang_the_server() -> None:
    with (
        KeptClient(Cluster().open, is_inside=True) as client,
        pytest.raises(ClusterError, match="the scheduler does not answer: no answer"),
    ):
        room(client)


def test_dask_connected_again_by_itself() -> None:
    cluster = Cluster()
    with KeptClient(cluster.open, is_inside=False) as client:
        # What was started before is lost, although the client is the same.
        cluster.opened[0].scheduler_comm = object()
        assert client.renew(has_workers=True)
        assert not client.renew(has_workers=True)
        assert len(cluster.opened) == 1


@pytest.mark.parametrize("is_inside", [True, False])
def test_a_cluster_inside_whose_worker_never_comes_back_is_replaced(
    is_inside: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = 1000.0
    monkeypatch.setattr(kept_client.time, "monotonic", lambda: now)
    cluster = Cluster()
    with KeptClient(cluster.open, is_inside=is_inside) as client:
        assert not client.renew(has_workers=False)
        now += 20
        assert not client.renew(has_workers=True)  # it was started again
        now += 20
        assert not client.renew(has_workers=False)
        now += 31
        # A worker elsewhere may come back whenever its owner wants.
        assert client.renew(has_workers=None) == is_inside
        assert len(cluster.opened) == (2 if is_inside else 1)
