"""What a notebook shows of a quantized model is short: no bytes, no arrays."""

from __future__ import annotations

import numpy as np

from utvm_deploy.quality.quantizing.facts import Calibration, QuantizedModel

BYTES = b"\x07" * 4096


def test_a_quantized_model_shows_neither_bytes_nor_samples() -> None:
    arrays = (np.zeros((4, 4), np.float32),)
    calibration = Calibration("tflite", BYTES, {}, {}, (), arrays, arrays, ("y",), 4, 0)
    model = QuantizedModel(BYTES, "int8", calibration, (), (), (), 4, 8192, ())
    for shown in (repr(calibration), repr(model)):
        assert "x07" not in shown and "array" not in shown and len(shown) < 300
    assert repr(model).startswith("<QuantizedModel int8: 4,096 bytes") and len(repr(model)) < 120
    assert "samples=4" in repr(calibration)
