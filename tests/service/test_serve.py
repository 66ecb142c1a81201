"""`utvm serve` as a process."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from server_process import PATIENCE_S, ROOT, Server

pytestmark = pytest.mark.tools


def test_a_job_runs_on_a_board_of_this_computer(server: Server, tmp_path: Path) -> None:
    digest = server.upload(ROOT / "models" / "digits.tflite")
    answer = server.http.post(
        "/api/v1/jobs", json={"verb": "compile", "models": [digest], "boards": ["host"]}
    )
    assert answer.status_code == 201, answer.text
    key = answer.json()[0]["key"]
    deadline = time.monotonic() + PATIENCE_S
    while (job := server.http.get(f"/api/v1/jobs/{key}").json())["finished"] is None:
        assert time.monotonic() < deadline, job
        time.sleep(0.1)
    assert job["state"] == "done", job["reason"]
    assert server.http.get(f"/api/v1/jobs/{key}/files/model.tar").status_code == 200
