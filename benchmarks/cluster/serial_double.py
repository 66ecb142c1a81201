"""Dask tasks that answer as a worker with a board on a serial line would, without any board.

A worker has one board, which measures one batch at a time. A candidate takes as long as loading and
running one took on average over a monitor at 115200 baud (docs/internals/tuning.md).
"""

from __future__ import annotations

import os
import threading
import time
import zlib
from collections import defaultdict

from distributed import get_worker

from utvm_deploy.records import Measurement, Setting
from utvm_deploy.service.cluster.measuring.tasks import MeasuringSession
from utvm_deploy.tuning.measuring.loaded import Spent
from utvm_deploy.tuning.measuring.messages import Batch, Measured, packed, unpacked
from utvm_deploy.tuning.measuring.places import Outcome

LOAD_S = 0.44
RUN_S = 0.04
#: Divides both in the processes of workers, for short tests.
FASTER = int(os.environ.get("UTVM_SIMULATED_FASTER", "1"))

SETTING = Setting("cortex-m7", "none", "-O3", "0", "cycles")

_boards: defaultdict[str, threading.Lock] = defaultdict(threading.Lock)


def open_session(session: MeasuringSession) -> bytes:
    """In place of the task of that name."""
    return packed(SETTING)


def measure_batch(key: str, batch: bytes) -> tuple[str, bytes]:
    """In place of the task of that name: sleeps, and makes up ticks.

    The ``code`` of an outcome is the worker's address, so that records say who measured.
    """
    address: str = get_worker().address
    content = unpacked(batch)
    assert isinstance(content, Batch)
    outcomes = []
    with _boards[address]:
        for kernel, candidate in content.trials:
            time.sleep((LOAD_S + RUN_S) / FASTER)
            ticks = 1000 + zlib.crc32(f"{kernel} {candidate.label}".encode()) % 1000
            outcomes.append(Outcome(Measurement(ticks, float(ticks)), address, 3000, 0))
    count = len(outcomes)
    return address, packed(Measured(outcomes, {}, Spent(0.0, count * LOAD_S, count * RUN_S)))
