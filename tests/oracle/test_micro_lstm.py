"""LSTM of int16 by int8 weights: the oracle makes what TFLite Micro itself made."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from small_models import lstm
from tflite_writer import ModelWriter

from utvm_deploy.oracle.reference import run_reference

#: What TFLite Micro (tflite-micro 0.dev20261023 of PyPI) made of these models and inputs: shape of
#: the input, whether time is its first dimension, the largest cell.
EXPECTED = {
    ((1, 2, 5), False, 0.0): [
        [[[-1163, -1216, -4154, -1934], [10814, 12218, 2788, -5701]]],
        [[[2620, 8717, 4535, 229], [2014, 12811, 15784, 6263]]],
        [[[-5526, -5670, -1934, 2181], [-9927, 2528, -13817, 1919]]],
    ],
    ((2, 1, 9), True, 0.5): [
        [[[58, 13586, 4207, 10927]], [[3650, 12790, 90, 279]]],
        [[[-6369, -84, -304, 1732]], [[-6472, -301, -3742, 13511]]],
        [[[381, 2565, -2889, 7842]], [[-4517, -9238, -3295, 8700]]],
    ],
}


@pytest.mark.parametrize("form", EXPECTED)
def test_as_micro_computes_it(form, tmp_path: Path) -> None:
    shape, time_major, clip = form
    m = ModelWriter()
    x = m.tensor(shape, "int16", 3 / 32768, 0)
    m.inputs.append(x)
    m.output(lstm(m, x, 4, time_major=time_major, clip=clip))
    path = m.save(tmp_path / "model.tflite")
    rng = np.random.default_rng(8)
    samples = [rng.integers(-32768, 32768, shape).astype(np.int16) for _ in EXPECTED[form]]
    run = run_reference(path, samples)
    assert run.reference.endswith("the formula of TFLite Micro for UNIDIRECTIONAL_SEQUENCE_LSTM")
    assert [outputs[0].tolist() for outputs in run.outputs] == EXPECTED[form]
    apart = run_reference(path, [samples[0]] * 2, outputs_only=True, apart=1)
    assert [outputs[0].tolist() for outputs in apart.outputs] == [EXPECTED[form][0]] * 2
