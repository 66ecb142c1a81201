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

#: Texts whose contrast to what is behind them is below that of WCAG AA.
PALE_TEXTS = r"""
const rgba = (text) => (text.match(/[\d.]+/g) ?? [0, 0, 0, 0]).map(Number);
const over = (top, below) => {
  const alpha = top[3] ?? 1;
  return [0, 1, 2].map((i) => alpha * top[i] + (1 - alpha) * below[i]);
};
const light = (colour) => {
  const [r, g, b] = colour.map((v) => v / 255)
    .map((v) => (v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4));
  return 0.2126 * r + 0.7152 * g + 0.0722 * b;
};
const dark = matchMedia("(prefers-color-scheme: dark)").matches;
const ground = (element) => {
  if (!element) return dark ? [18, 18, 18] : [255, 255, 255];
  const own = rgba(getComputedStyle(element).backgroundColor);
  return (own[3] ?? 1) === 1 ? own.slice(0, 3) : over(own, ground(element.parentElement));
};
const pale = [];
for (const element of document.querySelectorAll("body *")) {
  const texts = [...element.childNodes].filter((n) => n.nodeType === 3 && n.data.trim());
  if (!texts.length || !element.checkVisibility()) continue;
  if (element.closest("svg, option, noscript")) continue;
  const style = getComputedStyle(element);
  const behind = ground(element);
  const pair = [light(over(rgba(style.color), behind)), light(behind)].sort((a, b) => b - a);
  const ratio = (pair[0] + 0.05) / (pair[1] + 0.05);
  const size = parseFloat(style.fontSize);
  const isLarge = size >= 24 || (size >= 18.66 && Number(style.fontWeight) >= 700);
  if (ratio < (isLarge ? 3 : 4.5)) pale.push(`${texts[0].data.trim()}: ${ratio.toFixed(2)}`);
}
return pale;
"""


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
