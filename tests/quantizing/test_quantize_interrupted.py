"""utvm quantize that is interrupted, or has no room: one sentence, and nothing left behind."""

from __future__ import annotations

import os
import resource
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

pytestmark = pytest.mark.tools

MODELS = Path(__file__).resolve().parents[2] / "models"
#: Seconds that a run may take on a loaded machine.
PATIENCE_S = 120.0


@pytest.fixture(scope="module")
def samples(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """More samples than are calibrated before anybody can interrupt it."""
    path = tmp_path_factory.mktemp("samples") / "calib.npy"
    np.save(path, np.random.default_rng(1).random((40_000, 8, 8, 1), np.float32))
    return path


def started(samples: Path, folder: Path, most_bytes: int | None = None) -> subprocess.Popen[str]:
    """The verb in a process of its own, whose files may have so many bytes."""
    (folder / "temporary").mkdir()
    model, out = MODELS / "digits_float.tflite", folder / "out.tflite"
    verb = ["quantize", str(model), "--data", str(samples), "-o", str(out)]

    def limit() -> None:
        if most_bytes is not None:
            resource.setrlimit(resource.RLIMIT_FSIZE, (most_bytes, most_bytes))

    return subprocess.Popen(
        [sys.executable, "-m", "utvm_deploy", *verb],
        env={**os.environ, "TMPDIR": str(folder / "temporary")},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=limit,
    )


def test_ctrl_c_leaves_nothing(samples: Path, tmp_path: Path) -> None:
    with started(samples, tmp_path) as child:
        assert child.stderr is not None
        assert child.stderr.readline().startswith("calibrate")
        child.send_signal(signal.SIGINT)
        _, err = child.communicate(timeout=PATIENCE_S)
    assert child.returncode == 130 and err.splitlines()[-1] == "interrupted"
    assert not list((tmp_path / "temporary").iterdir())
    assert not (tmp_path / "out.tflite").exists()


def test_a_full_disk_is_one_sentence(samples: Path, tmp_path: Path) -> None:
    # A limit of the size of files fails as a full disk does: in the middle of writing.
    with started(samples, tmp_path, most_bytes=1_000_000) as child:
        _, err = child.communicate(timeout=PATIENCE_S)
    assert child.returncode == 1
    (said,) = err.splitlines()
    assert said.startswith("error: the system refused") and "too large" in said
    assert not list((tmp_path / "temporary").iterdir())
    assert not (tmp_path / "out.tflite").exists()
