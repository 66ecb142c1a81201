"""The quantizer of ONNX files, with its packages loaded once."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from fork_server import ForkServer

from utvm_deploy.quantizing import child_steps, onnx_child


@pytest.fixture(scope="session")
def onnx_quantizer() -> Iterator[ForkServer]:
    """onnx and onnxruntime, loaded once for all tests of this process."""
    with ForkServer(onnx_child) as server:
        yield server


@pytest.fixture
def forked_quantizer(onnx_quantizer: ForkServer, monkeypatch: pytest.MonkeyPatch) -> None:
    """The quantizer of ONNX files is forked from a process that has its packages loaded."""
    monkeypatch.setattr(child_steps, "process", onnx_quantizer.stand_in())
