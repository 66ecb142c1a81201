"""SVDF with a state of bytes: the oracle makes what TFLite Micro itself made."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from small_models import svdf
from tflite_writer import ModelWriter

from utvm_deploy.oracle.reference import run_reference

#: What TFLite Micro (tflite-micro 0.dev20261023 of PyPI) made of this model and these inputs.
EXPECTED = [
    [[-128, -88, -124], [-128, -118, -128]],
    [[-128, -109, -128], [-128, -104, -128]],
    [[-128, -100, -128], [-128, -128, -128]],
    [[-3, -128, -128], [-128, -55, -61]],
    [[-62, -128, -128], [-83, -128, -63]],
    [[-117, -128, -94], [-128, -57, -79]],
]


def test_as_micro_computes_it(tmp_path: Path) -> None:
    m = ModelWriter()
    m.output(svdf(m, m.input((2, 7), 0.05, 4), 3, 4, 2, of_bytes=True))
    rng = np.random.default_rng(8)
    samples = [rng.integers(-128, 128, (2, 7)).astype(np.int8) for _ in EXPECTED]
    path = m.save(tmp_path / "model.tflite")
    run = run_reference(path, samples)
    assert run.reference.endswith("the formula of TFLite Micro for SVDF")
    assert [outputs[0].tolist() for outputs in run.outputs] == EXPECTED
    apart = run_reference(path, [samples[0]] * 2, outputs_only=True, apart=1)
    assert [outputs[0].tolist() for outputs in apart.outputs] == [EXPECTED[0]] * 2
