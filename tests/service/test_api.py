"""The HTTP interface for programs."""

from __future__ import annotations

from app_server import App


def test_a_job_is_done_and_its_files_come_back(app: App) -> None:
    digest = app.upload()
    answer = app.http.post(
        "/api/v1/jobs",
        json={"verb": "compile", "models": [digest], "boards": ["host", "mps2_an500"]},
    )
    assert answer.status_code == 201, answer.text
    keys = [job["key"] for job in answer.json()]
    assert len(set(keys)) == 2
    for key in keys:
        assert app.wait(key)["state"] == "done"
        content = app.http.get(f"/api/v1/jobs/{key}/files/model.tar").content
        assert content == f"model.tar of {key}".encode()
