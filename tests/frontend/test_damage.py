"""Damaged files: whatever bytes come, the answer is a graph or a ModelError, and comes soon."""

from __future__ import annotations

import time
from pathlib import Path

import numpy as np
import pytest
from small_models import build_model

from utvm_deploy.base.errors import ModelError
from utvm_deploy.frontend.tflite import load_model
from utvm_deploy.graph.passes.simplify import simplify

# Far beyond what a whole file takes on a busy machine.
_HANGS_S = 30.0


def _survives(path: Path, data: bytes) -> bool:
    """Load; False if it was refused in one sentence."""
    path.write_bytes(data)
    begin = time.monotonic()
    try:
        simplify(load_model(path))
    except ModelError as exc:
        assert "\n" not in str(exc) and str(exc).count(str(path)) == 1
        return False
    finally:
        assert time.monotonic() - begin < _HANGS_S
    return True


@pytest.fixture(scope="module")
def whole() -> bytes:
    return build_model("branches").to_bytes()


@pytest.mark.parametrize(
    "content", [b"", b"TFL3", b"\0" * 64, b"not a model at all", b"\x1c\0\0\0"]
)
def test_not_a_model(content: bytes, tmp_path: Path) -> None:
    path = tmp_path / "m.tflite"
    path.write_bytes(content)
    with pytest.raises(ModelError, match=r"is not a \.tflite file"):
        load_model(path)


@pytest.mark.parametrize("content", [b"\xff\xff\xff\xffTFL3", b"\0\0\0\0TFL3", b"\x08\0\0\0TFL3"])
def test_identifier_alone(content: bytes, tmp_path: Path) -> None:
    assert not _survives(tmp_path / "m.tflite", content)


def test_every_truncation_is_refused(whole: bytes, tmp_path: Path) -> None:
    for length in range(0, len(whole) - 64, max(1, len(whole) // 250)):
        assert not _survives(tmp_path / "m.tflite", whole[:length]), length


@pytest.mark.slow
def test_flipped_bits(whole: bytes, tmp_path: Path) -> None:
    rng = np.random.default_rng(11)
    survivors = 0
    for _ in range(500):
        data = np.frombuffer(whole, np.uint8).copy()
        for position in rng.integers(0, len(data), rng.integers(1, 4)):
            data[position] ^= 1 << rng.integers(0, 8)
        survivors += _survives(tmp_path / "m.tflite", data.tobytes())
    assert 0 < survivors < 500  # both happen: flips in weights are not damage


@pytest.mark.slow
def test_wild_words(whole: bytes, tmp_path: Path) -> None:
    """Counts and offsets that are far too large, or negative."""
    rng = np.random.default_rng(12)
    wild = np.array([0, 1, 0x7FFFFFFF, 0x80000000, 0xFFFFFFFF, 0x10000, 0xFFFFFF00], np.uint32)
    refused = 0
    for _ in range(500):
        data = np.frombuffer(whole[: len(whole) // 4 * 4], np.uint32).copy()
        data[rng.integers(2, len(data))] = rng.choice(wild)
        refused += not _survives(tmp_path / "m.tflite", data.tobytes())
    assert refused
