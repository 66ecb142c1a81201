"""Uploads of models: any upload is kept, with its facts, or refused in one sentence."""

from __future__ import annotations

import contextlib
import io
import pickle
import resource
import signal
import sys
import tarfile
import threading
import time
import zipfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from utvm_deploy.base.errors import DataError
from utvm_deploy.base.process import Completed
from utvm_deploy.quality.datasets.arrays import load_arrays
from utvm_deploy.service.server.jobs import uploads
from utvm_deploy.service.server.jobs.uploads import clean_name, keep_upload
from utvm_deploy.service.server.store.database import Database
from utvm_deploy.service.server.store.facts import Model, TensorSummary
from utvm_deploy.service.server.store.files import Files
from utvm_deploy.service.server.store.refusals import UploadRefused

sys.path.insert(0, str(Path(__file__).parents[1] / "frontend"))
from hostile.mutations import mutant

ROOT = Path(__file__).parents[2]
DIGITS = (ROOT / "models" / "digits.tflite").read_bytes()
#: Mutated files in a normal run: a tenth of those of a long one.
QUICK, LONG = 200, 2_000
pytestmark = pytest.mark.tools


class Desk:
    """Where uploads go."""

    def __init__(self, folder: Path, database: Database) -> None:
        self.folder = folder / "files"
        self.files = Files(self.folder)
        self.database = database

    def keep(self, content: bytes, name: str = "m.tflite", *, allow_code: bool = False) -> Model:
        return self.keep_from(io.BytesIO(content), name, allow_code=allow_code)

    def keep_from(self, source: io.BytesIO, name: str, *, allow_code: bool = False) -> Model:
        return keep_upload(
            source, name, database=self.database, files=self.files, allow_code=allow_code
        )

    def refusal(self, content: bytes, name: str = "m.tflite", *, allow_code: bool = False) -> str:
        """Why it is not kept; and that nothing of it is left."""
        before = self.files.digests()
        with pytest.raises(UploadRefused) as caught:
            self.keep(content, name, allow_code=allow_code)
        assert self.files.digests() == before and not list((self.folder / "parts").iterdir())
        said = str(caught.value)
        assert "\n" not in said and str(self.folder.parent) not in said and "/tmp" not in said
        return said


@pytest.fixture
def desk(tmp_path: Path) -> Iterator[Desk]:
    with Database(tmp_path / "service.sqlite") as database:
        yield Desk(tmp_path, database)


def test_a_model_is_kept_with_its_facts(desk: Desk) -> None:
    model = desk.keep(DIGITS, "C:\\models\\digits.tflite")
    assert model.name == "digits.tflite" and model.size == len(DIGITS)
    stored = desk.database.model(model.sha256)
    assert stored == model and stored.facts is not None
    assert stored.facts.operators == sum(stored.facts.kinds.values()) > 3
    assert stored.facts.macs > 10_000 and stored.facts.weights_bytes > 1_000
    (given,) = stored.facts.inputs
    assert isinstance(given, TensorSummary) and given.dtype == "int8" and len(given.shape) == 4
    assert desk.files.path(model.sha256).read_bytes() == DIGITS
    made = {file.name: file for file in desk.database.model_files(model.sha256)}
    assert set(made) == {"graph.svg", "inspection.json"}
    assert desk.files.path(made["graph.svg"].sha256).read_bytes().startswith(b"<svg")


@pytest.mark.usefixtures("quick_uploads")
def test_the_same_content_is_checked_once(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    first = desk.keep(DIGITS, "a.tflite")
    monkeypatch.setattr(uploads, "check_upload", None)
    again = desk.keep(DIGITS, "b.tflite")
    assert (again.sha256, again.facts) == (first.sha256, first.facts)
    assert [model.name for model in desk.database.models()] == ["b.tflite"]
    assert len(desk.database.model_files(first.sha256)) == 2


@pytest.mark.parametrize(
    ("name", "clean"),
    [
        ("kws.tflite", "kws.tflite"),
        ("KWS.TFLITE", "KWS.tflite"),
        ("../../../etc/passwd.tflite", "passwd.tflite"),
        ("..\\..\\boot.onnx", "boot.onnx"),
        ("/etc/cron.d/x.onnx", "x.onnx"),
        ("--board=host.tflite", "board_host.tflite"),
        ("-o.tflite", "o.tflite"),
        ("...tflite", "model.tflite"),
        ("a\nb\x00\x1b[31m.tflite", "a_b___31m.tflite"),
        ("‮gnp.tflite", "_gnp.tflite"),
        ("größe 1 (neu).tflite", "größe 1 (neu).tflite"),
        ("<script>.tflite", "_script_.tflite"),
        ("\ud800.tflite", "_.tflite"),
        ("x" * 500 + ".tflite", "x" * 80 + ".tflite"),
    ],
)
def test_names_are_made_safe(name: str, clean: str) -> None:
    assert clean_name(name) == clean


@pytest.mark.parametrize(
    "name",
    ["", ".", "..", "/", "tflite", "board.toml", "plugin.so", "m.tflite/", "m.tflite.py", "m.zip"],
)
def test_other_names_are_refused(desk: Desk, name: str) -> None:
    assert "not the name of a model" in desk.refusal(DIGITS, name)


def tar_of(content: bytes) -> bytes:
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w:gz") as archive:
        facts = tarfile.TarInfo("../../../../tmp/escaped")
        facts.size = len(content)
        archive.addfile(facts, io.BytesIO(content))
    return packed.getvalue()


def zip_of(name: str, size: int) -> bytes:
    """Zeros, deflated to a thousandth."""
    packed = io.BytesIO()
    with (
        zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as archive,
        archive.open(name, "w", force_zip64=True) as file,
    ):
        for _ in range(size >> 20):
            file.write(bytes(1 << 20))
    return packed.getvalue()


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"", "not a .tflite file"),
        (b"TFL3", "not a .tflite file"),
        (DIGITS[:500], "damaged or cut short"),
        (tar_of(bytes(1 << 20)), "not a .tflite file"),
        (zip_of("model.tflite", 1 << 20), "not a .tflite file"),
        (b"%PDF-1.7", "not a .tflite file"),
    ],
    ids=["empty", "identifier", "cut", "tar", "zip", "pdf"],
)
@pytest.mark.usefixtures("quick_uploads")
def test_what_is_no_model_is_refused(desk: Desk, content: bytes, said: str) -> None:
    assert said in desk.refusal(content)
    assert desk.database.models() == []


def npz_of(**arrays: Any) -> bytes:
    packed = io.BytesIO()
    np.savez_compressed(packed, **arrays)
    return packed.getvalue()


@pytest.mark.usefixtures("quick_uploads")
def test_data_are_kept_without_facts(desk: Desk) -> None:
    content = npz_of(inputs=np.zeros((3, 8, 8), np.float32), labels=np.array(["a", "b", "a"]))
    data = desk.keep(content, "New Digits.NPZ")
    assert data.name == "New Digits.npz" and data.is_data and data.facts is None
    assert desk.database.model(data.sha256) == data
    assert desk.files.path(data.sha256).read_bytes() == content
    assert desk.keep(content, "digits.npz").sha256 == data.sha256


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"", "m.npz is not an .npz file of arrays; write one with"),
        (pickle.dumps({"inputs": [1.0]}), "m.npz is not an .npz file of arrays"),
        (DIGITS, "m.npz is not an .npz file of arrays"),
        (npz_of(inputs=np.zeros(3))[:-30], "m.npz is not an .npz file of arrays"),
        (npz_of(inputs=np.array([{}])), "'inputs' of m.npz holds Python objects; convert it"),
        (npz_of(inputs=np.zeros(3, complex)), "'inputs' of m.npz is complex128; give numbers"),
    ],
    ids=["empty", "pickle", "model", "cut", "objects", "complex"],
)
@pytest.mark.usefixtures("quick_uploads")
def test_what_is_no_data_is_refused(desk: Desk, content: bytes, said: str) -> None:
    assert said in desk.refusal(content, "m.npz")
    assert desk.database.models() == []


def test_data_that_would_fill_the_memory_are_refused(tmp_path: Path) -> None:
    """16 MiB of zeros, deflated to a thousandth."""
    path = tmp_path / "bomb.npz"
    path.write_bytes(zip_of("inputs.npy", 16 << 20))
    with pytest.raises(DataError, match="have 16,777,216 bytes, and 1,048,576 are the most"):
        load_arrays(path, 1 << 20)


@pytest.mark.usefixtures("quick_uploads")
def test_an_archive_as_onnx_is_refused(desk: Desk) -> None:
    desk.refusal(tar_of(bytes(1 << 20)), "m.onnx")
    assert not Path("/tmp/escaped").exists()


def test_code_needs_a_server_that_allows_it(desk: Desk) -> None:
    assert "--allow-code" in desk.refusal(b"PK", "m.pt2")
    assert "--allow-code" in desk.refusal(b"{}", "m.relax")


@pytest.mark.slow
def test_a_zip_bomb_is_refused(desk: Desk) -> None:
    """64 MiB of zeros as a PyTorch export."""
    pytest.importorskip("torch", reason="pip install 'utvm-deploy[torch]' runs this")
    bomb = zip_of("m/models/model.json", 64 << 20)
    assert len(bomb) < 100_000
    assert "m.pt2" in desk.refusal(bomb, "m.pt2", allow_code=True)


class Endless(io.BytesIO):
    """Zeros without an end; counts what was taken."""

    def __init__(self) -> None:
        super().__init__()
        self.taken = 0

    def read(self, size: int | None = -1) -> bytes:
        assert size is not None and 0 < size <= 1 << 20
        self.taken += size
        assert self.taken < 64 << 20, "it is read for ever"
        return bytes(size)


def test_a_body_without_end_is_refused_while_it_comes(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(uploads, "MAX_FILE_BYTES", 16 << 20)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    body = Endless()
    with pytest.raises(UploadRefused, match="more than"):
        desk.keep_from(body, "m.tflite")
    assert body.taken == 17 << 20 and desk.files.total_bytes == 0
    # It was never in memory as a whole (KiB).
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 8 << 10


def test_the_number_of_models_is_limited(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(uploads, "MAX_MODELS", 0)
    assert "its limit" in desk.refusal(DIGITS)


@pytest.mark.parametrize(
    ("ended", "said"),
    [
        (Completed((), -signal.SIGKILL, "", ""), "crashed with SIGKILL"),
        (Completed((), -signal.SIGPROF, "", ""), "takes more than 60 s"),
        (Completed((), -signal.SIGTERM, "", "", timed_out=True), "takes more than 60 s"),
        (Completed((), 1, "", "words"), "ended with status 1"),
    ],
)
def test_a_reader_that_dies_is_a_refusal(
    desk: Desk, monkeypatch: pytest.MonkeyPatch, ended: Completed, said: str
) -> None:
    monkeypatch.setattr(uploads.process, "run", lambda *_, **__: ended)
    assert said in desk.refusal(DIGITS)


def test_few_readers_run_at_a_time(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    running, most, lock = Counter[str](), Counter[str](), threading.Lock()

    def run(*_: object, **__: object) -> Completed:
        with lock:
            running["now"] += 1
            most["now"] = max(most["now"], running["now"])
        time.sleep(0.02)
        with lock:
            running["now"] -= 1
        return Completed((), 1, "", "")

    monkeypatch.setattr(uploads.process, "run", run)

    def upload(content: bytes) -> None:
        with contextlib.suppress(UploadRefused):
            desk.keep(content)

    many = [threading.Thread(target=upload, args=(bytes(n),)) for n in range(8)]
    for thread in many:
        thread.start()
    for thread in many:
        thread.join()
    assert most["now"] == 2


def check_mutants(desk: Desk, first: int, count: int) -> None:
    """Each is kept or refused; what is kept has its facts."""
    kept, refused = 0, 0
    for number in range(first, first + count):
        _how, content = mutant(number)
        try:
            model = desk.keep(content, f"m{number}.tflite")
        except UploadRefused as error:
            refused += 1
            assert "\n" not in str(error) and f"m{number}.tflite" in str(error)
            assert "bug of utvm_deploy" not in str(error), (number, str(error))
        else:
            kept += 1
            assert model.facts is not None
    assert kept > count // 50 and refused > count // 4
    stored = desk.database.models(most=count)
    used = {file.sha256 for model in stored for file in desk.database.model_files(model.sha256)}
    assert set(desk.files.digests()) == used | {model.sha256 for model in stored}


@pytest.mark.usefixtures("quick_uploads")
def test_mutated_models(desk: Desk) -> None:
    check_mutants(desk, 20_000, QUICK)


@pytest.mark.soak
@pytest.mark.usefixtures("quick_uploads")
def test_many_mutated_models(desk: Desk) -> None:
    check_mutants(desk, 30_000, LONG)
