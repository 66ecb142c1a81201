"""The application with a fake cluster, on a port of this process."""

from __future__ import annotations

import contextlib
import ssl
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass

import httpx
from fake_cluster import FakeCluster
from server_process import PATIENCE_S, ROOT

from utvm_deploy.service.server.api.parts import Parts
from utvm_deploy.service.server.app import make_app
from utvm_deploy.service.server.jobs.dispatcher import Dispatcher
from utvm_deploy.service.server.security.tokens import access_of
from utvm_deploy.service.server.server import http_server, listening, url_of
from utvm_deploy.service.server.store.database import Database
from utvm_deploy.service.server.store.files import Files
from utvm_deploy.service.server.store.retention import Retention
from utvm_deploy.service.server.store.settings import Settings

#: For clients of plain HTTP: httpx would read the authorities of this computer for each of them.
NO_TLS = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)


@dataclass
class App:
    """The application on a port of this process."""

    url: str
    http: httpx.Client
    parts: Parts
    cluster: FakeCluster

    def upload(self, name: str = "digits.tflite", content: bytes | None = None) -> str:
        """The digest of a model that the server now has; a real model if no content is given."""
        if content is None:
            content = (ROOT / "models" / "digits.tflite").read_bytes()
        answer = self.http.post("/api/v1/models", files={"file": (name, content)})
        assert answer.status_code == 201, answer.text
        return str(answer.json()["sha256"])

    def wait(self, key: str) -> dict[str, object]:
        """A job that has ended."""
        deadline = time.monotonic() + PATIENCE_S
        while True:
            job: dict[str, object] = self.http.get(f"/api/v1/jobs/{key}").json()
            if job["state"] in ("done", "failed", "canceled"):
                return job
            assert time.monotonic() < deadline, f"the job does not end: {job}"
            time.sleep(0.02)


@contextlib.contextmanager
def app_running(settings: Settings) -> Iterator[App]:
    """The application in a thread, on a free port."""
    settings.data.mkdir(parents=True, exist_ok=True)
    jobs, files = settings.data / "jobs", Files(settings.data / "files")
    with contextlib.ExitStack() as stack:
        cluster = FakeCluster()
        database = stack.enter_context(Database(settings.data / "service.sqlite"))
        stack.enter_context(Retention(database, files, settings))
        dispatcher = stack.enter_context(Dispatcher(database, files, jobs, cluster))
        # Jobs end before the dispatcher that waits for them.
        stack.callback(cluster.close)
        access = access_of(settings.token, settings.host, is_encrypted=False)
        parts = Parts(settings, database, files, dispatcher, jobs, cluster, access)
        listener = stack.enter_context(listening(settings))
        url = url_of(listener, settings).rstrip("/")
        closing = threading.Event()
        http_of_app = http_server(make_app(parts, closing), closing)
        thread = threading.Thread(target=http_of_app.run, kwargs={"sockets": [listener]})
        thread.start()
        try:
            with httpx.Client(base_url=url, timeout=PATIENCE_S, verify=NO_TLS) as http:
                yield App(url, http, parts, cluster)
        finally:
            http_of_app.should_exit = True
            thread.join(PATIENCE_S)
