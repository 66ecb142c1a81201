"""The pages of the server for browsers.

They are made here, from templates of ``pages``, and work without scripts. Scripts fetch the parts
of a page that change (``?part=live``), which are made from the same templates.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from fastapi import APIRouter, Request
from fastapi.responses import HTMLResponse, RedirectResponse, Response
from starlette.concurrency import run_in_threadpool
from starlette.datastructures import FormData

from utvm_deploy.base.errors import UtvmError
from utvm_deploy.boards.board import board_names
from utvm_deploy.results.pages.assets import assets
from utvm_deploy.service.server.api.errors import status_of
from utvm_deploy.service.server.api.parts import Parts
from utvm_deploy.service.server.api.starting import find_job, find_model
from utvm_deploy.service.server.jobs.verbs import VERBS
from utvm_deploy.service.server.security.page import page
from utvm_deploy.service.server.store.facts import STATES
from utvm_deploy.service.server.store.refusals import Conflict, NotFound
from utvm_deploy.service.server.store.removal import remove_jobs, remove_model
from utvm_deploy.service.server.web import forms
from utvm_deploy.service.server.web.boards import board_values, boards_now
from utvm_deploy.service.server.web.compare_page import comparison_values
from utvm_deploy.service.server.web.jobs import job_values, live_values
from utvm_deploy.service.server.web.models import model_values
from utvm_deploy.service.server.web.overview import now_values
from utvm_deploy.service.server.web.try_page import POLICY, start_try, try_values

#: The path that takes the form with a model and its jobs.
START = "/start"
#: Jobs and models on one page.
_PAGE = 50
_FOREVER = "public, max-age=31536000, immutable"


def pages(parts: Parts) -> APIRouter:
    """The routes."""
    router = APIRouter(include_in_schema=False)
    database = parts.database

    @router.get("/")
    def overview(part: str = "", model: str = "", board: str = "", verb: str = "") -> HTMLResponse:
        if part == "live":
            return page("overview_live.html", now=now_values(parts))
        form = forms.form_values(parts, model, board, verb)
        return page("overview.html", now=now_values(parts), form=form, error="")

    @router.post(START)
    async def start(request: Request) -> Response:
        """Upload a model, or take one that is here, and start jobs."""
        async with forms.read_form(request) as form:
            return await run_in_threadpool(started, form)

    def started(form: FormData) -> Response:
        chosen = str(form.get("model") or "")
        try:
            chosen = forms.model_of_form(parts, form)
            jobs = forms.start_from_form(parts, form, chosen)
        except UtvmError as error:
            # A model that came stays here, and is chosen in the form that is shown again.
            values = forms.form_values(parts, chosen, str(form.get("board") or ""))
            status, sentence = status_of(error), str(error)
            return page("overview.html", status, now=now_values(parts), form=values, error=sentence)
        where = f"/jobs/{jobs[0].key}" if len(jobs) == 1 else f"/models/{chosen}"
        return RedirectResponse(where, 303)

    @router.get("/jobs")
    def jobs(
        request: Request,
        state: str = "",
        board: str = "",
        verb: str = "",
        model: str = "",
        before: str = "",
    ) -> HTMLResponse:
        chosen = {"state": state, "board": board, "verb": verb, "model": model}
        found = database.jobs(
            state=state, board=board, verb=verb, model=model, before=before, most=_PAGE + 1
        )
        filters = [
            ("state", "State", STATES),
            ("board", "Board", board_names()),
            ("verb", "Job", list(VERBS)),
        ]
        turns = _turns(request, [job.key for job in found])
        return page("jobs.html", found=found[:_PAGE], chosen=chosen, filters=filters, **turns)

    @router.get("/jobs/{key}")
    def job(key: str, part: str = "") -> HTMLResponse:
        found = find_job(parts, key)
        if part == "live":
            return page("job_live.html", **live_values(parts, found))
        return page("job.html", **job_values(parts, found))

    @router.post("/jobs/{key}/cancel")
    def cancel(key: str) -> Response:
        parts.dispatcher.cancel(find_job(parts, key).key, "somebody canceled it")
        return RedirectResponse(f"/jobs/{key}", 303)

    @router.post("/jobs/{key}/delete")
    def delete(key: str) -> Response:
        found = find_job(parts, key)
        if not found.has_ended:
            raise Conflict(f"job {key} has not ended; cancel it first")
        remove_jobs(database, parts.files, [found.key])
        return RedirectResponse("/jobs", 303)

    @router.get("/models")
    def models(request: Request, before: str = "") -> HTMLResponse:
        found = database.models(before=before, most=_PAGE + 1)
        uses = database.model_uses([model.sha256 for model in found])
        turns = _turns(request, [model.sha256 for model in found])
        return page("models.html", models=found[:_PAGE], uses=uses, **turns)

    @router.get("/models/{sha256}")
    def model(sha256: str) -> HTMLResponse:
        return page("model.html", **model_values(parts, find_model(parts, sha256)))

    @router.get("/models/{sha256}/try")
    def try_it(sha256: str) -> HTMLResponse:
        answer = page("try.html", **try_values(parts, find_model(parts, sha256)))
        answer.headers["content-security-policy"] = POLICY
        return answer

    @router.post("/models/{sha256}/try")
    def compile_to_try(sha256: str) -> Response:
        start_try(parts, find_model(parts, sha256))
        return RedirectResponse(f"/models/{sha256}/try", 303)

    @router.post("/models/{sha256}/delete")
    def forget(sha256: str) -> Response:
        found = find_model(parts, sha256)
        if not remove_model(database, parts.files, found.sha256):
            raise Conflict(f"jobs have the model {found.name}; delete those first")
        return RedirectResponse("/models", 303)

    @router.get("/boards")
    def boards(part: str = "") -> HTMLResponse:
        template = "boards_live.html" if part == "live" else "boards.html"
        return page(template, boards=boards_now(parts))

    @router.get("/boards/{name}")
    def board(name: str) -> HTMLResponse:
        return page("board.html", **board_values(parts, name))

    @router.get("/compare")
    def compare(before: str = "", now: str = "") -> HTMLResponse:
        try:
            return page("compare.html", error="", **comparison_values(parts, before, now))
        except UtvmError as error:
            values = comparison_values(parts, "", "")
            return page("compare.html", status_of(error), error=str(error), **values)

    @router.get("/static/{digest}/{name}")
    def static(digest: str, name: str) -> Response:
        asset = assets().get(name)
        if asset is None or asset.digest != digest:
            raise NotFound(f"there is no file {name!r}")
        headers = {"Cache-Control": _FOREVER}
        return Response(asset.content, media_type=asset.media_type, headers=headers)

    return router


def _turns(request: Request, keys: Sequence[str]) -> dict[str, Any]:
    """Where the buttons below a list lead; empty if there is nothing there."""
    is_first = "before" not in request.query_params
    newest = request.url.remove_query_params("before")
    older = request.url.include_query_params(before=keys[_PAGE - 1]) if keys[_PAGE:] else None
    return {
        "older": f"{older.path}?{older.query}" if older else "",
        "newest": "" if is_first else f"{newest.path}?{newest.query}",
    }
