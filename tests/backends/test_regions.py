"""Regions: operators that become one call, with several outputs, on the host."""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from random_regions import backends_of, check_bytes, check_partition, loaded
from region_graphs import GraphWriter, random_graph
from tflite_writer import ModelWriter

import utvm_deploy
from utvm_deploy.backends import Backend, CText, Pattern, op, regions, wildcard
from utvm_deploy.backends.asking import asked
from utvm_deploy.backends.edges import Edges
from utvm_deploy.backends.plugins import load_plugin
from utvm_deploy.backends.regions import is_region, partitioned
from utvm_deploy.base.errors import PluginError, UnsupportedOperator
from utvm_deploy.cli.main import main
from utvm_deploy.graph.model import Graph, Operator

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


@pytest.mark.tools
def test_random_graphs_have_the_same_bytes(tmp_path: Path) -> None:
    """A tenth; ``random_regions.py`` does more."""
    seeds = range(100)
    found = sum(check_partition(random_graph(seed), backends_of(seed)) for seed in seeds)
    assert found > 50
    assert check_bytes(seeds, tmp_path) > 100


def sources(graph: Graph) -> list[tuple[int, ...]]:
    return [one.sources for one in graph.operators if is_region(one)]


def of_kind(kind: str, name: str) -> Backend:
    """Two operators of a kind that read one tensor become one call."""
    from generated_backend import build

    x = wildcard()
    both = Pattern((op(kind).reading(x), op(kind).reading(x)), build)
    return loaded(Backend(name, (both,), CText("")))


def test_two_regions_never_wait_for_each_other() -> None:
    w = GraphWriter(3)
    x, y, z = w.inputs
    first = w.add("MAXIMUM", x, z)
    second = w.add("MINIMUM", first, y)
    third = w.add("MINIMUM", y, z)
    last = w.add("MAXIMUM", third, x)
    graph = w.made(second, last)
    one, other = of_kind("MAXIMUM", "One"), of_kind("MINIMUM", "Other")
    assert sources(partitioned(graph, (one,), "host")) == [(0, 3)]
    assert sources(partitioned(graph, (other,), "host")) == [(1, 2)]
    # Each is convex, and each would have to run between the operators of the other one.
    assert sources(partitioned(graph, (one, other), "host")) == [(0, 3)]
    assert sources(partitioned(graph, (other, one), "host")) == [(1, 2)]
    names = sorted(
        tuple(sorted(group)) for group in Edges(graph).merged([{one} for one in range(4)])
    )
    assert names == [(0, 1), (2, 3)]


@pytest.mark.parametrize(
    ("covered", "found"),
    [
        ((0, 1, 2, 3), [{0, 1, 2, 3}]),
        ((0, 1, 3), [{0, 1}, {3}]),
        ((0, 3), [{0}, {3}]),
        ((1, 2), [{1}, {2}]),
    ],
)
def test_neighbours_of_a_diamond_are_merged(covered: Iterable[int], found: list[set[int]]) -> None:
    w = GraphWriter()
    x, y = w.inputs
    top = w.add("MAXIMUM", x, y)
    graph = w.made(w.add("MINIMUM", w.add("MINIMUM", top, x), w.add("MAXIMUM", top, y)))
    assert Edges(graph).merged([{one} for one in covered]) == found


@pytest.mark.parametrize(
    ("cycles", "engine", "told"),
    [
        ("10.0 ** 9", "generic", "by estimates Extrema takes 1,000,000,000 cycles, and ours "),
        ("0.0", "Extrema", ""),
        ("None", "Extrema", ""),
    ],
)
def test_ours_stays_where_it_is_faster(
    tmp_path: Path, model: Path, cycles: str, engine: str, told: str
) -> None:
    text = COVERING.replace("build=build", f"build=build, estimate=lambda match: {cycles}")
    found = utvm_deploy.compile(model, "host", plugin=written(tmp_path, text)).layers
    assert {one.engine for one in found if one.kind != "ADD"} == {engine}
    assert len(found) == (4 if told else 2) and told in found[0].why


def test_each_pattern_s_function_is_asked(tmp_path: Path, model: Path) -> None:
    """Of two patterns for the same operators, the second one has a call."""
    patterns = """
def refusing(match):
    return "not here"

top = op("MAXIMUM")
both = (op("MINIMUM")(top), op("MAXIMUM")(top))
backend = Backend("Extrema", (Pattern(both, refusing), Pattern(both, build)), CText(""))
"""
    found = utvm_deploy.compile(model, "host", plugin=written(tmp_path, PLUGIN + patterns)).layers
    assert [one.kind for one in found] == ["MAXIMUM+MINIMUM+MAXIMUM", "ADD"]


def test_our_cycles_are_estimated_only_for_a_backend_that_estimates() -> None:
    graph = random_graph(4)
    assert sources(partitioned(graph, backends_of(4), "host"))

    def cycles(graph: Graph, operators: Sequence[Operator]) -> float:
        raise UnsupportedOperator("no kernel of ours")

    for backends in (
        backends_of(4),
        [replace(one, estimate=lambda match: 1.0) for one in backends_of(4)],
    ):
        made = partitioned(graph, backends, "host", cycles=cycles)
        assert sources(made) == sources(partitioned(graph, backends_of(4), "host"))


def test_what_is_refused_is_computed_operator_by_operator(tmp_path: Path, model: Path) -> None:
    refusing = "def build(match):\n    if len(match.operators) > 1:\n        return 'too many'\n"
    text = COVERING.replace("def build(match):\n", refusing)
    found = utvm_deploy.compile(model, "host", plugin=written(tmp_path, text)).layers
    assert [(one.kind, one.engine) for one in found] == [
        ("MAXIMUM", "Extrema"),
        ("MINIMUM", "Extrema"),
        ("MAXIMUM", "Extrema"),
        ("ADD", "generic"),
    ]
    # A pattern without a function keeps its operators together in regions.
    pattern = "top = op('MAXIMUM')\nboth = Pattern((op('MINIMUM')(top), top))\n"
    parts = text.replace("(), CText", "(both,), CText").replace("1:", "2:")
    parts = parts.replace("def covers", f"{pattern}def covers")
    found = utvm_deploy.compile(model, "host", plugin=written(tmp_path, parts, "parts.py")).layers
    assert [one.kind for one in found] == ["MAXIMUM+MINIMUM", "MAXIMUM", "ADD"]


@pytest.mark.parametrize(
    ("old", "new", "told"),
    [
        ("return operation.kind in", "while True: pass\n    return", "covers took more than 0.5 s"),
        ("return operation.kind in", "return 1 / 0 in", r"covers raised ZeroDivisionError: .*line"),
        (
            "return operation.kind in",
            "return 'maybe' or operation.kind in",
            r"covers: it returned 'maybe' for [A-Z]+; return True or False",
        ),
        ("match.graph.tensors, {}", "[], {}", r"build for MAXIMUM\+MINIMUM\+MAXIMUM .* raised Ind"),
        ("build=build", "build=3", "Backend.build is an object of type int, not a function"),
        (", build=build", "", "Backend.covers needs Backend.build; give a function"),
        ("covers=covers, ", "", "Backend.patterns is empty; give at least one Pattern, or"),
        *(
            (
                "build=build",
                f"build=build, estimate=lambda match: {value}",
                r"estimate for .* returned .*; return a number of cycles, or None",
            )
            for value in ("'fast'", "-1", "True", "float('nan')", "float('inf')", "10 ** 400")
        ),
        (
            "return call(match, ",
            "return call(Match(match.graph, match.operators[:1], 'host'), ",
            "returned the call of other tensors; return what call",
        ),
    ],
)
def test_a_backend_that_does_wrong_is_named(
    tmp_path: Path, model: Path, monkeypatch: pytest.MonkeyPatch, old: str, new: str, told: str
) -> None:
    monkeypatch.setattr(regions, "MATCH_SECONDS", 0.5)
    assert old in COVERING
    plugin = written(tmp_path, COVERING.replace(old, new))
    with pytest.raises(PluginError, match=f"^plug-in .*extrema.py: .*{told}") as caught:
        utvm_deploy.compile(model, "host", plugin=plugin)
    assert "\n" not in str(caught.value)


@pytest.mark.tools
def test_a_region_that_lies_about_its_scratch(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    m = ModelWriter()
    x, y = (m.input((1, 5, 7), 0.05, -7) for _ in range(2))
    m.output(extremum(m, "MINIMUM", extremum(m, "MAXIMUM", x, y), y))
    model = m.save(tmp_path / "two.tflite")
    plugin = written(tmp_path, COVERING.replace("scratch_bytes=size", "scratch_bytes=size - 8"))
    assert main(["verify", str(model), "--board", "host", "--plugin", str(plugin)]) == 1
    told = capsys.readouterr().err
    assert "Extrema wrote beyond the scratch of layer 0 (MAXIMUM+MINIMUM" in told


@pytest.mark.parametrize(
    ("operators", "told"),
    [
        ("wildcard()", r"a pattern has an op\(\) without kinds, or none"),
        ("op()", r"a pattern has an op\(\) without kinds, or none"),
        ("(op('ADD'), 'ADD')", "a member of Pattern.operators is an object of type Op"),
        ("op('add')", "Pattern.operators is 'add', which does not match"),
    ],
)
def test_a_pattern_that_is_none(tmp_path: Path, operators: str, told: str) -> None:
    text = f"{PLUGIN}\nbackend = Backend('A', (Pattern({operators}, build),), CText(''))\n"
    with pytest.raises(PluginError, match=told):
        load_plugin(written(tmp_path, text))


def test_only_plug_ins_have_a_time_limit() -> None:
    slow = Backend("Slow", (), CText(""), origin="--slow")
    assert asked(slow, "covers", lambda: time.sleep(0.05), 0.01) is None
    plugin = replace(slow, python_digest="0")
    with pytest.raises(PluginError, match=r"covers took more than 0\.01 seconds"):
        asked(plugin, "covers", lambda: time.sleep(1), 0.01)
