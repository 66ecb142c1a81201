"""Models and data that somebody uploads: checked, then kept with what the pages show of them.

A file may be anything. It is read only by a child process of bounded memory and time, and is kept
only if the project's own reader takes it.
"""

from __future__ import annotations

import json
import re
import sys
import threading
import time
import unicodedata
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from utvm_deploy.base import process
from utvm_deploy.base.temporary import TemporaryFolder
from utvm_deploy.frontend.files.limits import MAX_FILE_BYTES
from utvm_deploy.frontend.formats import FORMATS, explanation
from utvm_deploy.service.server.jobs import upload_check
from utvm_deploy.service.server.store.database import Database
from utvm_deploy.service.server.store.facts import DATA_ENDING, JobFile, Model, ModelFacts
from utvm_deploy.service.server.store.files import Files
from utvm_deploy.service.server.store.refusals import UploadRefused
from utvm_deploy.service.server.store.rows import facts_of

#: Models and data that a server keeps.
MAX_MODELS = 10_000
#: What a file's name may end with.
ENDINGS = (*FORMATS, DATA_ENDING)
#: Files whose reader can be made to run code that they hold, or that may hold C for the firmware.
CODE = (".pt2", ".relax")

_CHUNK_BYTES = 1 << 20
_MAX_STEM = 80
_ODD_SIGNS = re.compile(r"[^\w .()+-]")
#: PyTorch takes five seconds to load; a loaded machine may need many times that.
_TIMEOUT_S = 300.0
#: Children that check at a time: each may take a GiB.
_MOST_CHECKS = 2
_checks = threading.BoundedSemaphore(_MOST_CHECKS)


@dataclass(frozen=True)
class CheckedModel:
    """A file that is a model, or data."""

    facts: ModelFacts | None  # None of data
    #: What was made of it: the picture of its graph, and the facts about each operator.
    files: Mapping[str, bytes]


def clean_name(name: str) -> str:
    """A file's name that is safe in a folder and on a command line, made of any name.

    Raises UploadRefused if its ending is not that of a model, or of data.
    """
    last = re.split(r"[/\\]", unicodedata.normalize("NFC", name))[-1].strip()
    stem, dot, ending = last.rpartition(".")
    if f"{dot}{ending.lower()}" not in ENDINGS:
        shown = _ODD_SIGNS.sub("_", last)[:_MAX_STEM]
        raise UploadRefused(
            f"{shown!r} is not the name of a model or of data; upload a file that ends in "
            f"{', '.join(ENDINGS)}"
        )
    # A name that begins with "-" would be an option of a command.
    stem = _ODD_SIGNS.sub("_", stem)[:_MAX_STEM].strip(" .-")
    return f"{stem or 'model'}.{ending.lower()}"


def check_allowed(name: str, *, allow_code: bool) -> None:
    """Raise UploadRefused if files of this clean name are code, and code is not allowed."""
    if name.endswith(CODE) and not allow_code:
        raise UploadRefused(
            f"{name} may hold code, which this server does not take; upload a .tflite or .onnx "
            "file, or start the server with --allow-code"
        )


def check_upload(path: Path, name: str, *, allow_code: bool) -> CheckedModel:
    """Read a file in a child process. ``name`` is clean. Raises UploadRefused."""
    check_allowed(name, allow_code=allow_code)
    if not _checks.acquire(timeout=_TIMEOUT_S):
        raise UploadRefused(f"{name} was not checked: too many files are; upload it again later")
    try:
        with TemporaryFolder("utvm-upload") as folder:
            results = folder / "results"
            results.mkdir()
            link = folder / name
            link.symlink_to(path.absolute())
            done = process.run(
                [sys.executable, "-m", upload_check.__name__, str(link), str(results)],
                timeout_s=_TIMEOUT_S,
                env=process.child_environment(),
            )
            return _checked(name, results, done)
    finally:
        _checks.release()


def _checked(name: str, results: Path, done: process.Completed) -> CheckedModel:
    refusal = results / upload_check.REFUSAL
    if refusal.exists():
        raise UploadRefused(refusal.read_text("utf-8"))
    if not done.is_ok:
        raise UploadRefused(f"{name} cannot be imported: {explanation(done)}")
    facts = facts_of(json.loads((results / upload_check.FACTS).read_bytes()))
    wanted = (results / name for name in (upload_check.INSPECTION, upload_check.PICTURE))
    return CheckedModel(facts, {path.name: path.read_bytes() for path in wanted if path.exists()})


def keep_upload(
    source: IO[bytes], name: str, *, database: Database, files: Files, allow_code: bool
) -> Model:
    """Keep the model or the data that ``source`` holds. The same content again is the same model.

    Raises UploadRefused, and NoRoom if the server may not store it.
    """
    name = clean_name(name)
    check_allowed(name, allow_code=allow_code)
    if database.count_models() >= MAX_MODELS:
        raise UploadRefused(
            f"the server has {MAX_MODELS:,} models and files of data, which is its limit; delete "
            "some of them first"
        )
    with files.holding():
        with files.writing() as part:
            while chunk := source.read(_CHUNK_BYTES):
                if part.size + len(chunk) > MAX_FILE_BYTES:
                    raise UploadRefused(
                        f"{name} has more than {MAX_FILE_BYTES:,} bytes, which is the most that "
                        "is taken; give a smaller file"
                    )
                part.write(chunk)
            part.flush()
            known = database.model(part.sha256)
            checked = None
            if known is None or known.facts is None or _ending(known.name) != _ending(name):
                checked = check_upload(part.path, name, allow_code=allow_code)
        if checked is not None:
            facts: ModelFacts | None = checked.facts
            made = [JobFile(n, files.add(data), len(data)) for n, data in checked.files.items()]
        else:
            assert known is not None
            facts, made = known.facts, list(database.model_files(known.sha256))
        model = Model(part.sha256, name, part.size, time.time(), facts)
        database.add_model(model, made)
    return model


def _ending(name: str) -> str:
    return Path(name).suffix
