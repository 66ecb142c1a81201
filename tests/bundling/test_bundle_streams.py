"""Bundles of streams: their README, their examples and their self-tests play hops."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest
from bundle_cases import LIBRARIES
from test_bundle_builds import build, check_sketch, run
from tflite_writer import ModelWriter

import utvm_deploy
from utvm_deploy.base.files import file_digest

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


@pytest.mark.parametrize("form", LIBRARIES)
def test_a_stream_is_bundled_as_one(tmp_path: Path, form: str) -> None:
    made = utvm_deploy.bundle(
        padded_net(tmp_path), "host", tmp_path / "bundle", format=form, stream=2, latency=False
    )
    assert made.samples == 8  # whole answers are those of the runs 7 and 8
    readme = (made.path / "README.md").read_text()
    assert "## A stream" in readme and "Answers are late by 2 columns" in readme
    assert "net_reset(arena);  // before each recording" in readme
    manifest = json.loads((made.path / "manifest.json").read_text())
    assert manifest["stream"]["hop"] == 2
    assert manifest["model"]["sha256"] == file_digest(tmp_path / "net.tflite")
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


@pytest.mark.parametrize("end_input", [False, True])
def test_the_c_of_the_readme_compiles(tmp_path: Path, end_input: bool) -> None:
    """With a pool, which a run takes and a reset does not."""
    made = utvm_deploy.bundle(
        padded_net(tmp_path),
        "mps2_an500",
        tmp_path / "bundle",
        stream={"hop": 2, "end_input": end_input},
        pools={"dtcm": 4096},
        latency=False,
    )
    readme = (made.path / "README.md").read_text()
    blocks = [block for block in re.findall(r"(?:^    .*\n|^\n)+", readme, re.MULTILINE)]
    (loop,) = (block for block in blocks if "net_reset" in block)
    (pool,) = (block.partition("    .pool")[0] for block in blocks if "static uint8_t" in block)
    assert "net_run(arena, pool_dtcm)" in loop and ("net_input_1" in loop) == end_input
    source = tmp_path / "loop.c"
    source.write_text(
        '#include "net.h"\nextern int32_t next_columns(int8_t *columns);\n'
        f"void hear(uint8_t *arena);\n{pool}\nvoid hear(uint8_t *arena) {{\n{loop}}}\n"
    )
    flags = ["-std=c99", "-Wall", "-Wextra", "-pedantic", "-Werror", "-fsyntax-only"]
    command = ["gcc", *flags, f"-I{made.path / 'include'}", str(source)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("end_input", [False, True])
def test_the_example_equals_the_reference(tmp_path: Path, end_input: bool) -> None:
    """It plays columns of zeros, hop by hop, and the columns behind the end."""
    path, stream = padded_net(tmp_path), {"hop": 2, "end_input": end_input}
    made = utvm_deploy.bundle(path, "host", tmp_path / "bundle", stream=stream, latency=False)
    printed = run(build(made.path, tmp_path / "build") / "net_example").stdout.split()
    with utvm_deploy.connect("host") as device:
        model = device.load(utvm_deploy.compile(path, "host", stream=stream))
        (output,) = model.compiled.outputs
        hop = np.full((1, 2, 5, 4), 3, np.int8)
        behind = [[np.full(1, count, np.int32)] for count in [0] * 8 + [2]]
        runs = [[hop, *one] for one in behind] if end_input else [[hop]] * 8
        answers = [model.run(one)[0][0] for one in runs]
    assert output.scale is not None and output.zero_point is not None
    wanted = np.concatenate(answers[6:]).ravel().astype(np.float32) - output.zero_point
    assert printed == [f"{value:g}" for value in np.float32(output.scale) * wanted]
