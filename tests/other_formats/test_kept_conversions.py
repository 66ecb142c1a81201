"""Conversions in the cache, and utvm convert, which writes them as files."""

from __future__ import annotations

import json
import logging
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
from ai_edge_litert.interpreter import Interpreter, OpResolverType
from onnx_writer import OnnxWriter

from utvm_deploy.base import cache, process
from utvm_deploy.base.errors import ModelError
from utvm_deploy.cli.main import main
from utvm_deploy.frontend import formats
from utvm_deploy.frontend.files import kept_conversions
from utvm_deploy.frontend.files.given_shapes import Chosen, given_only
from utvm_deploy.frontend.formats import converted

pytestmark = pytest.mark.tools


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    formats._converted.cache_clear()
    monkeypatch.setenv("UTVM_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A quantized ONNX file."""
    writer = OnnxWriter((1, 24))
    dense = writer.add("Gemm", "x", writer.normal(24, 10), writer.normal(10))
    return writer.quantized(tmp_path_factory.mktemp("model"), writer.add("Relu", dense))


@pytest.fixture
def children(monkeypatch: pytest.MonkeyPatch) -> list[list[str]]:
    """The command lines of the children that were started."""
    started: list[list[str]] = []
    run = formats.process.run

    def told(argv: list[str], **options: object) -> process.Completed:
        started.append(argv)
        return run(argv, **options)  # type: ignore[arg-type]

    monkeypatch.setattr(formats.process, "run", told)
    return started


def again(path: Path) -> bytes:
    """The conversion, as the next verb asks for it."""
    formats._converted.cache_clear()
    data = converted(path)
    assert data is not None
    return data


def entry(own_cache: Path) -> Path:
    (found,) = (own_cache / "conversions").iterdir()
    return found


def test_a_file_is_converted_once(model: Path, children: list[list[str]]) -> None:
    first = again(model)
    assert again(model) == first and len(children) == 1


def test_another_file_name_shape_or_version_is_converted_again(
    model: Path, tmp_path: Path, children: list[list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    again(model)
    renamed = tmp_path / "renamed.onnx"
    renamed.write_bytes(model.read_bytes())
    again(renamed)
    with given_only(Chosen({"x": (1, 24)})):
        again(model)
    monkeypatch.setattr(kept_conversions, "_version", lambda package: f"{package} of tomorrow")
    again(model)
    monkeypatch.setattr(kept_conversions, "_code_digest", lambda: "other code")
    again(model)
    assert len(children) == 5


def test_another_version_of_each_package_is_another_key(monkeypatch: pytest.MonkeyPatch) -> None:
    # What frontend/ imports, and the names of the packages that have it.
    used = ("onnx", "torch", "torchao", "apache-tvm", "flatbuffers", "tflite", "ai-edge-litert")
    real, key = kept_conversions._version, kept_conversions.conversion_key("m", "", "")
    for package in used:
        assert real(package) != "absent"
        monkeypatch.setattr(
            kept_conversions, "_version", lambda one, new=package: "9" if one == new else real(one)
        )
        assert kept_conversions.conversion_key("m", "", "") != key, package


def test_other_content_under_the_name_is_converted_again(
    tmp_path: Path, children: list[list[str]]
) -> None:
    made = []
    for outputs in (3, 4):
        writer = OnnxWriter((1, 8))
        folder = tmp_path / str(outputs)
        folder.mkdir()
        file = writer.quantized(folder, writer.add("MatMul", "x", writer.normal(8, outputs)))
        made.append(again(file.replace(tmp_path / "model.onnx")))
    assert len(children) == 2 and made[0] != made[1]


def test_a_damaged_entry_is_made_again(
    model: Path, own_cache: Path, children: list[list[str]], caplog: pytest.LogCaptureFixture
) -> None:
    first = again(model)
    damages: list[Callable[[Path], object]] = [
        lambda path: path.write_bytes(first[:-1] + bytes([first[-1] ^ 1])),
        lambda path: os.truncate(path, len(first) // 2),
        lambda path: path.write_bytes(b""),
        Path.unlink,
    ]
    for number, damage in enumerate(damages):
        caplog.clear()
        damage(entry(own_cache) / "model.tflite")
        assert again(model) == first
        assert len(children) == number + 2
        (line,) = [one for one in caplog.records if one.levelno == logging.WARNING]
        assert "is damaged" in line.getMessage()


def test_two_writers_leave_one_entry(model: Path, own_cache: Path) -> None:
    key = "a" * 64
    code = (
        "import sys; from utvm_deploy.frontend.files import kept_conversions as kept\n"
        f"for _ in range(20): kept.keep_conversion('{key}', sys.argv[1].encode() * 9999)\n"
        f"print(set(kept.kept_conversion('{key}')))"
    )
    environment = {**os.environ, "UTVM_CACHE": str(own_cache)}
    writers = [
        subprocess.Popen([sys.executable, "-c", code, "x"], env=environment, stdout=subprocess.PIPE)
        for _ in range(3)
    ]
    said = [writer.communicate(timeout=120)[0].strip() for writer in writers]
    assert said == [b"{120}"] * 3
    assert [path.name for path in (own_cache / "conversions").iterdir()] == [key]


def test_a_cache_that_cannot_be_written_is_no_error(
    model: Path, own_cache: Path, children: list[list[str]]
) -> None:
    own_cache.write_text("a file where the folder should be")
    assert again(model) == again(model)
    assert len(children) == 2


def test_a_refusal_is_not_kept(tmp_path: Path, own_cache: Path) -> None:
    writer = OnnxWriter((1, "steps", 4))
    path = writer.quantized(tmp_path, writer.add("MatMul", "x", writer.normal(4, 4)))
    for _ in range(2):
        with pytest.raises(ModelError):
            again(path)
    assert not (own_cache / "conversions").exists()


def test_a_refusal_is_asked_for_once(
    tmp_path: Path, children: list[list[str]], capsys: pytest.CaptureFixture[str]
) -> None:
    """utvm inspect imports the file, and looks for what is wrong with it after that."""
    writer = OnnxWriter((1, "steps", 4))
    path = writer.quantized(tmp_path, writer.add("MatMul", "x", writer.normal(4, 4)))
    assert main(["inspect", str(path)]) == 1
    assert len(children) == 1 and "is not fixed" in capsys.readouterr().err


def test_a_file_that_changes_meanwhile_is_not_kept(
    model: Path, tmp_path: Path, own_cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "changing.onnx"
    path.write_bytes(model.read_bytes())
    convert = formats._convert

    def late(path: Path, shapes: str) -> bytes | ModelError:
        done = convert(path, shapes)
        path.write_bytes(b"another file")
        return done

    monkeypatch.setattr(formats, "_convert", late)
    assert again(path)
    assert not (own_cache / "conversions").exists()


def test_old_conversions_are_removed(own_cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(cache.MOST_BYTES, "conversions", 1 << 16)  # type: ignore[index]
    for number in range(40):
        kept_conversions.keep_conversion(f"0{number:063}", bytes(8000))
    left = {path.name for path in (own_cache / "conversions").iterdir()}
    assert f"0{39:063}" in left and len(left) < 10


def test_convert_writes_the_model(
    model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "out.tflite"
    assert main(["convert", str(model), "-o", str(out), "--json"]) == 0
    facts = json.loads(capsys.readouterr().out)
    assert facts["schema"] == "utvm.convert/1" and facts["bytes"] == out.stat().st_size
    interpreter = Interpreter(str(out), experimental_op_resolver_type=OpResolverType.BUILTIN_REF)
    interpreter.allocate_tensors()
    (source,), (target,) = interpreter.get_input_details(), interpreter.get_output_details()
    x = np.random.default_rng(3).normal(0, 1, (1, 24)).astype(np.float32)
    interpreter.set_tensor(source["index"], x)
    interpreter.invoke()
    (theirs,) = onnxruntime.InferenceSession(model).run(None, {"x": x})
    ours = interpreter.get_tensor(target["index"])
    assert theirs.std() > 0.1 and np.abs(ours - theirs).max() < 0.05 * theirs.std()


@pytest.mark.parametrize(
    "arguments,code,said",
    [
        (["{float}", "-o", "out.tflite"], 1, "is a float model; quantize it: utvm quantize"),
        (["digits.tflite", "-o", "out.tflite"], 1, "float one, run utvm quantize digits.tflite"),
        (["model.relax", "-o", "out.tflite"], 1, "only .onnx and .pt2 files can"),
        (["absent.onnx", "-o", "out.tflite"], 1, "cannot read the model absent.onnx"),
        (["{model}", "-o", "out.onnx"], 2, "give a name that ends so"),
        (["{model}", "-o", "absent/out.tflite"], 1, "there is no folder absent"),
    ],
)
def test_convert_refuses_in_a_sentence(
    arguments: list[str],
    code: int,
    said: str,
    model: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    digits = Path(__file__).parents[2] / "models" / "digits.tflite"
    Path("digits.tflite").write_bytes(digits.read_bytes())
    writer = OnnxWriter((1, 4))
    real = writer.save(tmp_path / "float.onnx", writer.add("Relu", "x"))
    onnx.save(onnx.shape_inference.infer_shapes(onnx.load(real)), real)
    line = [part.format(model=model, float=real) for part in arguments]
    before = set(tmp_path.iterdir())
    assert main(["convert", *line]) == code
    told = capsys.readouterr().err
    assert said in told and told.count("\n") == 1
    assert {path.name for path in set(tmp_path.iterdir()) - before} <= {"cache"}


def test_a_dry_run_writes_nothing(model: Path, tmp_path: Path, own_cache: Path) -> None:
    out = tmp_path / "out.tflite"
    assert main(["convert", str(model), "-o", str(out), "--dry-run"]) == 0
    assert not out.exists() and not own_cache.exists()
