"""What the writer of model files says of a field that the schema does not have."""

from __future__ import annotations

import pytest
from tflite_writer import ModelWriter


def test_an_unknown_option_is_named_with_the_known_ones() -> None:
    m = ModelWriter()
    m.output(m.node("CUMSUM", [m.input((3,))], (3,), ("CumsumOptions", {"exclusive": True})))
    with pytest.raises(
        AttributeError, match="CumsumOptions has no field exclusive, only: Exclusive, Reverse"
    ):
        m.to_bytes()
