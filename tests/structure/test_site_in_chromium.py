"""The site's own script and style, on small pages that are opened as files in headless Chromium."""

from __future__ import annotations

import shutil
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
pytest.importorskip("selenium", reason="selenium is not installed (pip install '.[test]')")
pytest.importorskip("material", reason="mkdocs-material is not installed (pip install '.[test]')")
sys.path.insert(0, str(ROOT / "scripts" / "screenshots"))
from chromium import PALE_TEXTS, chromium, look_as, missing  # noqa: E402
from mkdocs.commands.build import build  # noqa: E402
from mkdocs.config import load_config  # noqa: E402
from selenium.webdriver import Chrome  # noqa: E402

pytestmark = [pytest.mark.tools, pytest.mark.skipif(bool(missing()), reason=missing())]

ASSETS = ("iframe-worker.js", "site.css")
PAGES = {
    "index.md": "# Start\n\nA [link](other.md), and [`--json`](other.md).\n\n## Below\n\nText.\n",
    "other.md": "# Other\n\n```python\nnumber: int = 3  # a note\nprint(True)\n```\n\nA marmot.\n",
}
PATIENCE_S = 30.0


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    (folder / "docs" / "assets").mkdir(parents=True)
    for name, text in PAGES.items():
        (folder / "docs" / name).write_text(text)
    for name in ASSETS:
        shutil.copy(ROOT / "scripts" / "site" / name, folder / "docs" / "assets")
    changed = {"docs_dir": str(folder / "docs"), "site_dir": str(folder / "site"), "strict": False}
    config = load_config(
        str(ROOT / "mkdocs.yml"), **changed, nav=None, hooks=[], plugins=["search", "offline"]
    )
    build(config)
    return folder / "site"


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Chrome]:
    with chromium(tmp_path_factory.mktemp("downloads")) as driver:
        yield driver


def test_the_search_works_without_a_server(site: Path, browser: Chrome) -> None:
    look_as(browser, 1200, "light")
    browser.get((site / "index.html").as_uri())
    browser.execute_script("document.getElementById('__search').click()")
    field = browser.find_element("css selector", ".md-search__input")
    browser.execute_script("arguments[0].focus()", field)
    browser.switch_to.active_element.send_keys("marmot")
    deadline = time.monotonic() + PATIENCE_S
    while not (found := browser.find_elements("css selector", ".md-search-result__link")):
        assert time.monotonic() < deadline, "the search finds nothing"
        time.sleep(0.1)
    assert "other.html" in (found[0].get_attribute("href") or "")
    assert browser.execute_script(PALE_TEXTS) == []


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [360, 1900])
def test_no_text_is_pale(site: Path, browser: Chrome, width: int, scheme: str) -> None:
    look_as(browser, width, scheme)
    for name in PAGES:
        browser.get((site / name).with_suffix(".html").as_uri())
        assert browser.execute_script(PALE_TEXTS) == [], name
        assert browser.execute_script("return document.body.scrollWidth <= innerWidth"), name
