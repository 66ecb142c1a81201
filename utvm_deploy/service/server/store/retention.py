"""Keeps the data folder within its limits of age and size.

What is oldest goes first: jobs that ended, with their files, then models that no job uses. Jobs
that have not ended stay, and so do the files that they need. What does not fit then is refused.
"""

from __future__ import annotations

import contextlib
import logging
import os
import threading
import time
from collections.abc import Sequence
from pathlib import Path

from utvm_deploy.base.errors import UtvmError
from utvm_deploy.service.server.store.database import Database
from utvm_deploy.service.server.store.files import Files
from utvm_deploy.service.server.store.refusals import NoRoom
from utvm_deploy.service.server.store.removal import remove_jobs, remove_model
from utvm_deploy.service.server.store.settings import Settings

log = logging.getLogger(__name__)

_DAY_S = 86_400.0
#: The results of a job stay so long at least, so that who waits for them can fetch them.
FETCH_S = 300.0
#: A model stays so long at least, so that who uploaded it can start a job.
START_S = 3600.0
#: How often the folder is looked at, and its files are compared with the database.
_LOOK_S, _SWEEP_S = 60.0, 3600.0
#: The most jobs, or models, that are looked at in one step.
_STEP = 256


class Retention:
    """A thread that removes what is too old; a context manager.

    Inside the block ``files`` refuses what would make the folder larger than its limit.
    """

    def __init__(self, database: Database, files: Files, settings: Settings) -> None:
        self._database = database
        self._files = files
        self._data = settings.data
        self._keep_s = settings.keep_days * _DAY_S
        self._most_bytes = settings.disk_bytes
        self._lock = threading.Lock()
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._work, name="retention", daemon=True)

    def __enter__(self) -> Retention:
        self._files.make_room = self.make_room
        self.sweep()
        self.expire()
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._closing.set()
        self._thread.join()
        self._files.make_room = lambda: None

    def used_bytes(self) -> int:
        """The size of the data folder."""
        # The files are many, so they are counted as they come and go.
        return self._files.total_bytes + _size(self._data, without=self._files.folder)

    def make_room(self) -> None:
        """Remove what is oldest until the folder is as small as it must be. Raises NoRoom."""
        if self.used_bytes() <= self._most_bytes:
            return
        with self._lock:
            if self._remove_oldest():
                return
        raise NoRoom(
            f"the server may keep {self._most_bytes / 2**20:,.0f} MiB, and none of its data can be "
            "removed yet; delete jobs or models, or start it with a larger --disk-limit"
        )

    def expire(self, now: float | None = None) -> None:
        """Remove what is older than ``keep_days``."""
        before = (time.time() if now is None else now) - self._keep_s
        while jobs := self._database.ended_jobs(before, _STEP):
            remove_jobs(self._database, self._files, [job.key for job in jobs])
        while models := self._database.unused_models(before, _STEP):
            for model in models:
                remove_model(self._database, self._files, model.sha256)
        self._database.compact()

    def sweep(self) -> None:
        """Remove files that the database does not name: their writer was killed, or failed."""
        self._files.remove(self._files.digests(), self._database.is_file_used)

    def _remove_oldest(self) -> bool:
        """Whether that was enough, for what is there now; others may be writing more."""
        now = time.time()
        while (excess := self.used_bytes() - self._most_bytes) > 0:
            if jobs := self._database.ended_jobs(now - FETCH_S, _STEP):
                sizes = [sum(file.size for file in job.files) for job in jobs]
                oldest = jobs[: _enough(sizes, excess)]
                remove_jobs(self._database, self._files, [job.key for job in oldest])
            elif models := self._database.unused_models(now - START_S, _STEP):
                for model in models[: _enough([model.size for model in models], excess)]:
                    remove_model(self._database, self._files, model.sha256)
            else:
                return False
            self._database.compact()
        return True

    def _work(self) -> None:
        swept = time.monotonic()
        while not self._closing.wait(_LOOK_S):
            try:
                self.expire()
                if time.monotonic() - swept > _SWEEP_S:
                    self.sweep()
                    swept = time.monotonic()
                # Logs and the database grow, too.
                with contextlib.suppress(NoRoom):
                    self.make_room()
            except (UtvmError, OSError) as error:
                log.warning("old data was not removed: %s", error)
            except Exception:
                log.exception("removing old data failed; it is tried again")


def _enough(sizes: Sequence[int], wanted: int) -> int:
    """How many of these make up what is wanted; all if they do not."""
    count = 0
    while count < len(sizes) and wanted > 0:
        wanted -= sizes[count]
        count += 1
    return count


def _size(folder: Path, without: Path) -> int:
    total = 0
    for root, folders, names in os.walk(folder):
        folders[:] = [name for name in folders if Path(root, name) != without]
        for name in names:
            # It may be removed at this moment.
            with contextlib.suppress(OSError):
                total += os.lstat(os.path.join(root, name)).st_size
    return total
