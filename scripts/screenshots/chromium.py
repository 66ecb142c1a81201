"""Headless Chromium for the tests of pages and for their pictures in the docs."""

from __future__ import annotations

import base64
import contextlib
import os
import shutil
from collections.abc import Iterator
from pathlib import Path

from selenium.webdriver import Chrome
from selenium.webdriver.chrome.options import Options
from selenium.webdriver.chrome.service import Service

_NAMES = ("chromium", "chromium-browser", "google-chrome")
_HEIGHT = 900


def missing() -> str:
    """Why there is no browser here; empty if there is one."""
    if not any(map(shutil.which, _NAMES)) or not shutil.which("chromedriver"):
        return "no Chromium with its driver is installed (Debian: chromium, chromium-driver)"
    return ""


@contextlib.contextmanager
def chromium(downloads: Path) -> Iterator[Chrome]:
    """A browser without a window; files that it downloads go to a folder."""
    options = Options()
    options.binary_location = next(filter(None, map(shutil.which, _NAMES)))
    options.add_argument("--headless=new")
    options.add_argument("--disable-dev-shm-usage")  # containers have little of it
    options.add_argument("--hide-scrollbars")
    if os.geteuid() == 0:
        options.add_argument("--no-sandbox")  # root gets none
    driver = Chrome(options=options, service=Service(shutil.which("chromedriver")))
    try:
        driver.execute_cdp_cmd(
            "Browser.setDownloadBehavior", {"behavior": "allow", "downloadPath": str(downloads)}
        )
        yield driver
    finally:
        driver.quit()


def look_as(driver: Chrome, width: int, scheme: str) -> None:
    """Give the page this width in pixels, and a scheme of colours: light or dark."""
    metrics = {"width": width, "height": _HEIGHT, "deviceScaleFactor": 1, "mobile": False}
    driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)
    feature = {"name": "prefers-color-scheme", "value": scheme}
    driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": [feature]})


def picture(driver: Chrome, width: int, most_height: int) -> bytes:
    """The page from its top, as WebP."""
    height = driver.execute_script("return document.documentElement.scrollHeight")
    clip = {"x": 0, "y": 0, "width": width, "height": min(height, most_height), "scale": 1}
    taken = driver.execute_cdp_cmd(
        "Page.captureScreenshot",
        {"format": "webp", "quality": 80, "captureBeyondViewport": True, "clip": clip},
    )
    return base64.b64decode(taken["data"])
