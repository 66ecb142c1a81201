"""A data folder of a server with jobs, models and their files."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from stored_jobs import key_of

from utvm_deploy.service.server.store.database import Database
from utvm_deploy.service.server.store.facts import DONE, QUEUED, RUNNING, Job, JobFile, Model
from utvm_deploy.service.server.store.files import Files
from utvm_deploy.service.server.store.retention import Retention
from utvm_deploy.service.server.store.settings import Settings

MIB = 1 << 20
LIMIT = 24 * MIB
DAY_S = 86_400.0


@dataclass
class Store:
    """A data folder whose jobs ended long ago, unless a test says otherwise."""

    data: Path
    database: Database
    files: Files
    numbers: Iterator[int] = field(default_factory=lambda: iter(range(10**6)))

    def model(self, size: int = 10, age_s: float = DAY_S) -> Model:
        content = os.urandom(size)
        with self.files.holding():
            kept = self.files.add(content)
            model = Model(kept, "m.tflite", size, time.time() - age_s)
            self.database.add_model(model)
        return model

    def job(
        self,
        model: Model,
        size: int = 0,
        state: str = DONE,
        age_s: float = DAY_S,
        options: Mapping[str, Any] = {},
    ) -> Job:
        """A job with a file of random bytes."""
        created = time.time() - age_s
        key = key_of(next(self.numbers))
        job = Job(key, "tune", "host", (model,), options, QUEUED, created)
        self.database.add_jobs([job])
        if state == RUNNING:
            self.database.change_job(key, state=RUNNING, started=created)
        elif state == DONE:
            with self.files.holding():
                made = [JobFile("a", self.files.add(os.urandom(size)), size)] if size else []
                self.database.finish_job(key, 0, made, state=DONE, finished=created)
        kept = self.database.job(key)
        assert kept is not None
        return kept

    def job_keys(self) -> set[str]:
        return {job.key for job in self.database.jobs(most=10**6)}

    def size(self) -> int:
        return sum(path.stat().st_size for path in self.data.rglob("*") if path.is_file())

    def kept(self, keep_days: int = 90, limit: int = LIMIT) -> AbstractContextManager[Retention]:
        settings = Settings(self.data, keep_days=keep_days, disk_bytes=limit)
        return Retention(self.database, self.files, settings)
