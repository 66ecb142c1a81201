"""Clients of a server, for Locust: each starts jobs, follows them, looks at pages, fetches files.

``load.py`` starts Locust with this file. JOBS is the number of jobs of each client, and MODEL the
model that it uploads.
"""

from __future__ import annotations

import itertools
import os
from http import HTTPStatus
from pathlib import Path

import gevent
from locust import HttpUser, task
from locust.exception import StopUser

MODEL = Path(os.environ["MODEL"])
JOBS = int(os.environ["JOBS"])
CLIENTS = int(os.environ["CLIENTS"])
#: How often a client looks at its job and at pages, as `utvm submit --wait` does.
LOOK_S = 2.0
ended = itertools.count(1)


class Client(HttpUser):
    """Somebody with a browser and a shell."""

    @task
    def work(self) -> None:
        """Start one job after the other, and leave."""
        content = MODEL.read_bytes()
        for _ in range(JOBS):
            wanted = {"verb": "inspect", "models": [self.upload(content)]}
            answer = self.client.post("/api/v1/jobs", json=wanted, name="start a job")
            self.follow(answer.json()[0]["key"])
        if next(ended) == CLIENTS:
            self.environment.runner.quit()
        raise StopUser

    def upload(self, content: bytes) -> str:
        """The digest. A server takes some uploads at a time, and says to the others: later."""
        while True:
            with self.client.post(
                "/api/v1/models",
                files={"file": (MODEL.name, content)},
                name="upload a model",
                catch_response=True,
            ) as answer:
                if answer.status_code != HTTPStatus.SERVICE_UNAVAILABLE:
                    return str(answer.json()["sha256"])
                answer.success()
            gevent.sleep(LOOK_S)

    def follow(self, key: str) -> None:
        """Until the job has ended; then fetch its files."""
        while True:
            job = self.client.get(f"/api/v1/jobs/{key}", name="a job (JSON)").json()
            if job["state"] in ("done", "failed", "canceled"):
                break
            self.look(key)
            gevent.sleep(LOOK_S)
        assert job["state"] == "done", job
        for file in job["files"]:
            name = file["name"]
            self.client.get(f"/api/v1/jobs/{key}/files/{name}", name="a file of a job")

    def look(self, key: str) -> None:
        """What somebody who waits looks at."""
        self.client.get("/", name="first page")
        self.client.get("/jobs", name="list of jobs, page")
        self.client.get("/jobs?state=failed", name="list of failed jobs, page")
        self.client.get(f"/jobs/{key}", name="a job, page")
        self.client.get("/api/v1/jobs", name="list of jobs (JSON)")
        self.client.get("/boards", name="list of boards, page")
