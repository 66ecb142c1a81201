"""The pages of the server for browsers."""

from __future__ import annotations

import json
import re
import threading
import time
import zipfile
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from html.parser import HTMLParser
from io import BytesIO
from pathlib import Path

import httpx
import pytest
from app_server import App, app_running
from markupsafe import escape

from utvm_deploy.base.paths import runs_file
from utvm_deploy.frontend.formats import FORMATS
from utvm_deploy.results.runs.run import ModelFigures, Run
from utvm_deploy.results.runs.store import RunStore
from utvm_deploy.service.cluster.job import JobSpec, Outcome
from utvm_deploy.service.server.store.facts import FAILED, Job
from utvm_deploy.service.server.store.settings import Settings

HOSTILE = "<img src=x onerror=alert(1)>\"'&.tflite"


class Page(HTMLParser):
    """What a page consists of: tags with attributes, and the text of each ``h1``."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str]]] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, {name: value or "" for name, value in attrs}))

    def all(self, tag: str, attribute: str) -> list[str]:
        """The values of an attribute of all tags that have it."""
        return [facts[attribute] for name, facts in self.tags if name == tag and attribute in facts]


def page(app: App, path: str, status: int = 200) -> str:
    answer = app.http.get(path)
    assert answer.status_code == status, answer.text
    assert answer.headers["content-type"] == "text/html; charset=utf-8"
    return answer.text


def start(app: App, name: str = "digits.tflite", **fields: object) -> httpx.Response:
    """Send the form as a browser does."""
    content = (Path(__file__).parents[2] / "models" / "digits.tflite").read_bytes()
    data = {"verb": ["verify"], "board": ["host"], **fields}
    return app.http.post("/start", data=data, files={"file": (name, content)})


def key_of(answer: httpx.Response) -> str:
    assert answer.status_code == 303, answer.text
    return answer.headers["location"].rpartition("/")[2]


def wait_until(happened: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 30
    while not happened():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def finish_with(app: App, result: dict[str, object], **files: bytes) -> None:
    """Jobs end well with this result and these files."""

    def run(spec: JobSpec) -> Outcome:
        return Outcome(0, json.dumps(result).encode(), b"a line of the log\n", files)

    app.cluster.run = run


def test_a_new_server_shows_a_form_and_says_what_to_do(app: App) -> None:
    text = page(app, "/")
    assert "Nothing runs. Choose a model file" in text
    found = Page(text)
    assert {"verify", "bundle", "tune"} <= set(found.all("input", "value"))
    assert "/start" in found.all("form", "action")


def test_a_form_starts_a_job_for_each_verb_and_board(app: App) -> None:
    answer = start(app, verb=["verify", "inspect"], board=["host", "mps2_an500"])
    digest = key_of(answer)
    found = app.http.get("/api/v1/jobs").json()
    jobs = {(job["verb"], job["board"]) for job in found}
    assert jobs == {("verify", "host"), ("verify", "mps2_an500"), ("inspect", "")}
    for job in found:
        app.wait(job["key"])
    assert page(app, f"/models/{digest}").count('href="/jobs/') >= 3


def test_a_form_that_is_sent_twice_starts_its_jobs_once(app: App) -> None:
    (request,) = re.findall(r'name="request" value="([0-9a-f]+)"', page(app, "/"))
    assert key_of(start(app, request=request)) == key_of(start(app, request=request))
    assert len(app.http.get("/api/v1/jobs").json()) == 1


def test_options_of_a_form_reach_the_verb(app: App) -> None:
    fields = {"option.samples": "3", "option.optimize": "size", "option.trials": ""}
    key = key_of(start(app, **fields))
    app.wait(key)
    assert app.http.get(f"/api/v1/jobs/{key}").json()["options"] == {
        "samples": 3,
        "optimize": "size",
    }
    text = page(app, f"/jobs/{key}")
    assert 'name="option.samples" value="3"' in text  # for "Run again"


@pytest.mark.parametrize(
    "fields, sentence",
    [
        ({"verb": []}, "choose what to do with the model"),
        ({"board": []}, "choose one or several boards"),
        ({"board": ["nowhere"]}, "there is no board &#39;nowhere&#39;"),
        ({"verb": ["dance"]}, "no job runs &#39;dance&#39;"),
        ({"option.samples": "many"}, "samples: &#39;many&#39; is not an integer"),
        ({"option.samples": "0"}, "samples: 0 is not from 1"),
        ({"option.seed": "5"}, "none of the chosen jobs has an option &#39;seed&#39;"),
    ],
)
def test_a_form_that_is_wrong_is_shown_again_with_one_sentence(
    app: App, fields: dict[str, object], sentence: str
) -> None:
    answer = start(app, **fields)
    assert answer.status_code == 400
    assert "Nothing was started." in answer.text
    assert sentence in answer.text
    assert app.http.get("/api/v1/jobs").json() == []
    # The model came; nobody need choose its file again.
    assert re.search(r'<option value="[0-9a-f]{64}" selected>digits', answer.text)


def test_a_form_without_a_model_is_refused(app: App) -> None:
    data = {"verb": "verify", "board": "host"}
    answer = app.http.post("/start", data=data, files={"file": ("", b"")})
    assert answer.status_code == 400
    assert "choose a model file, or a model of the list" in answer.text


def test_hostile_names_and_results_are_text(app: App) -> None:
    wrong = {"wrong_elements": 1, "elements": 2, "element": HOSTILE, "got": 1.0, "expected": 2.0}
    result = {
        "schema": "utvm.verify/1",
        "ok": False,
        "reference": HOSTILE,
        "samples": 1,
        "samples_from": HOSTILE,
        "mismatches": [1],
        "layers": [{"index": 0, "operator": HOSTILE, "name": HOSTILE, "mismatch": wrong}],
    }
    finish_with(app, result, **{HOSTILE: b"x"})
    # The parser of uploads does not take such a name; an older database may have it.
    digest = app.upload()
    model = app.parts.database.model(digest)
    assert model is not None
    app.parts.database.add_model(replace(model, name=HOSTILE))
    answer = app.http.post("/start", data={"verb": "verify", "board": "host", "model": digest})
    key = key_of(answer)
    app.wait(key)
    for path in ("/", "/jobs", "/models", f"/models/{digest}", f"/jobs/{key}", "/compare"):
        found = Page(page(app, path))
        assert not [facts for tag, facts in found.tags if "onerror" in facts]
        assert "x" not in found.all("img", "src")
    assert "&lt;img src=x onerror=alert(1)&gt;" in page(app, f"/jobs/{key}")


def test_pages_have_no_inline_scripts_and_no_styles_of_elements(app: App) -> None:
    key = key_of(start(app))
    app.wait(key)
    for path in ("/", "/jobs", f"/jobs/{key}", "/models", "/boards", "/boards/host", "/compare"):
        found = Page(page(app, path))
        assert all("src" in facts for tag, facts in found.tags if tag == "script"), path
        assert not [facts for _, facts in found.tags if any(n.startswith("on") for n in facts)]
        assert not [facts for _, facts in found.tags if "style" in facts], path
        # Everything comes from this server, by a name that changes with the content.
        for place in found.all("script", "src") + found.all("link", "href"):
            assert place.startswith("/static/")
            answer = app.http.get(place)
            assert answer.status_code == 200
            assert "immutable" in answer.headers["cache-control"]


def test_what_is_not_there_is_a_page_that_says_so(app: App) -> None:
    assert "there is no job" in page(app, "/jobs/000000000000", 404)
    assert "there is no model" in page(app, f"/models/{'0' * 64}", 404)
    assert "no board" in page(app, "/boards/nowhere", 404)
    assert "there is no such page" in page(app, "/nothing", 404)
    assert "begin the list again" in page(app, "/jobs?before=nothing", 400)
    assert app.http.get("/static/0000000000000000/style.css").status_code == 404


def test_a_job_that_runs_shows_progress_log_and_curve_and_can_be_canceled(app: App) -> None:
    app.cluster.run = lambda spec: app.cluster.closing.wait() and None
    key = key_of(start(app, verb=["tune"], **{"option.trials": "20"}))
    wait_until(lambda: bool(app.cluster.started))
    spec = app.cluster.started[0]
    app.cluster.tell(spec, {"started": 1e9, "worker": "desk"})
    events = [
        {"event": "progress", "what": "tuning: 5 of 20 trials", "done": 5, "total": 20},
        {"event": "tuning", "trials": 5, "wanted": 20, "before": 1000, "best": 800},
    ]
    app.cluster.tell(spec, {"events": events, "log": "measuring\n"})
    for expected in ("0.800 after 5 trials", "tuning: 5 of 20", "desk", "measuring"):
        wait_until(lambda expected=expected: expected in page(app, f"/jobs/{key}?part=live"))
    text = page(app, f"/jobs/{key}")
    for expected in ("0.800 after 5 trials", "tuning: 5 of 20", "desk", "measuring"):
        assert expected in text
    assert 'value="5" max="20"' in text
    assert "tuning: 5 of 20" in page(app, "/?part=live")
    assert app.http.post(f"/jobs/{key}/cancel").status_code == 303
    assert "It was canceled." in page(app, f"/jobs/{key}")
    assert "data-ended" in page(app, f"/jobs/{key}?part=live")


def test_a_job_that_failed_says_why_on_the_first_page(app: App) -> None:
    error = b'{"schema": "utvm.error/1", "kind": "X", "error": "the board does not answer"}'
    app.cluster.run = lambda spec: Outcome(1, error, b"")
    key = key_of(start(app))
    app.wait(key)
    assert "the board does not answer" in page(app, "/")
    assert "the board does not answer" in page(app, f"/jobs/{key}")


def test_a_result_of_another_version_costs_its_table_only(app: App) -> None:
    finish_with(app, {"schema": "utvm.profile/1", "layers": "of another kind"})
    key = key_of(start(app, verb=["profile"]))
    app.wait(key)
    assert "Result" not in page(app, f"/jobs/{key}")


def test_the_memory_map_of_a_compiled_model_is_drawn(app: App) -> None:
    use = {"name": "x", "kind": "input", "offset": 0, "bytes": 64, "first": 0, "last": 1}
    layer = {"index": 0, "operator": "ADD", "macs": 0, "weights_bytes": 0, "scratch_bytes": 0}
    result = {
        "schema": "utvm.compile/1",
        "board": "host",
        "arena_bytes": 128,
        "weights_bytes": 5,
        "macs": 0,
        "memory": [use],
        "layers": [{**layer, "engine": "generic", "why": ""}] * 2,
        "tradeoff": {"streamed": [0]},
    }
    finish_with(app, result)
    key = key_of(start(app, verb=["compile"]))
    app.wait(key)
    text = page(app, f"/jobs/{key}")
    assert '2 <small class="quiet">each strip of a layer counts</small>' in text
    assert '<rect x="0.0" y="0.0" width="720.0" height="200.0"' in text
    assert "input x: 64 bytes at 0, layers 0 to 1" in text
    digest = app.http.get(f"/api/v1/jobs/{key}").json()["models"][0]["sha256"]
    assert "input x: 64 bytes at 0" in page(app, f"/models/{digest}")


def test_lists_have_pages_and_filters(app: App) -> None:
    digest = app.upload()
    (model,) = (app.parts.database.model(digest),)
    assert model is not None
    for number in range(120):
        board = "host" if number % 2 else "mps2_an500"
        facts = (f"{number:012x}", "verify", board, (model,), {}, FAILED, float(number))
        app.parts.database.add_jobs([Job(*facts)])
    seen: list[str] = []
    path = "/jobs?board=host"
    while path:
        text = page(app, path)
        seen += re.findall(r'<div class="what"><a href="/jobs/(\w+)"', text)
        path = next(iter(re.findall(r'href="([^"]+)">Older', text)), "").replace("&amp;", "&")
    assert seen == [f"{number:012x}" for number in range(119, 0, -2)]
    assert "No jobs like that" in page(app, "/jobs?state=done")


def test_jobs_and_models_can_be_deleted(app: App) -> None:
    key = key_of(start(app))
    app.wait(key)
    digest = app.upload()
    assert f"/jobs/{key}/delete" in page(app, f"/jobs/{key}")
    assert app.http.post(f"/models/{digest}/delete").status_code == 409
    assert app.http.post(f"/jobs/{key}/delete").status_code == 303
    page(app, f"/jobs/{key}", 404)
    assert f"/models/{digest}/delete" in page(app, f"/models/{digest}")
    assert app.http.post(f"/models/{digest}/delete").status_code == 303
    page(app, f"/models/{digest}", 404)


def a_profile(key: str, digest: str, layer: int, flash: int) -> Run:
    """A run of profile on a board whose cycles are modelled."""
    row = {"index": 0, "operator": "CONV_2D", "name": "conv", "ticks": layer}
    result = {
        "schema": "utvm.profile/1",
        "model": "digits",
        "board": "mps2_an500",
        "tick_unit": "cycles",
        "ticks": layer,
        "is_modelled": True,
        "cycle_model": "m",
        "layers": [row],
        "ram_bytes": 1000,
        "flash_bytes": flash,
    }
    figures = ModelFigures("digits", digest, "cycles", layer, 1000, flash)
    facts = key, "profile", float(layer), 1.0, 0, "mps2_an500", "", (figures,)
    return Run(*facts, {"optimize": f"option of {key}"}, {"utvm": "9"}, result)


def test_two_runs_are_compared_with_what_grew_and_whether_outputs_are_right(app: App) -> None:
    digest = app.upload()
    with RunStore(runs_file()) as store:
        store.add(a_profile("aaaaaaaaaaaa", digest, 1000, 5000))
        store.add(a_profile("bbbbbbbbbbbb", digest, 1100, 4000))
        models = (ModelFigures("digits", digest),)
        store.add(Run("cccccccccccc", "verify", 1.0, 1.0, 0, "mps2_an500", "", models))
    text = page(app, "/compare?before=aaaaaaaaaaaa&now=bbbbbbbbbbbb")
    assert "2 figures grew" in text  # the layer and the whole model
    assert text.count(">+10.0 %") == 2
    assert '<td class="n good">-20.0 %' in text
    assert "Modelled, never measured on silicon." in text
    assert text.count("equal to the reference") == 2
    assert "option of aaaaaaaaaaaa" in text
    assert "version of utvm" not in text  # it is the same
    model = page(app, f"/models/{digest}")
    assert "modelled cycles" in model
    assert "/compare?before=aaaaaaaaaaaa&amp;now=bbbbbbbbbbbb" in model
    assert "there is no run" in page(app, "/compare?before=dddddddddddd&now=aaaaaaaaaaaa", 404)


def test_the_page_proposes_two_runs_of_one_model(app: App) -> None:
    assert "No run has figures" in page(app, "/compare")
    other = replace(a_profile("dddddddddddd", "0" * 64, 1200, 1), board="host")
    with RunStore(runs_file()) as store:
        store.add(a_profile("aaaaaaaaaaaa", "0" * 64, 1000, 5000))
        store.add(a_profile("bbbbbbbbbbbb", "0" * 64, 1100, 4000))
        store.add(a_profile("cccccccccccc", "0" * 64, 1150, 4000))
        store.add(other)  # the newest is alone
    assert selected(page(app, "/compare")) == ["bbbbbbbbbbbb", "cccccccccccc"]
    assert selected(page(app, "/compare?now=bbbbbbbbbbbb")) == ["aaaaaaaaaaaa", "bbbbbbbbbbbb"]
    assert selected(page(app, "/compare?now=dddddddddddd")) == ["dddddddddddd"] * 2


def selected(text: str) -> list[str]:
    return re.findall(r'<option value="(\w+)" selected', text)


def test_the_form_names_each_format_that_the_server_takes(app: App, tmp_path: Path) -> None:
    shown = page(app, "/")
    assert "LiteRT (.tflite), ONNX (.onnx); quantized, or float32" in shown
    assert 'accept=".tflite,.onnx"' in shown
    with app_running(Settings(tmp_path / "more", allow_code=True)) as other:
        shown = page(other, "/")
    for ending, name in FORMATS.items():
        assert f"{escape(name)} ({ending})" in shown


def test_who_signed_in_with_a_token_can_sign_out(tmp_path: Path) -> None:
    token = "a token of a server"
    with app_running(Settings(tmp_path / "data", token=token)) as app:
        assert app.http.get("/", headers={"accept": "text/html"}).status_code == 303
        assert "This server asks for a token" in page(app, "/login?next=/jobs")
        answer = app.http.post("/login", data={"token": token, "next": "/jobs"})
        assert answer.headers["location"] == "/jobs"
        assert 'action="/logout"' in page(app, "/")


def test_a_model_to_try_says_why_there_is_none(app: App) -> None:
    digest = app.upload()
    where, policy = f"/models/{digest}/try", "content-security-policy"
    assert "Compile it for browsers" in page(app, where)
    assert "'wasm-unsafe-eval'" in app.http.get(where).headers[policy]
    assert "unsafe-eval" not in app.http.get(f"/models/{digest}").headers[policy]
    bundled = BytesIO()
    with zipfile.ZipFile(bundled, "w") as archive:
        element = '<script type="application/json" id="utvm-model">'
        archive.writestr("digits/index.html", element + r'{"x": "\u003c/script>"}' + "</script>")
    large = BytesIO()
    with zipfile.ZipFile(large, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("digits/index.html", bytes((32 << 20) + 1))
    damaged = BytesIO()
    with zipfile.ZipFile(damaged, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("digits/index.html", bytes(100))
    torn = bytearray(damaged.getvalue())
    torn[30 + len("digits/index.html")] = 0xFF  # what zlib cannot read, behind the local header
    missing = json.dumps({"error": "pip install 'utvm-deploy[wasm]'"}).encode()
    ends = (
        (Outcome(1, missing, b""), "pip install"),
        (Outcome(0, b"{}", b""), "made no bundle; compile it again"),
        (Outcome(0, b"{}", b"", {"bundle.zip": b"no archive"}), "cannot be read; compile it again"),
        (Outcome(0, b"{}", b"", {"bundle.zip": bytes(torn)}), "cannot be read; compile it again"),
        (Outcome(0, b"{}", b"", {"bundle.zip": large.getvalue()}), "unpack the bundle of job"),
        (Outcome(0, b"{}", b"", {"bundle.zip": bundled.getvalue()}), '"x":"\\u003c/script\\u003e"'),
        (Outcome(1, b"", b"no other job is started"), '"x":"'),
    )
    ways: list[JobSpec] = []

    def run(spec: JobSpec) -> Outcome:
        ways.append(spec)
        return ends[len(ways) - 1][0]

    app.cluster.run = run
    for _, told in ends:
        assert app.http.post(where).headers["location"] == where
        wait_until(lambda: "this page looks again" not in page(app, where))
        text = page(app, where)
        assert told in text, text
        assert ("Compile it for browsers" in text) == ('"x"' not in told)
    assert len(ways) == 6
    for one in ways:
        assert one.arguments[:2] == ("bundle", "--board=wasm") and "--format=wasm" in one.arguments
    page(app, "/models/none/try", 404)


def test_several_who_try_a_model_at_once_start_one_job(app: App) -> None:
    # The job lasts as long as the presses do: one that ended without a bundle is started again.
    app.cluster.run = lambda spec: app.cluster.closing.wait() and None
    where, together = f"/models/{app.upload()}/try", threading.Barrier(8)

    def press(_: int) -> int:
        together.wait(10)
        return app.http.post(where).status_code

    with ThreadPoolExecutor(8) as presses:
        assert set(presses.map(press, range(8))) == {303}
    assert len(app.http.get("/api/v1/jobs").json()) == 1
