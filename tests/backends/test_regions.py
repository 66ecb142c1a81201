"""Regions: operators that become one call, with several outputs, on the host."""

from __future__ import annotations

from pathlib import Path

import pytest
from tflite_writer import ModelWriter

import utvm_deploy
from utvm_deploy.cli.main import main

#: A backend of MAXIMUM and MINIMUM, which computes any region of them, operator by operator.
PLUGIN = """
from math import prod
from utvm_deploy.backends import *

def build(match):
    tensors, names, lines, tables = match.graph.tensors, {}, [], {}
    names |= {n: f"input_{i}" for i, n in enumerate(match.inputs)}
    names |= {n: f"output_{i}" for i, n in enumerate(match.outputs)}
    size = 0
    for operation in match.operations:
        for number in (*operation.operator.inputs, *operation.operator.outputs):
            if number not in names and tensors[number].data is not None:
                names[number] = f"table_{number}"
                tables[names[number]] = tensors[number].data
            elif number not in names:
                names[number] = f"(scratch + {size})"
                size += tensors[number].size_bytes
        a, b, c = (names[n] for n in (*operation.operator.inputs, *operation.operator.outputs))
        sign = ">" if operation.kind == "MAXIMUM" else "<"
        count = prod(operation.result.shape)
        lines.append(
            f"for (int32_t i = 0; i < {count}; i++) "
            f"{{ {c}[i] = {a}[i] {sign} {b}[i] ? {a}[i] : {b}[i]; }}"
        )
    body = "\\n".join([*lines, "return 0;"])
    return call(match, "extrema", body, tables=tables, scratch_bytes=size)
"""
COVERING = (
    PLUGIN
    + """
def covers(operation):
    return operation.kind in ("MAXIMUM", "MINIMUM")

backend = Backend("Extrema", (), CText(""), covers=covers, build=build)
"""
)
DIRECTED = (
    PLUGIN
    + """
top = op("MAXIMUM").named("top")
both = Pattern((op("MINIMUM")(top), op("MAXIMUM")(top)), build)
backend = Backend("Extrema", (both,), CText(""))
"""
)


def written(folder: Path, text: str, name: str = "extrema.py") -> Path:
    path = folder / name
    path.write_text(text)
    return path


def extremum(m: ModelWriter, kind: str, *inputs: int) -> int:
    return m.node(kind, inputs, (1, 5, 7), ("MaximumMinimumOptions", {}))


@pytest.fixture
def model(tmp_path: Path) -> Path:
    """A diamond with an end: two operators read one, and a third one reads both."""
    m = ModelWriter()
    x, y = (m.input((1, 5, 7), 0.05, -7) for _ in range(2))
    top = extremum(m, "MAXIMUM", x, y)
    left, right = extremum(m, "MINIMUM", top, y), extremum(m, "MAXIMUM", top, x)
    both = m.add(left, right, scale=0.1)
    m.output(both, right)
    return m.save(tmp_path / "diamond.tflite")


@pytest.mark.tools
@pytest.mark.parametrize("text", [DIRECTED, COVERING])
def test_a_region_with_two_outputs(tmp_path: Path, model: Path, text: str) -> None:
    plugin = written(tmp_path, text)
    compiled = utvm_deploy.compile(model, "host", plugin=plugin)
    region, addition = compiled.layers
    assert (region.kind, region.engine) == ("MAXIMUM+MINIMUM+MAXIMUM", "Extrema")
    assert region.operators == (0, 1, 2) and len(region.outputs) == 2
    assert (addition.kind, addition.engine) == ("ADD", "generic")
    assert main(["verify", str(model), "--board", "host", "--plugin", str(plugin)]) == 0
    wrong = written(tmp_path, text.replace('sign = ">"', 'sign = "<"'), "wrong.py")
    assert main(["verify", str(model), "--board", "host", "--plugin", str(wrong)]) == 1
