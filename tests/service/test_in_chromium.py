"""The server's pages in headless Chromium: from a model file to the bundle, and how pages look."""

from __future__ import annotations

import sys
import time
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeVar

import httpx
import pytest
from needed_machine import skip_without_machine
from server_process import ROOT, Server

from utvm_deploy.boards.board import load_board

pytest.importorskip("selenium", reason="selenium is not installed (pip install '.[test]')")
sys.path.insert(0, str(ROOT / "scripts" / "screenshots"))
from chromium import PALE_TEXTS, chromium, look_as, missing
from selenium.webdriver import ActionChains, Chrome
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys

pytestmark = [
    pytest.mark.tools,
    pytest.mark.emulator,
    pytest.mark.skipif(bool(missing()), reason=missing()),
]

BOARD = "mps2_an500"
MODEL = ROOT / "models" / "digits.tflite"
PATIENCE_S = 300.0
LOOKS = [(360, "light"), (360, "dark"), (1280, "light"), (1280, "dark"), (2560, "light")]

#: What is wider than the page and does not scroll by itself, and what its left edge cuts.
WIDE = """
const root = document.documentElement;
const isWide = root.scrollWidth > innerWidth;
return [...document.querySelectorAll("body *")]
  .filter((element) => !element.closest(".log"))
  .filter((element) => {
    const { left, right } = element.getBoundingClientRect();
    const hidden = element.closest("thead, .hidden");
    if (hidden && getComputedStyle(hidden).clipPath !== "none") return false;
    if (left < -1 && right > 1) return true;
    return isWide && right > innerWidth && !element.closest(".scroll");
  })
  .map((element) => `${element.tagName}.${element.className}`).slice(0, 5);
"""
TOP_OF_STATE = "return document.querySelector('.tiles').getBoundingClientRect().top"
#: The height of a phone's page in pixels, without the browser's own rows.
SCREEN = 660
T = TypeVar("T")


@pytest.fixture(scope="module")
def downloads(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("downloads")


@pytest.fixture(scope="module")
def browser(downloads: Path) -> Iterator[Chrome]:
    with chromium(downloads) as driver:
        yield driver


def wait_for(found: Callable[[], T]) -> T:
    """What a function finds once it finds something; pages may change while it looks."""
    from selenium.common.exceptions import WebDriverException

    deadline = time.monotonic() + PATIENCE_S
    while True:
        try:
            if value := found():
                return value
        except WebDriverException:
            pass
        assert time.monotonic() < deadline, "it does not happen"
        time.sleep(0.1)


def press(driver: Chrome, key: str) -> None:
    ActionChains(driver).send_keys(key).perform()


def text_of(driver: Chrome, selector: str) -> str:
    return driver.find_element(By.CSS_SELECTOR, selector).text


def log_of(driver: Chrome) -> list[Any]:
    """What the browser complained about since the last time."""
    return [entry["message"] for entry in driver.get_log("browser")]


def test_from_a_model_file_to_its_bundle(server: Server, browser: Chrome, downloads: Path) -> None:
    look_as(browser, 1280, "light")
    browser.get(server.url)
    browser.find_element(By.NAME, "file").send_keys(str(MODEL))
    for box in browser.find_elements(By.NAME, "verb"):
        if box.is_selected() != (box.get_attribute("value") == "bundle"):
            box.click()
    browser.find_element(By.CSS_SELECTOR, f"input[value={BOARD}]").click()
    browser.find_element(By.CSS_SELECTOR, "button.main").click()
    wait_for(lambda: text_of(browser, "h1") == f"bundle {MODEL.name} on {BOARD}")
    # The page follows the job by itself.
    link = wait_for(lambda: browser.find_element(By.PARTIAL_LINK_TEXT, "bundle.zip"))
    assert text_of(browser, ".verdict").startswith("done")
    link.click()
    bundle = downloads / "bundle.zip"
    wait_for(bundle.exists)
    with zipfile.ZipFile(bundle) as archive:
        assert archive.testzip() is None
        assert "digits/include/digits.h" in archive.namelist()
    assert log_of(browser) == []


def test_a_job_is_started_with_the_keyboard_alone(server: Server, browser: Chrome) -> None:
    server.upload(MODEL)
    look_as(browser, 360, "dark")
    browser.get(server.url)
    wait_for(lambda: browser.find_element(By.CSS_SELECTOR, ".start"))
    seen = []
    for _ in range(80):
        press(browser, Keys.TAB)
        now = browser.switch_to.active_element
        seen.append(now.get_attribute("name") or now.text)
        ring = browser.execute_script(
            "const s = getComputedStyle(arguments[0]);"
            "return s.outlineStyle === 'none' ? 0 : parseFloat(s.outlineWidth)",
            now,
        )
        assert ring > 0, f"nobody sees that {seen[-1]!r} has the focus"
        if seen[-1] == "model":
            press(browser, Keys.ARROW_DOWN)
        elif seen[-1] == "verb":
            if now.is_selected() != (now.get_attribute("value") == "inspect"):
                press(browser, Keys.SPACE)
        elif seen[-1] == "Deploy a model":
            assert browser.execute_script(TOP_OF_STATE) < SCREEN
            press(browser, Keys.ENTER)  # the form is folded where it is above the state
        elif seen[-1] == "Start":
            press(browser, Keys.ENTER)
            break
    assert {
        "Skip to the content",
        "Jobs",
        "Deploy a model",
        "file",
        "model",
        "verb",
        "board",
    } <= set(seen)
    wait_for(lambda: text_of(browser, "h1") == f"inspect {MODEL.name}")
    wait_for(lambda: text_of(browser, ".verdict").startswith("done"))
    assert log_of(browser) == []


def test_pages_fit_all_widths_and_are_legible_in_both_schemes(
    server: Server, browser: Chrome
) -> None:
    digest = server.upload(MODEL)
    keys = [start(server, digest, verb) for verb in ("inspect", "profile", "profile")]
    paths = ["/", "/jobs", "/models", f"/models/{digest}", "/boards", f"/boards/{BOARD}"]
    paths += [f"/jobs/{keys[0]}", f"/jobs/{keys[1]}"]
    # What `utvm profile --html` wrote has the same style.
    paths.append(f"/api/v1/jobs/{keys[1]}/files/profile.html?show=true")
    paths += [f"/compare?before={keys[1]}&now={keys[2]}", "/nothing/is/here"]
    wrong = []
    for path in paths:
        browser.get(server.url + path)
        for width, scheme in LOOKS:
            look_as(browser, width, scheme)
            place = f"{path} at {width} px, {scheme}"
            wrong += [f"{place}: too wide: {one}" for one in browser.execute_script(WIDE)]
            wrong += [f"{place}: too pale: {one}" for one in browser.execute_script(PALE_TEXTS)]
        complaints = [text for text in log_of(browser) if "404" not in text or path != paths[-1]]
        wrong += [f"{path}: {text}" for text in complaints]
    assert wrong == []


def start(server: Server, digest: str, verb: str) -> str:
    """A job that has ended well."""
    boards = [] if verb == "inspect" else [BOARD]
    wanted = {"verb": verb, "models": [digest], "boards": boards}
    answer = server.http.post("/api/v1/jobs", json=wanted)
    assert answer.status_code == 201, answer.text
    key = str(answer.json()[0]["key"])
    job = wait_for(
        lambda: (job := server.http.get(f"/api/v1/jobs/{key}").json())["finished"] and job
    )
    assert job["state"] == "done", job["reason"]
    return key


def test_a_model_runs_in_the_readers_browser(server: Server, browser: Chrome) -> None:
    """One press compiles it; the page allows WebAssembly, and no script but the server's own."""
    skip_without_machine(load_board("wasm"))
    sha256 = server.upload(MODEL)
    look_as(browser, 1280, "light")
    browser.get(f"{server.url}/models/{sha256}")
    browser.find_element(By.XPATH, "//button[text()='Try it in this browser']").click()
    equal = "4 of 4 samples equal to the reference"
    wait_for(lambda: text_of(browser, "#selftest") == equal)
    browser.find_element(By.CSS_SELECTOR, "#numbers summary").click()
    browser.execute_script(
        "arguments[0].value = '7 '.repeat(64)", browser.find_element(By.ID, "values")
    )
    browser.find_element(By.ID, "paste").click()
    assert "ms, " in text_of(browser, "#time") and text_of(browser, "tr.best th")
    for width, scheme in LOOKS:
        look_as(browser, width, scheme)
        assert not browser.execute_script(WIDE), (width, scheme)
        assert not browser.execute_script(PALE_TEXTS), (width, scheme)
    assert log_of(browser) == []
    browser.execute_script(
        "const one = document.createElement('script'); one.textContent = 'window.ran = 1';"
        "document.body.append(one)"
    )
    assert browser.execute_script("return window.ran ?? null") is None and log_of(browser)
    # It is kept: the job that made it is not started again.
    made = bundles_of(server, sha256)
    browser.get(f"{server.url}/models/{sha256}")
    browser.find_element(By.XPATH, "//button[text()='Try it in this browser']").click()
    wait_for(lambda: text_of(browser, "#selftest") == equal)
    assert made and bundles_of(server, sha256) == made


def bundles_of(server: Server, sha256: str) -> set[str]:
    """The jobs that made bundles of a model for browsers, or make them."""
    with httpx.Client() as http:
        jobs = http.get(f"{server.url}/api/v1/jobs", params={"model": sha256}).json()
    return {one["key"] for one in jobs if (one["verb"], one["board"]) == ("bundle", "wasm")}
