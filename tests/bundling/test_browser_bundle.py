"""The bundle for browsers: its modules in Node, and its page from a file in Chromium."""

from __future__ import annotations

import json
import shutil
import struct
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from bundle_cases import make_case, make_float_case, make_state_case, write
from needed_machine import skip_without_machine
from tflite_writer import ModelWriter

import utvm_deploy
from utvm_deploy.base.errors import BundleError
from utvm_deploy.base.paths import data_dir
from utvm_deploy.boards.board import load_board
from utvm_deploy.bundling import check_bundle
from utvm_deploy.cli.main import main
from utvm_deploy.oracle.reference import run_reference
from utvm_deploy.results.reporting.stored import read_report
from utvm_deploy.targets.wasm.binary import parse

pytestmark = pytest.mark.tools

DIGITS = data_dir("models") / "digits.tflite"
#: Of a module: what it may take besides the weights.
ROOM_BYTES = 40 * 1024
PATIENCE_S = 60.0
#: A stroke, in parts of the drawing field, for each digit that is drawn.
STROKES = {
    "0": [(0.72, 0.5), (0.6, 0.2), (0.4, 0.2), (0.28, 0.5), (0.4, 0.8), (0.6, 0.8), (0.72, 0.5)],
    "1": [(0.4, 0.25), (0.52, 0.1), (0.52, 0.9)],
    "4": [(0.58, 0.9), (0.58, 0.1), (0.28, 0.6), (0.76, 0.6)],
}
DRAW = """
const canvas = document.getElementById("draw"), area = canvas.getBoundingClientRect();
canvas.setPointerCapture = () => {};
const send = (kind, [x, y]) => canvas.dispatchEvent(new PointerEvent(kind, {
  clientX: area.left + x * area.width, clientY: area.top + y * area.height }));
document.getElementById("clear").click();
send("pointerdown", arguments[0][0]);
arguments[0].forEach((place) => send("pointermove", place));
send("pointerup", arguments[0].at(-1));
return document.querySelector("tr.best th").textContent;
"""


@pytest.fixture(scope="module", autouse=True)
def compiler() -> None:
    skip_without_machine(load_board("wasm"))


@pytest.fixture(scope="module")
def digits(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("digits") / "bundle"
    utvm_deploy.bundle(DIGITS, "wasm", folder, format="wasm", latency=False)
    return folder


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    pytest.importorskip("selenium", reason="selenium is not installed (pip install '.[test]')")
    sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "scripts" / "screenshots"))
    from chromium import chromium, missing

    if missing():
        pytest.skip(missing())
    with chromium(tmp_path_factory.mktemp("downloads")) as driver:
        yield driver


def node(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """What Node says in the bundle's folder."""
    if not shutil.which("node"):
        pytest.skip("Node is not installed (sudo apt install nodejs)")
    return subprocess.run(
        ["node", *arguments], cwd=folder, capture_output=True, text=True, timeout=PATIENCE_S
    )


def open_page(browser: Any, folder: Path) -> dict[str, str]:
    """The texts of the page's elements, once its self-test has ended."""
    browser.get((folder / "index.html").as_uri())
    return page_when_tested(browser)


def page_when_tested(browser: Any) -> dict[str, str]:
    deadline = time.monotonic() + PATIENCE_S
    while "running" in (texts := page_texts(browser))["selftest"]:
        assert time.monotonic() < deadline, texts
        time.sleep(0.05)
    assert not [one for one in browser.get_log("browser") if one["level"] == "SEVERE"]
    return texts


def page_texts(browser: Any) -> dict[str, str]:
    script = (
        "return Object.fromEntries([...document.querySelectorAll('[id]')]"
        ".map((one) => [one.id, one.textContent]))"
    )
    found: dict[str, str] = browser.execute_script(script)
    return found


def bitmap(width: int, height: int, colour: tuple[int, int, int]) -> bytes:
    """A picture of one colour."""
    pixels = bytes(reversed(colour)) * (width * height)
    header = struct.pack("<IIIIiiHH6I", 54 + len(pixels), 0, 54, 40, width, height, 1, 24, *[0] * 6)
    return b"BM" + header + pixels


def check_modules(folder: Path, name: str, weights_bytes: int) -> None:
    """Neither module has imports, or takes more than it may."""
    for file in (f"{name}.wasm", f"{name}.scalar.wasm"):
        content = (folder / file).read_bytes()
        found = parse(content, file)
        assert found.imports == []
        assert {*found.exports} == {"memory", "utvm_arena", "utvm_run", "utvm_reset"}
        assert len(content) <= 1.3 * weights_bytes + ROOM_BYTES


def test_the_selftest_finds_equal_and_other_bytes(digits: Path, tmp_path: Path) -> None:
    check_bundle(digits)
    manifest = json.loads((digits / "manifest.json").read_text())
    check_modules(digits, "digits", manifest["weights_bytes"])
    done = node(digits, "selftest.mjs")
    assert done.returncode == 0, done.stderr
    said = [
        f"PASS digits ({how}): 4 sample(s), every output byte equal" for how in ("SIMD", "scalar")
    ]
    assert done.stdout.splitlines() == said
    changed = shutil.copytree(digits, tmp_path / "changed")
    golden = json.loads((changed / "selftest.json").read_text())
    golden["samples"][1]["outputs"][0] = golden["samples"][0]["inputs"][0][:12] + "AA=="
    (changed / "selftest.json").write_text(json.dumps(golden))
    done = node(changed, "selftest.mjs")
    assert done.returncode == 1 and "FAIL digits (SIMD): sample 1, output 0, element" in done.stdout


@pytest.mark.parametrize("make", [make_float_case, make_state_case, make_case])
def test_other_types_and_states(make: Any, tmp_path: Path) -> None:
    case = make(tmp_path, "wasm") if make is not make_case else make(tmp_path, "net", "wasm")
    folder = write(case, tmp_path / "bundle", format="wasm")
    check_modules(folder, case.compiled.name, case.compiled.weights_bytes)
    done = node(folder, "selftest.mjs")
    assert done.returncode == 0 and done.stdout.count("PASS") == 2, done.stdout + done.stderr
    types = (folder / f"{case.compiled.name}.d.mts").read_text()
    if make is make_float_case:
        assert "run(input0: Float32Array, input1: Int8Array): Float32Array;" in types
        assert "): Float32Array | Int8Array;" in types
    if make is make_case:
        assert "run(input0: Int8Array): [Int8Array, Int8Array];" in types
    assert ("net.reset()" in (folder / "README.md").read_text()) == (make is make_state_case)


def test_the_types_are_those_of_typescript(digits: Path, tmp_path: Path) -> None:
    if not shutil.which("tsc"):
        pytest.skip("TypeScript is not installed (npm install -g typescript)")
    good = """
import { load, info, hasSimd, firstMismatch, UtvmError, type Net } from "./bundle/digits.mjs";
const net: Net = await load({ simd: hasSimd() });
const output: Int8Array = net.run(net.quantize([...Array(64).keys()]));
const scores: Float32Array = net.dequantize(output), scale: number | null = info.inputs[0]!.scale;
const wrong: string | null = firstMismatch(net, {}), error: Error = new UtvmError("x");
net.reset();
export { scores, scale, wrong, error };
"""
    shutil.copytree(digits, tmp_path / "bundle")
    options = "--strict --noUncheckedIndexedAccess --noEmit --target es2022 --module nodenext"
    for text, told in (
        (good, ""),
        (good.replace("net.run(", "net.run([1], "), "Expected 1 arguments, but got 2"),
        (good.replace("output: Int8Array", "output: Float32Array"), "is not assignable to type"),
        (good.replace("net.reset()", "new net()"), "not constructable"),
    ):
        (tmp_path / "use.mts").write_text(text)
        done = subprocess.run(
            ["tsc", *options.split(), "use.mts"],
            cwd=tmp_path,
            capture_output=True,
            text=True,
            timeout=PATIENCE_S,
        )
        assert (done.returncode == 0) == (not told) and told in done.stdout, done.stdout


def test_what_is_wrong_is_an_exception(digits: Path) -> None:
    script = """
import { load, UtvmError, info } from "./digits.mjs";
const net = await load();
const told = async (call) => {
  try { await call(); return "nothing"; }
  catch (error) { return error instanceof UtvmError ? error.message : `other: ${error}`; }
};
console.log(JSON.stringify([
  await told(() => net.run()),
  await told(() => net.run(new Uint8Array(64))),
  await told(() => net.run(new Int8Array(63))),
  await told(() => net.run(null)),
  await told(() => net.quantize([1, 2])),
  await told(() => net.dequantize([1], 7)),
  await told(() => load({ module: new Uint8Array(8) })),
  [...net.quantize(new Array(64).fill(0.25))].slice(0, 2).join(),
  info.outputs[0].shape.join(),
]));
"""
    (digits.parent / "try.mjs").write_text(script.replace("./digits", "./bundle/digits"))
    done = node(digits.parent, "try.mjs")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == [
        "digits takes 1 input(s), not 0",
        "input 0 is a Int8Array of 64 elements, not Uint8Array of 64; quantize() makes one of real "
        "numbers",
        "input 0 is a Int8Array of 64 elements, not Int8Array of 63; quantize() makes one of real "
        "numbers",
        "input 0 is a Int8Array of 64 elements, not object of undefined; quantize() makes one of "
        "real numbers",
        "input 0 has 64 elements, not 2",
        "digits has no output 7",
        *[text for text in json.loads(done.stdout)[6:7] if "cannot be loaded" in text],
        "-64,-64",
        "1,10",
    ]


def test_the_page_runs_from_a_file(digits: Path, browser: Any) -> None:
    texts = open_page(browser, digits)
    assert texts["selftest"] == "4 of 4 samples equal to the reference"
    rng = np.random.default_rng(3)
    inputs = [[rng.integers(-128, 128, (1, 8, 8, 1), dtype=np.int8)] for _ in range(8)]
    for (given,), (wanted,) in zip(inputs, run_reference(DIGITS, inputs).outputs, strict=True):
        numbers = " ".join(map(str, given.reshape(-1)))
        script = (
            "document.getElementById('values').value = arguments[0];"
            "document.getElementById('paste').click();"
            "return [...net.run(Int8Array.from(arguments[0].split(' '), Number))]"
        )
        assert browser.execute_script(script, numbers) == wanted.reshape(-1).tolist()
        best = browser.execute_script("return document.querySelector('tr.best th').textContent")
        assert int(best) == int(wanted.argmax())
    assert "ms, SIMD" in page_texts(browser)["time"]
    for wrong, why in (("1 2", "64 numbers are needed, not 2"), ("300 " * 64, "cannot be 300")):
        browser.execute_script(
            "document.getElementById('values').value = arguments[0];"
            "document.getElementById('paste').click()",
            wrong,
        )
        assert why in page_texts(browser)["error"]


def test_a_report_runs_the_model(
    browser: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its page compares the reference's samples, and recognizes a drawn number."""
    monkeypatch.chdir(tmp_path)
    arguments = ["--board", "host", "--try-it", "-o", "report.html"]
    assert main(["report", str(DIGITS), *arguments]) == 0
    browser.get((tmp_path / "report.html").as_uri())
    assert page_when_tested(browser)["selftest"] == "4 of 4 samples equal to the reference"
    assert browser.execute_script(DRAW, STROKES["4"]) == "4"
    again = read_report(tmp_path / "report.html")
    assert again["verify"]["ok"] and "try_it" not in again
    golden = "MODEL.golden.samples[2].outputs[0] = MODEL.golden.samples[1].inputs[0].slice(0, 16);"
    script = f"{golden} return mismatches(net, MODEL.golden).map((one) => one === null)"
    assert browser.execute_script(script) == [True, True, False, True]


def test_a_drawn_number_is_recognized(digits: Path, browser: Any) -> None:
    open_page(browser, digits)
    for digit, stroke in STROKES.items():
        assert browser.execute_script(DRAW, stroke) == digit


@pytest.mark.parametrize(
    ("file", "device"),
    [
        ("kws_ref_model", "drawing"),
        ("vww_96_int8", "camera"),
        ("pretrainedResnet_quant", "camera"),
        ("ad01_int8", "sound"),
    ],
)
def test_shared_models_in_the_page(
    file: str, device: str, browser: Any, shared_models: Path, tmp_path: Path
) -> None:
    """Each shows its own way of taking an input; one that is refused asks for a file."""
    found = utvm_deploy.bundle(
        shared_models / f"{file}.tflite", "wasm", tmp_path / "b", format="wasm", latency=False
    )
    check_modules(tmp_path / "b", found.compiled.name, found.compiled.weights_bytes)
    texts = open_page(browser, tmp_path / "b")
    assert texts["selftest"] == "4 of 4 samples equal to the reference"
    shown = "return [...document.querySelectorAll('.side > div:not([hidden])')].map((x) => x.id)"
    assert browser.execute_script(shown) == [device, "files"]
    button = {"camera": "start", "sound": "record"}.get(device)
    if button is not None:
        browser.find_element("id", button).click()
        deadline = time.monotonic() + PATIENCE_S
        while ": take a file" not in page_texts(browser)["error"]:
            assert time.monotonic() < deadline
            time.sleep(0.05)


def test_a_picture_comes_from_a_file(browser: Any, tmp_path: Path) -> None:
    """Its middle becomes the input: here a red one, of which the model says how red it is."""
    m = ModelWriter()
    x = m.input((1, 4, 4, 3), scale=1 / 255, zero_point=-128)
    weights = np.zeros((3, 48), np.int8)
    for channel in range(3):
        weights[channel, channel::3] = 100
    m.output(m.fully_connected(m.reshape(x, (1, 48)), weights, np.zeros(3), scale=0.1))
    model = m.save(tmp_path / "red.tflite")
    utvm_deploy.bundle(model, "wasm", tmp_path / "b", format="wasm", latency=False)
    open_page(browser, tmp_path / "b")
    picture = tmp_path / "red.bmp"
    picture.write_bytes(bitmap(40, 20, (255, 0, 0)))
    browser.find_element("id", "file").send_keys(str(picture))
    deadline = time.monotonic() + PATIENCE_S
    while not page_texts(browser)["classes"]:
        assert time.monotonic() < deadline, page_texts(browser)["error"]
        time.sleep(0.05)
    assert browser.execute_script("return document.querySelector('tr.best th').textContent") == "0"
    values = browser.execute_script("return document.getElementById('values').value")
    assert values.split() == ["127", "-128", "-128"] * 16


def test_what_no_browser_runs_is_refused(tmp_path: Path) -> None:
    with pytest.raises(BundleError, match=r"no browser runs code of mps2_an500.*--board wasm"):
        utvm_deploy.bundle(DIGITS, "mps2_an500", tmp_path / "b", format="wasm")
    with pytest.raises(BundleError, match="leave --input-rows and --pool out"):
        utvm_deploy.bundle(
            DIGITS, "wasm", tmp_path / "b", format="wasm", latency=False, input_rows=True
        )
    assert load_board("wasm").runs_here and not (tmp_path / "b").exists()
