"""A board is held by one process at a time, and the lease ends with its holder."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from utvm_deploy.base.errors import ClusterError
from utvm_deploy.base.process import child_environment
from utvm_deploy.service.cluster.lease import held, held_entry

PATIENCE_S = 20.0
HOLDER = """
import sys, time
from utvm_deploy.service.cluster.lease import held
with held("nucleo_f746zg", sys.argv[1], 0, "job 17"):
    print("held", flush=True)
    time.sleep(60)
"""


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("UTVM_CACHE", str(tmp_path / "cache"))


@contextmanager
def holder(serial: str) -> Iterator[subprocess.Popen[str]]:
    """Another process that holds the board with this serial number."""
    environment = {**os.environ, **child_environment()}
    with subprocess.Popen(
        [sys.executable, "-c", HOLDER, serial], env=environment, stdout=subprocess.PIPE, text=True
    ) as child:
        try:
            assert child.stdout is not None
            assert child.stdout.readline() == "held\n"
            yield child
        finally:
            child.kill()


def test_a_held_board_is_refused_and_free_after_its_holder_was_killed() -> None:
    with holder("0670ff01") as other:
        # Serial numbers are written in capitals by some programs.
        with (
            pytest.raises(ClusterError, match=rf"in use by process {other.pid} \(job 17\)"),
            held("nucleo_f746zg", "0670FF01", 0),
        ):
            pass
        with held("nucleo_f746zg", "0670FF02", 0), held("host", None, 0):
            pass  # other boards
        other.send_signal(signal.SIGKILL)
        other.wait(PATIENCE_S)
        with held("nucleo_f746zg", "0670FF01", PATIENCE_S):
            pass


def test_a_board_is_waited_for() -> None:
    with holder("0670FF01") as other:
        timer = threading.Timer(0.3, other.kill)
        timer.start()
        with held("nucleo_f746zg", "0670FF01", PATIENCE_S):
            assert other.wait(PATIENCE_S) < 0
        timer.join()


def test_threads_of_one_process_exclude_each_other() -> None:
    with (
        held("host", None, 0, "job 1"),
        pytest.raises(ClusterError, match=rf"{os.getpid()} \(job 1\)"),
        held("host", None, 0, "job 2"),
    ):
        pass


def test_a_lock_that_was_removed_with_the_cache_is_made_again(tmp_path: Path) -> None:
    with held("host", None, 0):
        (lock,) = (tmp_path / "cache" / "boards").iterdir()
    lock.unlink()
    lock.parent.rmdir()
    with held("host", None, 0), pytest.raises(ClusterError), held("host", None, 0):
        pass


def test_any_free_board_of_a_desk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    desk = tmp_path / "bench.toml"
    desk.write_text(
        '[[boards.nucleo_f746zg]]\nprobe_serial = "0670FF01"\n'
        '[[boards.nucleo_f746zg]]\nprobe_serial = "0670FF02"\n'
    )
    monkeypatch.setenv("UTVM_BENCH", str(desk))
    with held_entry("nucleo_f746zg", 0) as first, held_entry("nucleo_f746zg", 0) as second:
        assert {first.probe_serial, second.probe_serial} == {"0670FF01", "0670FF02"}
        with pytest.raises(ClusterError, match="in use by"), held_entry("nucleo_f746zg", 0):
            pass
    with pytest.raises(ClusterError, match="lists no board host"), held_entry("host", 0):
        pass
