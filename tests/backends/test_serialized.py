"""Regions as bytes that an engine in C runs: the example, and what a start refuses."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest
from tflite_writer import ModelWriter
from vendor_library import EXAMPLES

import utvm_deploy
from utvm_deploy.backends.plugins import load_plugin
from utvm_deploy.base.errors import PluginError
from utvm_deploy.cli.main import main
from utvm_deploy.compiler.compiled.library_format import read_library, write_library

TIMEOUT_S = 60
PLUGIN = EXAMPLES / "serialized_engine" / "plugin.py"
#: Versions of the example's bytes and header with which something is wrong.
TORN = """
import numpy as np
from dataclasses import replace
from utvm_deploy.backends import ConstantArgument

def build(match, right=build):
    made = right(match)
    def torn(one):
        if not isinstance(one, ConstantArgument):
            return one
        data = one.data.copy()
        data[{byte}] ^= {bits}
        return replace(one, data=data{cut})
    return replace(made, arguments=tuple(map(torn, made.arguments)))

backend = Backend("Tiny engine", (), code, covers=covers, build=build)
"""


def network(path: Path) -> Path:
    """Two dense layers with RELU between them; the first one's output is an output, too."""
    random = np.random.default_rng(7)
    m = ModelWriter()
    x = m.float_input((2, 6))

    def dense(source: int, inputs: int, outputs: int) -> int:
        weights = m.constant(random.normal(size=(outputs, inputs)).astype(np.float32))
        bias = m.constant(random.normal(size=outputs).astype(np.float32))
        options = ("FullyConnectedOptions", {})
        return m.node("FULLY_CONNECTED", [source, weights, bias], (2, outputs), options)

    a = dense(x, 6, 5)
    m.output(a, dense(m.node("RELU", [a], (2, 5)), 5, 3))
    return m.save(path)


@pytest.fixture
def model(tmp_path: Path) -> Path:
    return network(tmp_path / "net.tflite")


def changed(folder: Path, *, more: str = "", engine: tuple[str, str] = ("", "")) -> Path:
    """A copy of the example with other Python at its end, or with other C."""
    shutil.copytree(PLUGIN.parent, folder)
    with (folder / "plugin.py").open("a") as file:
        file.write(more)
    text = (folder / "engine.c").read_text()
    assert engine[0] in text
    (folder / "engine.c").write_text(text.replace(*engine))
    return folder / "plugin.py"


def verify(model: Path, plugin: Path, board: str = "host") -> int:
    argv = ["verify", str(model), "--board", board, "--samples", "2", "--plugin", str(plugin)]
    return main(argv)


@pytest.mark.tools
def test_a_region_is_a_table_that_the_engine_runs(model: Path, tmp_path: Path) -> None:
    compiled = utvm_deploy.compile(model, "host", plugin=PLUGIN)
    (layer,) = compiled.layers
    assert (layer.engine, len(layer.outputs)) == ("Tiny engine", 2)
    assert [one.engines for one in compiled.externals] == [("tiny",)]
    assert verify(model, PLUGIN) == 0
    write_library(compiled, tmp_path / "net.tar")
    assert read_library(tmp_path / "net.tar").initialized


@pytest.mark.emulator
def test_it_runs_on_a_board(model: Path) -> None:
    assert verify(model, PLUGIN, "mps2_an386") == 0


@pytest.mark.tools
@pytest.mark.parametrize(
    ("more", "engine", "told"),
    [
        (TORN.format(byte=40, bits=16, cut=""), ("", ""), "its bytes are torn"),
        (TORN.format(byte=12, bits=1, cut=""), ("", ""), "its bytes are torn"),
        (TORN.format(byte=40, bits=0, cut="[:-4]"), ("", ""), "its bytes are torn"),
        (TORN.format(byte=1, bits=1, cut=""), ("", ""), "its bytes are for another engine"),
        ("VERSION = 2\n", ("", ""), "the engine is older than the format of its bytes"),
        ("", ("return bytes < sizeof(int32_t);", "return bytes ? -7 : 0;"), "returned -7"),
        ("", ("return bytes < sizeof(int32_t);", "return bytes ? 124 : 0;"), "not in -100 to 100"),
        ("", ("return bytes < sizeof(int32_t);", "return bytes ? 256 : 0;"), "not in -100 to 100"),
    ],
    ids=[
        *("torn", "another length", "cut", "another engine", "older engine", "its own refusal"),
        *("status of ours", "status beyond a byte"),
    ],
)
def test_a_start_names_the_layer_and_what_is_wrong(
    model: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    more: str,
    engine: tuple[str, str],
    told: str,
) -> None:
    assert verify(model, changed(tmp_path / "copy", more=more, engine=engine)) == 1
    said = capsys.readouterr().err
    assert "Tiny engine refused to prepare layer 0 (FULLY_CONNECTED+" in said
    assert told in said


@pytest.mark.tools
def test_firmware_starts_runs_and_releases_it(model: Path, tmp_path: Path) -> None:
    compiled = utvm_deploy.compile(model, "host", plugin=PLUGIN)
    for name, text in compiled.sources.items():
        (tmp_path / name).write_text(text)
    (tmp_path / "main.c").write_text("""
#include "net.h"
static uint8_t arena[NET_ARENA_BYTES] __attribute__((aligned(NET_ARENA_ALIGNMENT)));
int main(void) {
    int32_t status = 1;
    net_initialize(arena, &status);
    net_run(arena);
    const int first = (int)status | (arena[NET_STATUS_OFFSET] != 0) << 1;
    net_release(arena);
    net_run(arena); // which the engine refuses from here on
    return first | ((int8_t)arena[NET_STATUS_OFFSET] != -1) << 2;
}
""")
    sources = map(str, tmp_path.glob("*.c"))
    command = ["cc", "-std=c99", "-Wall", "-Wextra", "-pedantic", "-Werror", *sources, "-o", "net"]
    subprocess.run(command, cwd=tmp_path, check=True, timeout=TIMEOUT_S)
    assert subprocess.run([tmp_path / "net"], timeout=TIMEOUT_S).returncode == 0


@pytest.mark.tools
def test_a_refusal_ends_what_was_prepared_before(tmp_path: Path) -> None:
    random = np.random.default_rng(8)
    m = ModelWriter()
    x, options = m.float_input((1, 4)), ("FullyConnectedOptions", {})
    for _ in range(3):
        weights = m.constant(random.normal(size=(4, 4)).astype(np.float32))
        bias = m.constant(random.normal(size=4).astype(np.float32))
        y = m.node("FULLY_CONNECTED", [x, weights, bias], (1, 4), options)
        x = m.node("TANH", [y], (1, 4))
    m.output(x)
    prepared = ("return bytes < sizeof(int32_t);", "extern int tiny_begin(void); "
                "return bytes ? tiny_begin() : -1;")  # fmt: skip
    plugin = changed(tmp_path / "copy", engine=prepared)
    text = (plugin.parent / "engine.c").read_text()
    ended = "(const int32_t *)0;\n}\n\nstatic float float_of"
    assert ended in text
    text = text.replace(
        ended, ended.replace("\n}", " extern void tiny_end(void); tiny_end();\n}", 1)
    )
    (plugin.parent / "engine.c").write_text(text)
    compiled = utvm_deploy.compile(m.save(tmp_path / "net.tflite"), "host", plugin=plugin)
    for name, source in compiled.sources.items():
        (tmp_path / name).write_text(source)
    (tmp_path / "main.c").write_text("""
#include "net.h"
static uint8_t arena[NET_ARENA_BYTES] __attribute__((aligned(NET_ARENA_ALIGNMENT)));
int tiny_begin(void);
void tiny_end(void);
static int begun, ended;
int tiny_begin(void) { return ++begun == 3 ? -5 : 0; }
void tiny_end(void) { ended++; }
int main(void) {
    int32_t status = 0;
    net_initialize(arena, &status);
    return !(status == (1 << 24) + 256 * 4 + 251 && begun == 3 && ended == 2);
}
""")
    command = ["cc", "-std=c99", "-Wall", "-Wextra", *map(str, tmp_path.glob("*.c")), "-o", "net"]
    subprocess.run(command, cwd=tmp_path, check=True, timeout=TIMEOUT_S)
    assert subprocess.run([tmp_path / "net"], timeout=TIMEOUT_S).returncode == 0


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ("'tiny-engine', b'1', version=1", "engine 'tiny-engine' is not a name in C"),
        ("'tiny', b'', version=1", "blob has no bytes"),
        ("'tiny', b'1', version=-1", "version is -1; give 0 to 4294967295"),
        ("'tiny', b'1', version=1, state_bytes=1.5", "state_bytes is 1.5; give 0 to"),
        ("'tiny', b'1', version=1, scratch_bytes=-1", "scratch_bytes is -1"),
    ],
)
def test_wrong_values_are_named(model: Path, tmp_path: Path, given: str, told: str) -> None:
    more = f"""
def build(match):
    return serialized(match, {given})
backend = Backend("Tiny engine", (), code, covers=covers, build=build)
"""
    plugin = load_plugin(changed(tmp_path / "copy", more=more))
    with pytest.raises(PluginError, match=told):
        utvm_deploy.compile(model, "host", plugin=plugin)
