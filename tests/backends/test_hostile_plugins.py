"""Plug-ins that mean harm, or are careless: each ends in one sentence that names it."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from test_plugin_errors import DIGITS, HEAD

import utvm_deploy
from utvm_deploy.backends import asking, choice, plugins, regions
from utvm_deploy.base import python_file
from utvm_deploy.base.errors import PluginError
from utvm_deploy.cli.main import main

#: Of digits, the SOFTMAX is its own.
OWN = """
def covers(operation):
    return operation.kind == "SOFTMAX"

def build(match):
    return call(match, "f", "return 0;")

more = {}
"""
MADE = "\nbackend = Backend('Mine', (), CODE, **({'covers': covers, 'build': build} | more))\n"
#: An engine that is asked for 8 bytes of state.
ENGINE = """
CODE = CText('''
#include <stdint.h>
#include <string.h>
uint32_t eng_format(void) { return 1u; }
int32_t eng_init(const uint8_t *blob, uint32_t bytes, void *state) {
    (void)blob; (void)bytes;
    memset(state, 1, INIT);
    return 0;
}
int32_t eng_run(void *state, const void *const *x, void *const *y, void *scratch) {
    (void)x; (void)y; (void)scratch;
    memset(state, 1, RUN);
    return 0;
}
void eng_release(void *state) { (void)state; }
'''.replace("INIT", str(init)).replace("RUN", str(run)))

def build(match):
    return serialized(match, "eng", b"12345678", version=1, state_bytes=8)
"""


def written(folder: Path, text: str, name: str = "mine.py") -> Path:
    path = folder / name
    path.write_text(HEAD + OWN + text + MADE)
    return path


def told_of(plugin: Path | list[Path]) -> str:
    with pytest.raises(PluginError) as caught:
        utvm_deploy.compile(DIGITS, "host", plugin=plugin)
    text = str(caught.value)
    assert len(text) < 600 and "\n" not in text
    return text


@pytest.mark.parametrize(
    ("text", "told"),
    [
        (
            "class E(BaseException): pass\nraise E('no')",
            r"loading it raised E: no \(line \d+ of .*mine",
        ),
        (
            "import os\nos._exit(0)",
            r"loading it raised SystemExit: 0 \(line \d+ of .*mine.py\)",
        ),
        ("import os\ndef build(m): os._exit(0)", r"build for SOFTMAX .* raised SystemExit: 0"),
        ("def covers(o): raise GeneratorExit", r"covers raised GeneratorExit \(line \d+ of .*mine"),
        (
            "def covers(o): raise ValueError('x' * 9**6)",
            r"raised ValueError: x+\.\.\. \(line \d+ of .*mine",
        ),
        (
            "class E(Exception):\n    def __str__(self): return 1 / 0\ndef covers(o): raise E",
            r"covers raised E: an object of type E \(line \d+ of .*mine",
        ),
        ("def covers(o): return None", r"covers: it returned None for CONV_2D; return True or Fal"),
        ("def covers(o): return 'x' * 9**6", r"returned 'x+\.\.\. for CONV_2D; return True or"),
        ("def covers(o): return np.ones(2)", r"returned array\(\[1., 1.\]\) for CONV_2D; return"),
        (
            "more = {'estimate': lambda m: float('nan')}",
            r"estimate for SOFTMAX .* returned nan; re",
        ),
        ("more = {'estimate': lambda m: -1}", r"returned -1; return a number of cycles, or None"),
        ("more = {'estimate': lambda m: float('inf')}", r"returned inf; return a number of cycles"),
        ("more = {'estimate': lambda m: 10**4000}", r"returned 10+\.\.\.; return a number of"),
        ("more = {'estimate': lambda m: 'x' * 9**6}", r"returned 'x+\.\.\.; return a number of"),
        ("more = {'of_file': 3}", r"Backend.of_file is an object of type int, not a function"),
        ("more = {'of_file': lambda p: None}", r"of_file gives None; return a Backend"),
        ("more = {'of_file': lambda p: 1 / 0}", r"of_file raised ZeroDivisionError"),
        ("more = {'stand_in': 3}", r"Backend.stand_in is an object of type int, not a Backend"),
        ("more = {'is_apart': 1}", r"Backend.is_apart is an object of type int, not True or False"),
        ("more = {'zephyr_options': 3}", r"Backend.zephyr_options is an object of type int"),
        ("CODE = CText('// \\ud800')", r"CText.text has a character that C cannot have; remove it"),
        ("CODE = CText('\\0')", r"CText.text has a character that C cannot have; remove it"),
        ("def build(m): return call(m, 'f', '\\ud800')", r"call\(\): body has a character that C"),
        (
            "def build(m): return call(m, 'f', '', header='a\"\\n#error')",
            r"call\(\): header has a character that C cannot have there",
        ),
        (
            "huge = {'t': np.broadcast_to(np.int8(0), 1 << 34)}\n"
            "def build(m): return call(m, 'f', '', tables=huge)",
            r"call\(\): the table t has 17,179,869,184 bytes; no board has",
        ),
        (
            "def build(m): return call(m, 'f', '', numbers={'n': 10**4000})",
            r"the number n is 10+\.\.\., which is not an int32",
        ),
        (
            "def covers(o): object.__setattr__(o.graph, 'operators', ()); return False",
            r"covers changed the model's graph; change a copy",
        ),
        (
            "def build(m): object.__setattr__(m.operators[0], 'inputs', ()); return 'no'",
            r"build for SOFTMAX .* changed the model's graph; change a copy",
        ),
        (
            "def build(m): m.graph.tensors[m.each[0].inputs[0]].shape[0] = 3",
            r"raised TypeError: 'tuple' object does not support item assignment",
        ),
        (
            "def covers(o): return o.kind == 'FULLY_CONNECTED'\n"
            "def build(m): m.our_tables['weights'][...] = 0; return 'no'",
            r"raised ValueError: assignment destination is read-only \(line \d+ of .*mine",
        ),
    ],
)
def test_one_sentence_names_the_plugin(tmp_path: Path, text: str, told: str) -> None:
    found = told_of(written(tmp_path, text))
    assert found.startswith(f"plug-in {tmp_path}") and re.search(told, found)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("while True: pass", "loading it took more than 0.2 seconds"),
        ("def covers(o):\n    while True: pass", "covers took more than 0.2 seconds"),
        ("def build(m):\n    while True: pass", "took more than 0.2 seconds; correct the plug-in"),
        (
            "def endless(o):\n    while True: pass\n"
            "two = op('SOFTMAX')(op('FULLY_CONNECTED').where(endless))\n"
            "backend = Backend('Mine', (Pattern(two, build),), CODE)\nMADE = ''",
            "the pattern SOFTMAX+FULLY_CONNECTED took more than 0.2 seconds",
        ),
        ("def of(p):\n    while True: pass\nmore = {'of_file': of}", "of_file took more than 0.2"),
        (
            "def endless(m):\n    while True: pass\nmore = {'estimate': endless}",
            "took more than 0.2 seconds; correct the plug-in",
        ),
        # It ends in the end, but not when it is told to.
        (
            "from time import monotonic\ndef covers(o):\n    end = monotonic() + 1\n"
            "    while monotonic() < end:\n        try:\n"
            "            while monotonic() < end: pass\n"
            "        except BaseException: pass",
            "covers took more than 0.2 seconds",
        ),
    ],
    ids=["loading", "covers", "build", "a condition", "of_file", "estimate", "deaf"],
)
def test_nothing_is_waited_for_without_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str, told: str
) -> None:
    monkeypatch.setattr(python_file, "LOAD_SECONDS", 0.2)
    for module in (asking, choice, plugins, regions):
        for name in ("BUILD_SECONDS", "MATCH_SECONDS"):
            monkeypatch.setattr(module, name, 0.2, raising=False)
    path = written(tmp_path, text)
    path.write_text(path.read_text().replace(MADE, "") if "MADE" in text else path.read_text())
    assert told in told_of(path)


def test_what_it_prints_is_not_among_our_output(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text = "print('loaded')\ndef covers(o):\n    print('x' * 9**6)\n    return False"
    plugin = str(written(tmp_path, text))
    assert main(["compile", str(DIGITS), "--board", "host", "--plugin", plugin, "--json",
                 "-o", str(tmp_path / "digits.tar")]) == 0  # fmt: skip
    out, err = capsys.readouterr()
    assert json.loads(out)["schema"] and "loaded" in err and "x" * 9**6 in err


def test_tables_are_those_of_the_time_of_the_call(tmp_path: Path) -> None:
    """One array for all calls, with other values for each."""
    text = """
buffer = np.zeros(4, np.int8)
def covers(o):
    return o.kind == "CONV_2D"

def build(match):
    buffer[:] = match.first.result.shape[-1]
    return call(match, "f", "return 0;", tables={"t": buffer})
"""
    compiled = utvm_deploy.compile(DIGITS, "host", plugin=written(tmp_path, text), name="d")
    lines = re.findall(r"\{\s*(\d+),\1,\1,\1\s*\}", compiled.sources["d_weights.c"])
    assert len(set(lines)) > 1


@pytest.mark.parametrize(
    ("first", "second", "told"),
    [
        ("", "", "both bring a backend 'Mine'; rename one"),
        ("'Mine'", "'mine!'", "does not match"),
        ("'Vendor-NN'", "'vendor.nn'", "both bring a backend 'vendor.nn'; rename one"),
    ],
)
def test_two_names_that_are_one_in_cmake(
    tmp_path: Path, first: str, second: str, told: str
) -> None:
    some = [written(tmp_path, "", f"{name}.py") for name in "ab"]
    for path, name in zip(some, (first, second), strict=True):
        path.write_text(path.read_text().replace("'Mine'", name or "'Mine'"))
    assert told in told_of(some)


@pytest.mark.tools
@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("CODE = CText('#include <stdlib.h>')\n"
         "def build(m): return call(m, 'f', 'exit(0);\\nreturn 0;')",
         r"layer 7 \(SOFTMAX .*\) of Mine: .* went away"),
        ("init, run = 8, 24" + ENGINE,
         r"layer 7 \(SOFTMAX .*\) of Mine: memory after the arena of digits was overwritten"),
        ("init, run = 24, 8" + ENGINE,
         r"Mine prepares host: memory after the arena of digits was overwritten"),
        ("def build(m): return call(m, 'f', 'return nothing;')",
         r"‘nothing’ undeclared .*; the model's sources have C of Mine$"),
    ],
    ids=["exits", "state in a run", "state at the start", "does not compile"],
)  # fmt: skip
def test_c_that_does_harm(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], text: str, told: str
) -> None:
    argv = ["verify", str(DIGITS), "--board", "host", "--samples", "1", "--plugin"]
    assert main([*argv, str(written(tmp_path, text))]) == 1
    assert re.search(told, capsys.readouterr().err.strip())


@pytest.mark.tools
def test_a_plugin_that_computes_no_layer_is_told(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = written(tmp_path, "def covers(operation):\n    return False\n")
    assert main(["verify", str(DIGITS), "--board", "host", "--samples", "1"]) == 0
    assert "none of the layers" not in capsys.readouterr().out
    argv = ["verify", str(DIGITS), "--board", "host", "--samples", "1", "--plugin", str(path)]
    assert main(argv) == 0
    assert "Mine computes none of the layers" in capsys.readouterr().out
