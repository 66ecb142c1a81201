"""What may be wrong with a plug-in's file becomes one sentence that names it."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import utvm_deploy
from utvm_deploy.backends.plugins import load_plugin
from utvm_deploy.base.errors import BuildError, PluginError, UtvmError
from utvm_deploy.base.paths import data_dir
from utvm_deploy.boards.board import load_board
from utvm_deploy.cli.main import main
from utvm_deploy.project import load_backend

DIGITS = data_dir("models") / "digits.tflite"

HEAD = """\
from pathlib import Path
import numpy as np
from utvm_deploy.backends import *

def build(match):
    return call(match, "f", "return 0;")

def reference(match, inputs):
    return inputs

def infer(inputs, options):
    return []

CODE = CText("")
"""


def written(folder: Path, text: str) -> Path:
    path = folder / "mine.py"
    path.write_text(HEAD + text)
    return path


def of_patterns(text: str) -> str:
    return f"backend = Backend('mine', {text}, CODE)\n"


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("def (", r"loading it raised SyntaxError: .* \(line 15 of .*mine.py\)"),
        ("import no_such_module", r"loading it raised ModuleNotFoundError: .* \(line 15 of .*mine"),
        ("raise SystemExit(3)", r"loading it raised SystemExit: 3 \(line 15 of .*mine.py\)"),
        ("x = 1", r"defines no name 'backend'; set backend = Backend\(...\)"),
        ("backend = 3", r"its name 'backend' is an object of type int, not a utvm_deploy.backends"),
        ("backend = Backend()", r"loading it raised TypeError: .* missing 3 required"),
        (of_patterns("()"), r"Backend.patterns is empty"),
        (of_patterns("[]"), r"Backend.patterns is an object of type list, not a tuple"),
        (of_patterns("(1,)"), r"a member of Backend.patterns is an object of type int"),
        (of_patterns("(Pattern('ADD', build),)"), r"Pattern.operators is an object of type str"),
        (of_patterns("(Pattern((), build),)"), r"Pattern.operators is empty"),
        (of_patterns("(Pattern(('add',), build),)"), r"Pattern.operators is 'add', which does not"),
        (of_patterns("(Pattern(('CONV2D',), build),)"), r"has 'CONV2D'; did you mean 'CONV_2D'\?"),
        (of_patterns("(Pattern(('ADD',), 3),)"), r"Pattern.build of ADD is an object of type int"),
        (of_patterns("(Pattern(('CUSTOM A',), build),)"), r"CUSTOM A has no reference"),
        (of_patterns("(Pattern(('CUSTOM A',), build, reference),)"), r"CUSTOM A has no infer"),
        (
            of_patterns("(Pattern(('CUSTOM A', 'ADD'), build, reference, infer),)"),
            r"CUSTOM A\+ADD has a custom operator among others",
        ),
        (
            "backend = Backend('a/b', (Pattern(('ADD',), build),), CODE)",
            r"Backend.name is 'a/b', which does not match",
        ),
        (
            "backend = Backend('a', (Pattern(('ADD',), build),), 'int x;')",
            r"Backend.code is an object of type str, not CText or StaticLibrary",
        ),
        (
            "backend = Backend('a', (Pattern(('ADD',), build),), CText(3))",
            r"CText.text is an object of type int, not a text",
        ),
        (
            "backend = Backend('a', (Pattern(('ADD',), build),), CODE, initialize='f()')",
            r"Backend.initialize is 'f\(\)', which does not match",
        ),
        (
            "backend = Backend('a', (Pattern(('ADD',), build),), CODE, state_bytes=8)",
            r"Backend.state_bytes is 8, and nothing initializes them",
        ),
    ],
)
def test_a_file_that_is_no_plugin(tmp_path: Path, text: str, told: str) -> None:
    path = written(tmp_path, text)
    with pytest.raises(PluginError, match=told) as caught:
        load_plugin(path)
    assert str(caught.value).startswith(f"plug-in {path}")
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("body", "told"),
    [
        ("return 3", r"returned an object of type int; return what utvm_deploy.backends.call"),
        ("return None", r"returned an object of type NoneType"),
        ("return 1 / 0", r"raised ZeroDivisionError: division by zero \(line 16 of .*mine.py\)"),
        ("raise SystemExit(3)", r"raised SystemExit: 3 \(line 16 of .*mine.py\)"),
        ("return call(match, 'f', '', numbers={'int': 1})", r"name 'int' has a meaning already"),
        ("return call(match, 'f', '', numbers={'input_0': 1})", r"name 'input_0' has a meaning"),
        ("return call(match, 'f(', 'return 0;')", r"call\(\): 'f\(' is not a name in C"),
        ("return call(match, 'f', 3)", r"call\(\): body is not a text but of type int"),
        ("return call(match, 'f', '', numbers={'n': 2**31})", r"the number n is 2147483648"),
        ("return call(match, 'f', '', numbers={'n': 1.5})", r"the number n is 1.5, which is not"),
        ("return call(match, 'f', '', tables={'t': [1]})", r"the table t is not an array"),
        ("return call(match, 'f', '', tables={'t': np.zeros(3)})", r"the table t is not an array"),
        ("return call(match, 'f', '', scratch_bytes=-1)", r"scratch_bytes is -1; give 0 to "),
        (
            "return call(match, 'f', '', numbers={'n': 1}, tables={'n': np.ones(1, 'int8')})",
            r"n is both a table and a number",
        ),
    ],
)
def test_a_build_that_does_wrong(tmp_path: Path, body: str, told: str) -> None:
    text = f"def build(match):\n    {body}\n"
    path = written(tmp_path, text + of_patterns("(Pattern(('SOFTMAX',), build),)"))
    with pytest.raises(PluginError, match=rf"^plug-in .*: build for SOFTMAX '.*{told}") as caught:
        utvm_deploy.compile(DIGITS, "host", plugin=path)
    assert "\n" not in str(caught.value)


def test_a_body_may_ignore_what_it_knows(tmp_path: Path) -> None:
    """Compilers warn of parameters that a function does not name, and warnings are errors."""
    path = written(tmp_path, of_patterns("(Pattern(('SOFTMAX',), build),)"))
    compiled = utvm_deploy.compile(DIGITS, "host", plugin=path, name="digits")
    ignored = "    (void)input_0;\n    (void)output_0;\n    return 0;\n}"
    assert ignored in compiled.sources["digits_kernels.c"]


def test_a_refusal_with_a_reason_leaves_the_layer_to_us(tmp_path: Path) -> None:
    text = "def build(match):\n    return 'it is too small'\n"
    path = written(tmp_path, text + of_patterns("(Pattern(('SOFTMAX',), build),)"))
    compiled = utvm_deploy.compile(DIGITS, "host", plugin=path)
    (layer,) = [layer for layer in compiled.layers if layer.kind == "SOFTMAX"]
    assert layer.engine == "generic" and "it is too small" in layer.why
    assert compiled.external is None


def test_names_that_are_not_there(tmp_path: Path) -> None:
    with pytest.raises(PluginError, match=r"nowhere.py: there is no such file; give a Python file"):
        load_plugin(tmp_path / "nowhere.py")
    with pytest.raises(PluginError, match="plug-in nobodys: no installed package offers it"):
        load_plugin("nobodys")
    folder = tmp_path / "folder.py"
    folder.mkdir()
    with pytest.raises(PluginError, match="there is no such file"):
        load_plugin(folder)
    binary = tmp_path / "binary.py"
    binary.write_bytes(bytes(range(256)))
    with pytest.raises(PluginError, match="loading it raised"):
        load_plugin(binary)


@pytest.mark.parametrize(
    ("code", "told"),
    [
        (
            "StaticLibrary(Path('/nowhere/a.a'))",
            r"there is no library /nowhere/a.a; build it first",
        ),
        ("StaticLibrary('/nowhere/a.a')", r"StaticLibrary takes a pathlib.Path"),
        ("StaticLibrary(Path(__file__))", r"mine.py is not a static library"),
        ("StaticLibrary(Path(__file__), (Path('/nowhere'),))", r"there is no folder /nowhere"),
    ],
)
def test_a_library_that_is_not_there(tmp_path: Path, code: str, told: str) -> None:
    path = written(tmp_path, f"backend = Backend('a', (Pattern(('ADD',), build),), {code})")
    with pytest.raises((PluginError, BuildError), match=told):
        load_backend(path, load_board("host"))


def test_another_core(tmp_path: Path) -> None:
    text = "backend = Backend('a', (Pattern(('ADD',), build),), CODE, cores=('cortex-m55',))"
    path = written(tmp_path, text)
    assert load_backend(path, load_board("mps3_an547")).cores == ("cortex-m55",)
    with pytest.raises(PluginError, match=r"a is for cortex-m55, not for cortex-m7, the core of"):
        load_backend(path, load_board("mps2_an500"))


def test_the_command_line_says_it_in_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = written(tmp_path, "x = 1")
    output = tmp_path / "digits.tar"
    output.write_text("kept")
    argv = ["compile", str(DIGITS), "--board", "host", "-o", str(output)]
    assert main([*argv, "--plugin", str(path)]) == 1
    assert re.search(
        r"^error: plug-in .*mine.py defines no name 'backend'", capsys.readouterr().err
    )
    assert output.read_text() == "kept"


@pytest.mark.tools
def test_a_function_that_its_library_lacks(tmp_path: Path) -> None:
    from vendor_library import vendor_plugin

    missing = {"plugin.py": ('        "vendor_dense_s8",', '        "vendor_dense_s9",')}
    plugin = vendor_plugin(tmp_path / "vendor", changes=missing)
    with pytest.raises(
        UtvmError, match=r"calls vendor_dense_s9, which the library of Vendor dense does not define"
    ):
        utvm_deploy.compile(DIGITS, "host", plugin=plugin)
    missing = {"plugin.py": ('initialize="vendor_init"', 'initialize="vendor_begin"')}
    plugin = vendor_plugin(tmp_path / "other", changes=missing)
    with pytest.raises(BuildError, match=r"does not define vendor_begin, which is to prepare"):
        utvm_deploy.compile(DIGITS, "host", plugin=plugin)
    with pytest.raises(BuildError, match="was built for another machine"):
        utvm_deploy.compile(DIGITS, "mps2_an500", plugin=plugin)
