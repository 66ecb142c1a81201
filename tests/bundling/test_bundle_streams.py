"""Bundles of streams: their README, their examples and their self-tests play hops."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
from test_bundle_builds import build, check_sketch, run
from tflite_writer import ModelWriter

import utvm_deploy
from utvm_deploy.bundling import FORMATS

pytestmark = [
    pytest.mark.skipif(not shutil.which("cmake"), reason="cmake is not installed"),
    pytest.mark.tools,
]


def padded_net(folder: Path) -> Path:
    """Two SAME convolutions over 12 columns, and a pool over all of them."""
    rng = np.random.default_rng(3)
    m = ModelWriter()
    x = m.input((1, 12, 5, 4), 0.1, 3)
    for _ in range(2):
        weights = rng.integers(-99, 99, (4, 3, 3, 4), dtype=np.int8)
        x = m.conv2d(x, weights, np.arange(4), scale=9.0, padding="SAME")
    m.output(m.mean(x, [1, 2]))
    return m.save(folder / "net.tflite")


@pytest.mark.parametrize("form", FORMATS)
def test_a_stream_is_bundled_as_one(tmp_path: Path, form: str) -> None:
    made = utvm_deploy.bundle(
        padded_net(tmp_path), "host", tmp_path / "bundle", format=form, stream=2, latency=False
    )
    assert made.samples == 8  # whole answers are those of the runs 7 and 8
    readme = (made.path / "README.md").read_text()
    assert "## A stream" in readme and "Answers are late by 2 columns" in readme
    assert "net_reset(arena);  // before each recording" in readme
    assert json.loads((made.path / "manifest.json").read_text())["stream"]["hop"] == 2
    folder = build(made.path, tmp_path / "build")
    assert run(folder / "net_selftest").stdout == "PASS net: 8 sample(s), every output byte equal\n"
    if form == "arduino":
        sketch = (made.path / "examples" / "net" / "net.ino").read_text()
        assert "net_reset(arena);" in sketch.partition("void loop()")[0]
        assert "if (runs < 6u)" in sketch
        check_sketch(made.path, tmp_path)
    elif form != "esp-idf":
        # The two whole answers, of 4 channels each.
        assert len(run(folder / "net_example").stdout.splitlines()) == 8


def test_the_example_equals_the_reference(tmp_path: Path) -> None:
    """It plays columns of zeros, hop by hop."""
    path = padded_net(tmp_path)
    made = utvm_deploy.bundle(path, "host", tmp_path / "bundle", stream=2, latency=False)
    printed = run(build(made.path, tmp_path / "build") / "net_example").stdout.split()
    with utvm_deploy.connect("host") as device:
        model = device.load(utvm_deploy.compile(path, "host", stream=2))
        (output,) = model.compiled.outputs
        answers = [model.run([np.full((1, 2, 5, 4), 3, np.int8)])[0][0] for _ in range(8)]
    assert output.scale is not None and output.zero_point is not None
    wanted = np.concatenate(answers[6:]).ravel().astype(np.float32) - output.zero_point
    assert printed == [f"{value:g}" for value in np.float32(output.scale) * wanted]
