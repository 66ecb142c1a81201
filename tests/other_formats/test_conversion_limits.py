"""Whatever a file of another format makes its reader do, it ends in one sentence."""

from __future__ import annotations

import re
import sys
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx_mutations import mutant
from onnx_writer import OnnxWriter

from utvm_deploy.base import process
from utvm_deploy.base.errors import ModelError, UnsupportedOperator
from utvm_deploy.frontend import conversion, formats
from utvm_deploy.frontend.tflite import load_model

QUICK, LONG = 120, 5_000
CHILD = Path(__file__).with_name("onnx_mutations.py")
#: What a child does instead of reading the file.
CHILD_CODE = """
import sys
from pathlib import Path
from utvm_deploy.base.errors import UnsupportedOperator
from utvm_deploy.frontend import conversion
def convert(path):
    {work}
conversion.CONVERTERS[".onnx"] = conversion.Converter(lambda path: None, convert, "ONNX")
sys.exit(conversion.main(Path(sys.argv[1]), Path(sys.argv[2])))
"""


@pytest.fixture(autouse=True)
def forked_children() -> None:
    """The children here are started as users start them."""


def said_of(work: str, path: Path, monkeypatch: pytest.MonkeyPatch) -> ModelError:
    """What becomes of an import whose reader does ``work``."""
    run = process.run

    def instead(argv: Sequence[str], **options: Any) -> process.Completed:
        assert argv[1:3] == ["-m", conversion.__name__]
        return run([argv[0], "-c", CHILD_CODE.format(work=work), *argv[3:]], **options)

    monkeypatch.setattr(process, "run", instead)
    monkeypatch.setenv("UTVM_IMPORT_SECONDS", "1")
    path.write_bytes(b"model")
    with pytest.raises(ModelError, match=re.escape(str(path))) as caught:
        formats.converted(path)
    assert "\n" not in str(caught.value)
    return caught.value


@pytest.mark.slow
@pytest.mark.parametrize(
    "work,said",
    [
        ("return bytes(2**31)", "takes more than 1,024 MiB of memory"),
        (
            "while True: pass",
            "more than 1 s of processor time; set UTVM_IMPORT_SECONDS",
        ),
        ("import os; os.abort()", "crashed with SIGABRT"),
        ("import os; os._exit(3)", "status 3 (no reason given)"),
        ("return 1 // 0", "is a bug of utvm_deploy or the file is damaged"),
        ("raise UnsupportedOperator(f'{path}: no')", "model.onnx: no"),
    ],
)
def test_a_reader_out_of_hand(
    work: str, said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    error = said_of(work, tmp_path / "model.onnx", monkeypatch)
    assert said in str(error)
    assert isinstance(error, UnsupportedOperator) == str(error).endswith(": no")


@pytest.mark.parametrize("given", ["0", "-1", "ten", "1e9", "86401"])
def test_a_limit_that_is_no_number_of_seconds(
    given: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("UTVM_IMPORT_SECONDS", given)
    path = tmp_path / "model.onnx"
    path.write_bytes(b"model")
    with pytest.raises(ModelError, match=f"UTVM_IMPORT_SECONDS is '{given}'; give it an integer"):
        formats.converted(path)


def test_a_file_too_large_is_not_opened(tmp_path: Path) -> None:
    path = tmp_path / "model.pt2"
    with path.open("wb") as file:
        file.truncate(formats.MAX_FILE_BYTES + 1)
    with pytest.raises(ModelError, match="134,217,729 bytes, more than 134,217,728"):
        load_model(path)
    with pytest.raises(ModelError, match="cannot read the model"):
        load_model(tmp_path / "absent.onnx")


@pytest.mark.tools
def test_a_dry_run_knows_the_model(tmp_path: Path) -> None:
    writer = OnnxWriter((1, 24))
    path = writer.quantized(tmp_path, writer.add("Gemm", "x", writer.normal(24, 10)))
    with process.dry_run(lambda argv: pytest.fail(f"told of {argv}")):
        assert formats.converted(path) == formats.converted(path)


def originals(folder: Path) -> None:
    image, row = OnnxWriter((1, 6, 9, 8)), OnnxWriter((1, 24))
    x = image.add("Relu", image.conv("x", 6, 7, 3, 3, pads=[1, 1, 1, 1], strides=[2, 1]))
    pooled = image.add("MaxPool", x, kernel_shape=[2, 2], strides=[2, 2])
    y = image.add("Flatten", image.add("Concat", pooled, pooled, axis=1))
    y = row.add("Add", row.add("MatMul", "x", row.normal(24, 10)), row.normal(10))
    z = row.add("Softmax", row.add("Reshape", y, row.constant(np.array([2, 5]))), axis=-1)
    for number, (writer, made) in enumerate(((image, x), (image, pooled), (row, y), (row, z))):
        writer.quantized(folder, made).rename(folder / f"{number}.onnx")


def check(folder: Path, count: int) -> None:
    originals(folder)
    done = process.run(
        [sys.executable, str(CHILD), str(folder), "0", str(count)],
        timeout_s=60.0 + count,
        env=process.child_environment(),
    )
    assert done.is_ok, done.output[-2000:]
    ends = re.findall(r"^end (\d+) '([a-z ]+)' (.*)$", done.stdout, re.MULTILINE)
    verdicts = Counter(verdict for _, verdict, _ in ends)
    assert set(verdicts) <= {"converted", "refused", "refused later"}, ends
    assert sum(verdicts.values()) == count
    assert verdicts["converted"] > count // 30 and verdicts["refused"] > count // 4


@pytest.mark.slow
def test_damaged_onnx_files_end_in_a_sentence(tmp_path: Path) -> None:
    check(tmp_path, QUICK)


@pytest.mark.soak
def test_many_damaged_onnx_files_end_in_a_sentence(tmp_path: Path) -> None:
    check(tmp_path, LONG)


def test_a_number_is_one_file(tmp_path: Path) -> None:
    originals(tmp_path)
    files = [path.read_bytes() for path in sorted(tmp_path.glob("*.onnx"))]
    assert len({mutant(n, files) for n in range(40)}) > 30
    assert [mutant(n, files) for n in range(40)] == [mutant(n, files) for n in range(40)]
    assert onnx.load_model_from_string(files[0]).graph.node
