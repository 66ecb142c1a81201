"""Several backends in one model: who computes what, by order and by records."""

from __future__ import annotations

import json
import re
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from test_backends_guide import GUIDE
from test_regions import COVERING, extremum, written
from tflite_writer import ModelWriter

import utvm_deploy
from utvm_deploy.base.errors import PluginError
from utvm_deploy.cli.main import main
from utvm_deploy.compiler.compiled.library_format import read_library
from utvm_deploy.records import Measurement, Record, read_records
from utvm_deploy.tuning.records_file import RecordsFile

sys.path.append(str(Path(__file__).parents[1] / "backend_cmsis_nn"))
from fake_library import build_library

A, B = "backend-alpha", "backend-beta"


def plugins(folder: Path, first: str = "MAXIMUM", second: str = "MINIMUM") -> list[Path]:
    """Alpha covers the first kinds, Beta the second ones."""
    names = (("Alpha", first), ("Beta", second))
    return [
        written(
            folder,
            COVERING.replace('"Extrema"', f'"{name}"')
            .replace('("MAXIMUM", "MINIMUM")', repr((*kinds.split(), "")))
            .replace('"extrema"', f'"{name.lower()}"'),
            f"{name}.py",
        )
        for name, kinds in names
    ]


@pytest.fixture
def model(tmp_path: Path) -> Path:
    m = ModelWriter()
    x, y = (m.input((1, 5, 7), 0.05, -7) for _ in range(2))
    least = extremum(m, "MINIMUM", extremum(m, "MAXIMUM", x, y), y)
    m.output(m.add(least, x, scale=0.1))
    return m.save(tmp_path / "clamp.tflite")


def options(some: list[Path]) -> list[str]:
    return [word for one in some for word in ("--plugin", str(one))]


@pytest.mark.tools
def test_each_computes_what_it_covers(tmp_path: Path, model: Path) -> None:
    some = plugins(tmp_path)
    compiled = utvm_deploy.compile(model, "host", plugin=some)
    assert [(one.kind, one.engine) for one in compiled.layers] == [
        ("MAXIMUM", "Alpha"),
        ("MINIMUM", "Beta"),
        ("ADD", "generic"),
    ]
    assert [one.name for one in compiled.externals] == ["Alpha", "Beta"]
    assert main(["verify", str(model), "--board", "host", *options(some)]) == 0
    archive = tmp_path / "clamp.tar"
    argv = ["compile", str(model), "--board", "host", *options(some), "-o", str(archive)]
    assert main(argv) == 0
    assert [one.name for one in read_library(archive).externals] == ["Alpha", "Beta"]


def engines(model: Path, some: list[Path], records: Path | None = None) -> list[tuple[str, str]]:
    found = utvm_deploy.compile(model, "host", plugin=some, records=records).layers
    return [(one.kind, one.engine) for one in found if one.kind != "ADD"]


def test_the_first_one_goes_before_the_others(tmp_path: Path, model: Path) -> None:
    some = plugins(tmp_path, "MAXIMUM", "MAXIMUM MINIMUM")
    assert engines(model, some) == [("MAXIMUM+MINIMUM", "Beta")]
    both = plugins(tmp_path, "MAXIMUM MINIMUM", "MAXIMUM MINIMUM")
    assert engines(model, both) == [("MAXIMUM+MINIMUM", "Alpha")]
    assert engines(model, both[::-1]) == [("MAXIMUM+MINIMUM", "Beta")]


@pytest.mark.tools
def test_records_choose_between_backends(tmp_path: Path, model: Path) -> None:
    some, file = plugins(tmp_path, "MAXIMUM MINIMUM", "MAXIMUM MINIMUM"), tmp_path / "r.jsonl"
    argv = ["tune", str(model), "--board", "host", "--trials", "12", "--records", str(file)]
    assert main([*argv, *options(some)]) == 0
    found = [one for one in read_records(file) if one.candidate.family in (A, B)]
    labels = {(one.kernel.operator, one.candidate.label) for one in found}
    region = "MAXIMUM+MINIMUM"
    wanted = {(region, f"{one}{apart}") for one in (A, B) for apart in ("", " chain=apart")}
    assert labels >= wanted | {("MAXIMUM", A), ("MAXIMUM", B), ("MINIMUM", A), ("MINIMUM", B)}

    def chosen(ticks: dict[tuple[str, str], int]) -> list[tuple[str, str]]:
        def changed(one: Record) -> Record:
            given = ticks.get((one.kernel.operator, one.candidate.label), 100)
            return replace(one, measurement=Measurement(given, given))

        path = tmp_path / f"{len(list(tmp_path.iterdir()))}.jsonl"
        with RecordsFile(path) as kept:
            kept.extend(changed(one) for one in read_records(file) if one.measurement.is_ok)
        return engines(model, some, path)

    assert chosen({(region, B): 80, (region, A): 90}) == [(region, "Beta")]
    assert chosen({(region, B): 80, (region, A): 70}) == [(region, "Alpha")]
    apart = {("MAXIMUM", A): 50, ("MAXIMUM", B): 40, ("MINIMUM", A): 30, ("MINIMUM", B): 200}
    assert chosen(apart) == [("MAXIMUM", "Beta"), ("MINIMUM", "Alpha")]
    ours = {("MAXIMUM", A): 150, ("MAXIMUM", B): 140, ("MINIMUM", A): 30}
    assert chosen(ours) == [("MAXIMUM", "generic"), ("MINIMUM", "Alpha")]


@pytest.mark.parametrize(
    ("first", "second", "told"),
    [
        ("Backend('A', ", "Backend('a', ", "both bring a backend 'a'; rename one"),
        ("Backend('A', code=CText('int f(int a) {}'), ", "", "both define f in C; rename one"),
        (
            "Backend('A', registers=((0, 256), (512, 256)), ",
            "Backend('B', registers=((0, 256),), ",
            "the backends A, B have 3 ranges of registers, and MPUs have room for 2",
        ),
    ],
)
def test_backends_that_do_not_go_together(
    tmp_path: Path, first: str, second: str, told: str
) -> None:
    parts = "patterns=(Pattern(('ADD',), lambda match: 'no'),)"
    texts = (first, second or first.replace("'A'", "'B'"))
    some = [
        written(
            tmp_path,
            "from utvm_deploy.backends import *\n"
            f"backend = {one}{parts}{'' if 'code' in one else ', code=CText(str())'})\n",
            f"{name}.py",
        )
        for name, one in zip("ab", texts, strict=True)
    ]
    with pytest.raises(PluginError, match=told):
        utvm_deploy.compile(tmp_path / "none.tflite", "host", plugin=some)


#: A backend that computes regions of float32 in one loop, some of them with a delay.
ONE_LOOP = """
from math import prod
from utvm_deploy.backends import *

def covers(operation):
    return operation.kind in ("MAXIMUM", "MINIMUM")

def build(match):
    names, lines = {n: f"input_{i}[i]" for i, n in enumerate(match.inputs)}, []
    for one in match.operations:
        (a, b), (made,) = (names[n] for n in one.operator.inputs), one.operator.outputs
        sign = ">" if one.kind == "MAXIMUM" else "<"
        names[made] = f"v{made}"
        lines.append(f"const float v{made} = {a} {sign} {b} ? {a} : {b};")
    lines += [f"output_{i}[i] = v{n};" for i, n in enumerate(match.outputs)]
    count = DELAY if match.kind in SLOW else 0
    return call(match, "NAME", f'''
for (volatile int32_t d = 0; d < {count}; d++) {{
}}
for (int32_t i = 0; i < {prod(match.first.result.shape)}; i++) {{
{chr(10).join(lines)}
}}
return 0;''')

backend = Backend("NAME", (), CText(""), covers=covers, build=build, estimate=lambda match: 1)
"""


@pytest.mark.emulator
def test_combinations_are_weighed_in_the_whole_model(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Alpha's region is slow, Beta's is fast, and a call of one operator is as fast as ours."""
    m = ModelWriter()
    x, y = (m.float_input((1, 9, 9)) for _ in range(2))

    def node(kind: str, *inputs: int) -> int:
        options = "AddOptions" if kind == "ADD" else "MaximumMinimumOptions"
        return m.node(kind, inputs, (1, 9, 9), (options, {}))

    value = x
    for kind in ("MAXIMUM", "MINIMUM", "MAXIMUM"):
        value = node(kind, value, y)
    m.output(node("MINIMUM", node("ADD", value, x), y))
    model, file = str(m.save(tmp_path / "chain.tflite")), tmp_path / "r.jsonl"

    def tuned(alpha: str, beta: str) -> tuple[dict[str, int], list[tuple[str, str]]]:
        slow = (("Alpha", alpha), ("Beta", beta))
        some = [
            written(
                tmp_path,
                ONE_LOOP.replace("NAME", name).replace("SLOW", kinds).replace("DELAY", "300"),
                f"{name}.py",
            )
            for name, kinds in slow
        ]
        argv = ["--board", "mps2_an386", *options(some), "--records", str(file)]
        capsys.readouterr()
        assert main(["tune", model, "--trials", "12", "--json", *argv]) == 0
        (found,) = json.loads(capsys.readouterr().out)["models"]
        assert main(["verify", model, "--samples", "1", *argv]) == 0
        made = utvm_deploy.compile(model, "mps2_an386", plugin=some, records=file)
        return found, [(one.kind, one.engine) for one in made.layers if one.kind != "ADD"]

    region = "MAXIMUM+MINIMUM+MAXIMUM"
    found, chosen = tuned(f"('{region}',)", "('MINIMUM',)")
    assert chosen == [(region, "Beta"), ("MINIMUM", "generic")]
    assert found["ticks_after"] < min(found["ticks_ours"], found["ticks_before"])
    # Estimates say otherwise: what is slower in the model than our kernels alone is out.
    everything = f"('{region}', 'MAXIMUM', 'MINIMUM')"
    found, chosen = tuned(everything, everything)
    assert {engine for _, engine in chosen} == {"generic"}
    assert found["ticks_after"] <= found["ticks_ours"] < found["ticks_before"]


@pytest.mark.tools
def test_cmsis_nn_and_a_plugin_are_tuned_together(tmp_path: Path) -> None:
    m = ModelWriter()
    x = m.relu(m.input((1, 40), 0.05, -7), scale=0.05, zero_point=-7)
    weights = np.arange(6 * 40).reshape(6, 40).astype(np.int8)
    m.output(m.fully_connected(x, weights, np.arange(6), weight_scale=0.003, scale=0.4))
    model, file = str(m.save(tmp_path / "dense.tflite")), tmp_path / "r.jsonl"
    text = re.findall(r"```python\n(.*?)```", GUIDE.read_text(), re.DOTALL)[0]
    plugin = str(written(tmp_path, text, "mine.py"))
    folder = str(build_library(tmp_path / "cmsis"))
    both = ["--kernels", "cmsis-nn", "--cmsis-nn", folder, "--plugin", plugin]
    argv = ["tune", model, "--board", "host", "--trials", "24", "--records", str(file)]
    assert main([*argv, *both]) == 0
    families = {one.candidate.family for one in read_records(file)}
    assert {"cmsis-nn", "backend-my-kernels", "generic"} <= families
    assert main(["verify", model, "--board", "host", *both, "--records", str(file)]) == 0
    # One that is named like it cannot go with it.
    named = str(written(tmp_path, text.replace('"My kernels"', '"CMSIS NN"'), "named.py"))
    assert main(["verify", model, "--board", "host", *both[:-1], named]) == 1
