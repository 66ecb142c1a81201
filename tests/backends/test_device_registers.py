"""A backend that works with registers of the device, which the MPU keeps from other tasks."""

from __future__ import annotations

from pathlib import Path

import pytest
from tflite_writer import ModelWriter

import utvm_deploy
from utvm_deploy.backends.plugins import load_plugin
from utvm_deploy.base.errors import BuildError, PluginError
from utvm_deploy.boards.board import load_board
from utvm_deploy.cli.main import main
from utvm_deploy.compiler.compiled.library_format import read_library, write_library
from utvm_deploy.project import load_backend

# The lamps of these boards: a register that holds what was written to it.
PLUGIN = '''
from math import prod
from utvm_deploy.backends import Backend, CText, Pattern, call

LAMPS = {address:#x}

TEXT = """
#define LAMPS (*(volatile uint32_t *)%#xu)

int32_t switch_on(void *state);
int32_t switch_on(void *state) {{
    (void)state;
    LAMPS = 3u;
    return 0;
}}

static int32_t lamp_relu(const int8_t *x, int32_t count, int32_t least, int8_t *y) {{
    if (LAMPS != 3u) {{
        return -3;
    }}
    for (int32_t i = 0; i < count; i++) {{
        y[i] = x[i] > least ? x[i] : (int8_t)least;
    }}
    return 0;
}}
""" % LAMPS

def build(match):
    source, result = match.first.ends
    text = f"return lamp_relu(input_0, {{prod(match.first.result.shape)}}, least, output_0);"
    return call(match, "lamp_relu", text, numbers={{"least": source.zero_point}})

backend = Backend("Lamps", (Pattern(("RELU",), build),), CText(TEXT),
                  initialize="switch_on", registers={registers})
'''
#: Board -> the register's address, and what a run says. On the second board another unit, which
#: QEMU models, ignores what unprivileged code writes to the register; so the MPU did let it pass.
LAMPS = {
    "mps2_an500": (0x40028000, "all equal to LiteRT"),
    "mps3_an547": (0x49302000, "lamp_relu returned -3"),
}


@pytest.fixture
def model(tmp_path: Path) -> Path:
    m = ModelWriter()
    m.output(m.relu(m.input((1, 4, 5, 3), 0.05, -7), scale=0.05, zero_point=-7))
    return m.save(tmp_path / "relu.tflite")


def plugin(folder: Path, address: int, registers: str) -> Path:
    path = folder / "lamps.py"
    path.write_text(PLUGIN.format(address=address, registers=registers))
    return path


@pytest.mark.tools
@pytest.mark.emulator
@pytest.mark.parametrize("name", LAMPS)
def test_only_its_registers_can_be_used(
    model: Path, tmp_path: Path, name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    address, told = LAMPS[name]
    argv = ["verify", str(model), "--board", name, "--samples", "2", "--plugin"]
    main([*argv, str(plugin(tmp_path, address, f"(({address}, 256),)"))])
    printed = capsys.readouterr()
    assert told in printed.out + printed.err
    assert main([*argv, str(plugin(tmp_path, address, "()"))]) == 1
    assert f"forbidden address at address {address:#010x}, in switch_on" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("registers", "told"),
    [
        ("((0x40000010, 256),)", "give \\(address, bytes\\), both integers and multiples of 256"),
        ("((0x40000000, 0),)", "give \\(address, bytes\\)"),
        ("((0xFFFFFF00, 512),)", "give \\(address, bytes\\)"),
        ("(1,)", "a member of Backend.registers is an object of type int, not a tuple"),
        ("((0, 256),) * 3", "has 3 ranges, and MPUs have room for 2"),
    ],
)
def test_wrong_ranges(tmp_path: Path, registers: str, told: str) -> None:
    with pytest.raises(PluginError, match=told):
        load_plugin(plugin(tmp_path, 0x40028000, registers))


def test_an_archive_keeps_them(model: Path, tmp_path: Path) -> None:
    path = plugin(tmp_path, 0x40028000, "((0x40028000, 256),)")
    compiled = utvm_deploy.compile(model, "mps2_an500", plugin=path)
    write_library(compiled, tmp_path / "relu.tar")
    read = read_library(tmp_path / "relu.tar")
    assert read.external == compiled.external
    assert read.external is not None and read.external.registers == ((0x40028000, 256),)


def test_zephyr_has_no_such_windows(tmp_path: Path) -> None:
    path = plugin(tmp_path, 0x40028000, "((0x40028000, 256),)")
    with pytest.raises(BuildError, match="template zephyr, whose tasks cannot use registers"):
        load_backend(path, load_board("qemu_x86"))
