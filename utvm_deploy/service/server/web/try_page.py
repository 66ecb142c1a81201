"""The page on which a model runs in the reader's browser, from the bundle that a job made."""

from __future__ import annotations

import json
import zipfile
import zlib
from typing import Any

from utvm_deploy.compiler.c_text import prefix_from_path
from utvm_deploy.results.pages.embedded_json import MODEL, embedded_json, for_page
from utvm_deploy.service.server.api.parts import Parts
from utvm_deploy.service.server.api.starting import Wanted, start_jobs
from utvm_deploy.service.server.security.guard import PAGE_POLICY
from utvm_deploy.service.server.store.facts import DONE, Job, Model

#: This page alone may compile WebAssembly. The module has no imports: it computes, and no more.
POLICY = PAGE_POLICY.replace("script-src 'self'", "script-src 'self' 'wasm-unsafe-eval'")
_WANTED = "bundle", "wasm", {"format": "wasm", "no-latency": True}
_PAGE = "index.html"
#: A tab takes more, but the server holds the page in memory.
_MOST_BYTES = 32 << 20
_MOST_JOBS = 50
#: What zipfile and json raise for a damaged archive. RuntimeError: it is encrypted, packed by an
#: unknown method, or nested too deeply.
_UNREADABLE = (
    *(OSError, KeyError, ValueError, RuntimeError, EOFError),
    *(zipfile.BadZipFile, zlib.error),
)


def start_try(parts: Parts, model: Model) -> None:
    """Start the job that compiles the model for browsers, unless there is one that did not fail."""
    job = _job(parts, model)
    if job is None or (job.has_ended and not _data(parts, job)[0]):
        verb, board, options = _WANTED
        # Who presses the button twice at once asks for the same job.
        request = f"try {model.sha256} after {job.key if job else 'nothing'}"
        start_jobs(parts, Wanted(verb, [model.sha256], [board], options), request)


def try_values(parts: Parts, model: Model) -> dict[str, Any]:
    """What ``try.html`` shows: the model as JSON, or why there is none."""
    job = _job(parts, model)
    data, sentence = ("", "") if job is None else _data(parts, job)
    return {"model": model, "job": job, "data": data, "sentence": sentence}


def _job(parts: Parts, model: Model) -> Job | None:
    """The newest job that was started for this page, or as it is."""
    verb, board, options = _WANTED
    jobs = parts.database.jobs(model=model.sha256, verb=verb, board=board, most=_MOST_JOBS)
    return next((one for one in jobs if dict(one.options) == options), None)


def _data(parts: Parts, job: Job) -> tuple[str, str]:
    """The JSON that the bundle's page holds, read and written again; or a sentence."""
    file = job.file("bundle.zip")
    if not job.has_ended:
        return "", ""
    if job.state != DONE or file is None:
        return "", job.reason or f"job {job.key} made no bundle; compile it again"
    name = f"{prefix_from_path(job.models[0].name)}/{_PAGE}"
    try:
        with zipfile.ZipFile(parts.files.path(file.sha256)) as archive:
            size = archive.getinfo(name).file_size
            if size > _MOST_BYTES:
                return "", (
                    f"the page of this model has {size:,} bytes, and a server's page at most "
                    f"{_MOST_BYTES:,}; unpack the bundle of job {job.key}, and open {_PAGE} there"
                )
            text = archive.read(name).decode()
        return for_page(json.loads(embedded_json(text, MODEL))), ""
    except _UNREADABLE:
        return "", f"the bundle of job {job.key} cannot be read; compile it again"
