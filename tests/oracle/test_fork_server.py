"""The oracle that the tests fork tells the same as the one that users start."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import fork_server
import numpy as np
import pytest
from fork_server import ForkServer, ForkServers
from tflite_writer import ModelWriter

from utvm_deploy.base import process
from utvm_deploy.base.errors import VerifyError
from utvm_deploy.oracle import reference
from utvm_deploy.oracle.reference import run_reference

SAMPLE = np.arange(-4, 4, dtype=np.int8).reshape(1, 8)


@pytest.fixture(autouse=True)
def forked_oracle() -> None:
    """The oracle is started as users start it."""


@pytest.fixture
def model(tmp_path: Path) -> Path:
    writer = ModelWriter()
    writer.output(writer.relu(writer.input((1, 8), 0.1, 3), scale=0.2, zero_point=5))
    return writer.save(tmp_path / "model.tflite")


def test_a_forked_run_is_a_started_one(
    model: Path, fork_servers: ForkServers, monkeypatch: pytest.MonkeyPatch
) -> None:
    (started,) = run_reference(model, [SAMPLE]).outputs
    with pytest.raises(VerifyError) as refused:
        run_reference(model, [SAMPLE[:, :5]])
    with pytest.raises(VerifyError) as late:
        run_reference(model, [SAMPLE], timeout_s=0.0)
    monkeypatch.setattr(reference, "process", fork_servers.stand_in())
    for _ in range(2):
        (forked,) = run_reference(model, [SAMPLE]).outputs
        np.testing.assert_array_equal(started, forked)
        with pytest.raises(VerifyError) as forked_refused:
            run_reference(model, [SAMPLE[:, :5]])
        assert str(forked_refused.value) == str(refused.value)
        with pytest.raises(VerifyError) as forked_late:
            run_reference(model, [SAMPLE], timeout_s=0.0)
        assert str(forked_late.value) == str(late.value)


def test_an_interrupted_question_gets_no_answer_of_another(
    model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupt(*_argv: object) -> None:
        raise KeyboardInterrupt

    with ForkServer("oracle") as server:
        monkeypatch.setattr(reference, "process", server.stand_in())
        interrupted = server.start()
        with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
            patch.setattr(fork_server.select, "select", interrupt)
            run_reference(model, [SAMPLE])
        assert not interrupted.is_alive()
        (output,) = run_reference(model, [SAMPLE[:, ::-1]]).outputs
        started = server.start()
    assert not started.is_alive()
    assert output[0].shape == SAMPLE.shape


def test_each_run_has_the_folder_and_the_settings_of_the_test(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    words = ["MODULE", "one", str(tmp_path)]
    monkeypatch.setenv("UTVM_TOLD", "told")
    monkeypatch.chdir(tmp_path)
    code = (
        "import fork_server, json, os, pathlib, sys\n"
        "def work(one, folder):\n"
        "    print(one, os.getcwd(), os.environ['UTVM_TOLD'])\n"
        "    raise SystemError('of a library')\n"
        "module = type(sys)('MODULE')\n"
        "fork_server._serve(fork_server.Program(lambda: None, {module: work}))\n"
    )
    environment = {**os.environ, "PYTHONPATH": str(Path(fork_server.__file__).parent)}
    question = json.dumps([words, 30.0, str(tmp_path), dict(os.environ)]) + "\n"
    done = process.run(
        [sys.executable, "-c", code], timeout_s=60.0, env=environment, stdin=question.encode()
    )
    assert json.loads(done.stdout) == [1, False]
    assert (tmp_path / fork_server._OUT).read_text() == f"one {tmp_path} told\n"
    last = (tmp_path / fork_server._ERR).read_text().splitlines()[-1]
    assert last == "SystemError: of a library"
