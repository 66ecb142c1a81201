"""The oracle that the tests fork tells the same as the one that users start."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from fork_server import ForkServer
from tflite_writer import ModelWriter

from utvm_deploy.base.errors import VerifyError
from utvm_deploy.oracle import reference
from utvm_deploy.oracle.reference import run_reference

SAMPLE = np.arange(-4, 4, dtype=np.int8).reshape(1, 8)


@pytest.fixture
def model(tmp_path: Path) -> Path:
    writer = ModelWriter()
    writer.output(writer.relu(writer.input((1, 8), 0.1, 3), scale=0.2, zero_point=5))
    return writer.save(tmp_path / "model.tflite")


def test_a_forked_run_is_a_started_one(
    model: Path, oracle_server: ForkServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    (started,) = run_reference(model, [SAMPLE]).outputs
    with pytest.raises(VerifyError) as refused:
        run_reference(model, [SAMPLE[:, :5]])
    with pytest.raises(VerifyError) as late:
        run_reference(model, [SAMPLE], timeout_s=0.0)
    monkeypatch.setattr(reference, "process", oracle_server.stand_in())
    for _ in range(2):
        (forked,) = run_reference(model, [SAMPLE]).outputs
        np.testing.assert_array_equal(started, forked)
        with pytest.raises(VerifyError) as forked_refused:
            run_reference(model, [SAMPLE[:, :5]])
        assert str(forked_refused.value) == str(refused.value)
        with pytest.raises(VerifyError) as forked_late:
            run_reference(model, [SAMPLE], timeout_s=0.0)
        assert str(forked_late.value) == str(late.value)
