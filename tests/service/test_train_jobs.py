"""Jobs that train, at a real server: data go there, weights and curves come back."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from server_process import PATIENCE_S, ROOT, Server

from utvm_deploy.cli.main import main
from utvm_deploy.frontend.training.stored import TrainedWeights

DIGITS = ROOT / "models" / "digits.tflite"
Capture = pytest.CaptureFixture[str]
pytestmark = pytest.mark.tools


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with digits to learn, others to judge, and labels that no class has."""
    folder = tmp_path_factory.mktemp("data")
    with np.load(ROOT / "models" / "digits_labelled.npz") as found:
        inputs, labels = found["inputs"], found["labels"]
    np.savez(folder / "new.npz", inputs=inputs[:12], labels=labels[:12])
    np.savez(folder / "held.npz", inputs=inputs[30:40], labels=labels[30:40])
    np.savez(folder / "wide.npz", inputs=inputs[:12], labels=labels[:12] + 5)
    return folder


@pytest.fixture(autouse=True)
def shell(server: Server, data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The server is the one of this shell, which is in the folder of the data."""
    monkeypatch.setenv("UTVM_SERVER", server.url)
    monkeypatch.chdir(data)


def submitted(capsys: Capture, job: str, *options: str) -> tuple[int, Any]:
    """The exit code, and the job."""
    capsys.readouterr()
    code = main(["submit", str(DIGITS), "--job", job, "--board", "host", *options, "--json"])
    (found,) = json.loads(capsys.readouterr().out)["jobs"]
    return code, found


def page(server: Server, key: str) -> str:
    return server.http.get(f"/jobs/{key}").text


def test_a_job_trains_and_one_that_begins_with_its_weights_is_canceled(
    server: Server, capsys: Capture, tmp_path: Path
) -> None:
    given = ["--data", "new.npz", "--held-out", "held.npz"]
    code, first = submitted(capsys, "train", *given, "--rate", "0.02", "-o", str(tmp_path))
    assert code == 0 and first["state"] == "done", first["reason"]
    epochs = first["result"]["epochs"]
    assert [row["epoch"] for row in epochs] == [0, 1]
    weights = TrainedWeights.read(tmp_path / "file.weights")
    assert (tmp_path / "curve.html").read_text().count("<polyline") == 2
    text = page(server, first["job"])
    assert text.count("<polyline") == 2 and "loss by epochs" in text
    assert training(tmp_path / "events.jsonl") == epochs

    # The page of the next one shows its curves while it runs.
    _, job = submitted(capsys, "train", *given, "--weights", first["job"], "--epochs", "9999")
    where, deadline = f"/api/v1/jobs/{job['job']}", time.monotonic() + 5 * PATIENCE_S
    while "loss by epochs" not in page(server, job["job"]):
        assert time.monotonic() < deadline, page(server, job["job"])
        time.sleep(0.1)
    assert server.http.post(f"{where}/cancel").json()["state"] == "canceled"
    while not (files := server.http.get(where).json()["files"]):
        assert time.monotonic() < deadline
        time.sleep(0.1)
    assert [file["name"] for file in files] == ["events.jsonl", "file.weights", "log.txt"]
    for name in ("events.jsonl", "file.weights"):
        (tmp_path / name).write_bytes(server.http.get(f"{where}/files/{name}").content)
    begun, *_ = training(tmp_path / "events.jsonl")
    assert begun["epoch"] == 0 and begun["accuracy"] == epochs[-1]["accuracy"]
    assert TrainedWeights.read(tmp_path / "file.weights").stored != weights.stored
    assert "loss by epochs" in page(server, job["job"])


def training(path: Path) -> list[dict[str, Any]]:
    """The epochs that a job told."""
    told = [json.loads(line) for line in path.read_text().splitlines()]
    return [one for one in told if one.pop("event") == "training"]


def test_labels_that_no_class_has_end_the_job_with_one_sentence(
    server: Server, capsys: Capture
) -> None:
    code, job = submitted(capsys, "train", "--data", "wide.npz", "--wait")
    assert code == 1 and job["state"] == "failed"
    assert "have labels 5 to 14, and the model has classes 0 to 9; give others" in job["reason"]
    assert [file["name"] for file in job["files"]] == ["log.txt", "result.json"]
    assert "polyline" not in page(server, job["job"])


def test_data_stay_as_long_as_a_job_has_them(server: Server, data: Path) -> None:
    with (data / "wide.npz").open("rb") as file:
        answer = server.http.post("/api/v1/models", files={"file": ("wide.npz", file)})
    model, digest = server.upload(DIGITS), answer.json()["sha256"]
    wanted = {"verb": "train", "models": [digest], "boards": ["host"], "options": {"data": digest}}
    refused = server.http.post("/api/v1/jobs", json=wanted)
    assert refused.status_code == 400 and "wide.npz is data" in refused.json()["error"]
    wanted["models"] = [model]
    (job,) = server.http.post("/api/v1/jobs", json=wanted).json()
    assert [one["sha256"] for one in job["models"]] == [model]
    assert "wide.npz" in server.http.get("/models").text
    assert f"/jobs/{job['key']}" in server.http.get(f"/models/{digest}").text
    where = f"/api/v1/models/{digest}"
    assert server.http.delete(where).status_code == 409
    deadline = time.monotonic() + 5 * PATIENCE_S
    for one in server.http.get("/api/v1/jobs", params={"model": digest}).json():
        server.http.post(f"/api/v1/jobs/{one['key']}/cancel")
        while server.http.delete(f"/api/v1/jobs/{one['key']}").status_code != 204:
            assert time.monotonic() < deadline
    assert server.http.delete(where).status_code == 204
    assert server.http.get(where).status_code == 404


def test_a_file_that_is_not_there_is_told(capsys: Capture) -> None:
    given = ["--job", "train", "--data", "nothing.npz", "--board", "host"]
    assert main(["submit", str(DIGITS), *given]) == 1
    assert "cannot read nothing.npz: No such file or directory" in capsys.readouterr().err
