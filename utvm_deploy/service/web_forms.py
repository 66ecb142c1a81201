"""The form that uploads a model and starts jobs."""

from __future__ import annotations

import secrets
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from fastapi import UploadFile
from starlette.concurrency import run_in_threadpool
from starlette.datastructures import FormData
from starlette.datastructures import UploadFile as FormFile

from utvm_deploy.base.errors import UsageError
from utvm_deploy.boards.board import board_names
from utvm_deploy.service.facts import QUEUED, Job, Model
from utvm_deploy.service.parts import Parts
from utvm_deploy.service.verbs import VERBS, Option, Verb, command_line, verb_of
from utvm_deploy.service.web_boards import boards_now

#: Models that the form lists.
_MOST_MODELS = 50
#: What the fields of options begin with.
_OPTION = "option."
_REQUEST_LENGTH = 32
#: What is chosen in a new form.
_FIRST_VERBS = ("verify", "bundle")


def form_values(parts: Parts, model: str = "", board: str = "", verb: str = "") -> dict[str, Any]:
    """What ``start_form.html`` shows; the words are what is chosen at first."""
    models = parts.database.models(most=_MOST_MODELS)
    options: dict[str, tuple[Option, list[str]]] = {}
    for row in VERBS.values():
        for option in row.options:
            options.setdefault(option.name, (option, []))[1].append(row.name)
    return {
        "models": models,
        "verbs": list(VERBS.values()),
        "boards": boards_now(parts),
        "options": [{"option": option, "verbs": verbs} for option, verbs in options.values()],
        "request": secrets.token_hex(_REQUEST_LENGTH // 2),
        "model": model,
        "board": board,
        "chosen": (verb,) if verb in VERBS else _FIRST_VERBS,
    }


async def start_from_form(parts: Parts, form: FormData) -> list[Job]:
    """Keep the uploaded model and start its jobs. Raises UtvmError; then no job is started."""
    return await run_in_threadpool(_start, parts, form)


def _start(parts: Parts, form: FormData) -> list[Job]:
    verbs = [verb_of(str(name)) for name in form.getlist("verb")]
    if not verbs:
        raise UsageError("choose what to do with the model")
    boards = [str(name) for name in form.getlist("board") if name]
    options = _options(form)
    for name in options:
        if not any(name == option.name for verb in verbs for option in verb.options):
            raise UsageError(f"none of the chosen jobs has an option {name!r}; leave it empty")
    model = _model(parts, form)
    request = str(form.get("request") or "")[:_REQUEST_LENGTH]
    jobs = [
        _job(model, verb, board, options, request)
        for verb in verbs
        for board in (_boards_of(verb, boards) if verb.has_board else [""])
    ]
    # Who sends a form twice gets the jobs of the first time.
    jobs = parts.database.add_jobs(jobs)
    parts.dispatcher.wake()
    return jobs


def _boards_of(verb: Verb, boards: list[str]) -> list[str]:
    if not boards:
        raise UsageError(f"{verb.name} runs on a board; choose one or several")
    for board in boards:
        if board not in board_names():
            raise UsageError(f"no board {board!r} is known here")
    return boards


def _job(model: Model, verb: Verb, board: str, options: Mapping[str, Any], request: str) -> Job:
    own = {option.name for option in verb.options}
    of_verb = {name: value for name, value in options.items() if name in own}
    command_line(verb, [model.name], board, of_verb)
    facts = secrets.token_hex(6), verb.name, board, (model,), of_verb
    return Job(*facts, QUEUED, time.time(), request=request)


def _options(form: FormData) -> dict[str, Any]:
    """The filled-in options; fields hold text."""
    known = {option.name: option for verb in VERBS.values() for option in verb.options}
    found: dict[str, Any] = {}
    for field, text in form.multi_items():
        name = field.removeprefix(_OPTION)
        if not field.startswith(_OPTION) or not text or name not in known:
            continue
        option = known[name]
        if option.is_flag:
            found[name] = True
        elif option.choices:
            found[name] = str(text)
        else:
            try:
                found[name] = int(str(text))
            except ValueError:
                raise UsageError(f"{name}: {str(text)!r} is not an integer") from None
    return found


def _model(parts: Parts, form: FormData) -> Model:
    """The uploaded file, or the model that was chosen from the list."""
    file = form.get("file")
    if isinstance(file, FormFile) and file.filename:
        return _keep(parts, file)
    sha256 = str(form.get("model") or "")
    model = parts.database.model(sha256) if sha256 else None
    if model is None:
        raise UsageError("choose a model file, or a model of the list")
    return model


def _keep(parts: Parts, file: UploadFile | FormFile) -> Model:
    with parts.files.writing() as kept:
        while chunk := file.file.read(1 << 20):
            kept.write(chunk)
    name = Path(file.filename or "model.tflite").name
    model = Model(kept.sha256, name, kept.size, time.time())
    parts.database.add_model(model)
    return model
