"""The form that uploads a model and starts jobs."""

from __future__ import annotations

import secrets
from contextlib import AbstractAsyncContextManager
from typing import Any

from fastapi import Request
from starlette.datastructures import FormData, UploadFile

from utvm_deploy.base.errors import UsageError
from utvm_deploy.frontend.formats import FORMATS
from utvm_deploy.service.server.api.models import keep_model, received_form
from utvm_deploy.service.server.api.parts import Parts
from utvm_deploy.service.server.api.starting import Wanted, find_model, start_all
from utvm_deploy.service.server.jobs.options import TRIALS
from utvm_deploy.service.server.jobs.uploads import CODE
from utvm_deploy.service.server.jobs.verbs import VERBS, verb_of
from utvm_deploy.service.server.store.facts import Job
from utvm_deploy.service.server.web.boards import boards_now

#: Models that the form lists.
_MOST_MODELS = 50
#: What the fields of options begin with.
_OPTION = "option."
_REQUEST_LENGTH = 32
_MOST_FIELDS = 200
#: What is chosen in a new form.
_FIRST_VERBS = ("verify", "bundle")
#: What options have in a new form. Verbs without them do without.
_FIRST_VALUES = {TRIALS.name: 200}


def form_values(parts: Parts, model: str = "", board: str = "", verb: str = "") -> dict[str, Any]:
    """What ``start_form.html`` shows; the words are what is chosen at first."""
    models = parts.database.models(most=_MOST_MODELS)
    fields: dict[str, dict[str, Any]] = {}
    for row in VERBS.values():
        for option in row.options:
            field = fields.setdefault(option.name, {"option": option, "verbs": [], "choices": {}})
            field["verbs"].append(row.name)
            # Verbs may have other choices of one name.
            field["choices"] |= dict.fromkeys(option.choices)
    return {
        "models": [model for model in models if not model.is_data],
        "data": [model for model in models if model.is_data],
        "verbs": list(VERBS.values()),
        "boards": boards_now(parts),
        "formats": [
            (ending, name)
            for ending, name in FORMATS.items()
            if parts.settings.allow_code or ending not in CODE
        ],
        "fields": list(fields.values()),
        "values": _FIRST_VALUES,
        "request": secrets.token_hex(_REQUEST_LENGTH // 2),
        "model": model,
        "board": board,
        "is_open": bool(model or board or verb) or not models,
        "chosen": (verb,) if verb in VERBS else _FIRST_VERBS,
    }


def read_form(request: Request) -> AbstractAsyncContextManager[FormData]:
    """The form with its file, in a temporary file. Raises an error of HTTP if it has more parts."""
    return received_form(request, _MOST_FIELDS)


def model_of_form(parts: Parts, form: FormData) -> str:
    """The digest of the uploaded file, which is kept, or of the model that was chosen."""
    file = form.get("file")
    if isinstance(file, UploadFile) and file.filename:
        return keep_model(parts, file).sha256
    sha256 = str(form.get("model") or "")
    if not sha256:
        raise UsageError("choose a model file, or a model of the list")
    return find_model(parts, sha256).sha256


def start_from_form(parts: Parts, form: FormData, sha256: str) -> list[Job]:
    """Start the form's jobs, all or none. Raises UtvmError; then no job is started."""
    verbs = [verb_of(str(name)) for name in form.getlist("verb")]
    if not verbs:
        raise UsageError("choose what to do with the model")
    boards = [str(name) for name in form.getlist("board") if name]
    if not boards and any(verb.has_board for verb in verbs):
        raise UsageError("choose one or several boards")
    options = _options(form)
    for name in options:
        is_known = any(name == option.name for verb in verbs for option in verb.options)
        if not is_known and name not in _FIRST_VALUES:
            raise UsageError(f"none of the chosen jobs has an option {name!r}; leave it empty")
    models = [sha256, *(str(one) for one in form.getlist("model") if one and one != sha256)]
    return start_all(
        parts,
        [
            Wanted(
                verb.name,
                models,
                boards if verb.has_board else (),
                {o.name: options[o.name] for o in verb.options if o.name in options},
            )
            for verb in verbs
        ],
        str(form.get("request") or "")[:_REQUEST_LENGTH],
    )


def _options(form: FormData) -> dict[str, Any]:
    """The filled-in options; fields hold text."""
    known = {option.name: option for verb in VERBS.values() for option in verb.options}
    found: dict[str, Any] = {}
    for field, text in form.multi_items():
        name = field.removeprefix(_OPTION)
        if not field.startswith(_OPTION) or not text or name not in known:
            continue
        kind = known[name].kind
        if kind == "flag":
            found[name] = True
        elif kind == "integer":
            found[name] = _integer(name, str(text))
        else:
            found[name] = str(text).strip()
    return found


def _integer(name: str, text: str) -> int:
    try:
        return int(text)
    except ValueError:
        raise UsageError(f"{name}: {text!r} is not an integer") from None
