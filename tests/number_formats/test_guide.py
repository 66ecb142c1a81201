"""The format of docs/guides/number-formats.md works as it stands there."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest
from float_writer import FloatWriter

import utvm_deploy
from utvm_deploy.cli.main import main
from utvm_deploy.graph.number_formats.formats import all_codes

GUIDE = Path(__file__).resolve().parents[2] / "docs" / "guides" / "number-formats.md"


@pytest.mark.tools
def test_the_format_of_the_guide(tmp_path: Path) -> None:
    found = re.search(r"```python\n(.*?)```", GUIDE.read_text(), re.DOTALL)
    assert found is not None
    path = tmp_path / "float8.py"
    path.write_text(found[1])
    m = FloatWriter()
    weights = np.random.default_rng(8).normal(size=(6, 64)).astype(np.float32)
    m.output(m.fully_connected(m.input((1, 64)), weights, np.zeros(6, np.float32)))
    model = m.save(tmp_path / "dense.tflite")
    command = ["--board", "host", "--format", f"{path}:float8"]
    assert main(["verify", str(model), *command]) == 0
    assert utvm_deploy.compile(model, "host", number_format="float8").weights_bytes < 6 * 64 + 40
    own = utvm_deploy.number_formats.known_format("float8")
    values = own.decoded(all_codes(own))
    assert values[0] == 0 and values[1:128].min() == 1.25 * 2.0**-15 and values.max() == 114688
    assert (np.diff(values[:128]) > 0).all() and (values[129:] == -values[1:128]).all()
