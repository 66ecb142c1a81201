"""Takes the pictures of the server's pages that docs/images has.

    .venv/bin/python scripts/screenshots/take.py

It starts a server in a temporary folder, lets it run jobs on an emulated board, and looks at its
pages in headless Chromium.
"""

from __future__ import annotations

import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

import httpx

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests" / "service"))
from chromium import chromium, look_as, missing, picture  # noqa: E402
from server_process import Server, serving  # noqa: E402

IMAGES = ROOT / "docs" / "images"
BOARD = "mps2_an500"
_WAIT_S = 300.0


def run(server: Server, digest: str, verb: str, **options: object) -> str:
    """Start a job and wait for its end; returns its key."""
    answer = server.http.post(
        "/api/v1/jobs",
        json={
            "verb": verb,
            "models": [digest],
            "boards": [] if verb == "inspect" else [BOARD],
            "options": options,
        },
    )
    key = answer.raise_for_status().json()[0]["key"]
    deadline = time.monotonic() + _WAIT_S
    while server.http.get(f"/api/v1/jobs/{key}").json()["finished"] is None:
        if time.monotonic() > deadline:
            raise TimeoutError(f"{verb} of {digest} takes longer than {_WAIT_S:.0f} s")
        time.sleep(0.2)
    return key


def take(server: Server, pages: Sequence[tuple[str, str, int, str, int]]) -> None:
    """Each page: name of the picture, path, width, scheme of colours, most height."""
    IMAGES.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as downloads, chromium(Path(downloads)) as driver:
        for name, path, width, scheme, height in pages:
            look_as(driver, width, scheme)
            driver.get(server.url + path)
            time.sleep(0.5)  # fonts and the first look of live parts
            content = picture(driver, width, height)
            (IMAGES / f"{name}.webp").write_bytes(content)
            print(f"docs/images/{name}.webp: {len(content):,} bytes")


def main() -> int:
    """Take all pictures; 1 if there is no browser."""
    if missing():
        print(missing(), file=sys.stderr)
        return 1
    with tempfile.TemporaryDirectory() as folder, serving(Path(folder) / "data") as server:
        digest = server.upload(ROOT / "models" / "digits.tflite")
        other = server.upload(ROOT / "models" / "cifar10_cnn.tflite")
        keys = {verb: run(server, digest, verb) for verb in ("compile", "verify", "bundle")}
        keys["tune"] = run(server, digest, "tune", trials=60)
        before = run(server, digest, "profile", kernels="generic")
        run(server, digest, "profile", optimize="size")
        keys["profile"] = run(server, digest, "profile", records=keys["tune"])
        run(server, digest, "bench")
        # These still run and wait when the pictures are taken.
        for verb, options in (("tune", {"trials": 2000}), ("verify", {}), ("profile", {})):
            wanted = {"verb": verb, "models": [other], "boards": [BOARD], "options": options}
            server.http.post("/api/v1/jobs", json=wanted).raise_for_status()
        time.sleep(12)
        take(
            server,
            [
                ("service-overview", "/", 1280, "light", 1200),
                ("service-overview-phone", "/", 360, "dark", 900),
                ("service-model", f"/models/{digest}", 1280, "light", 1300),
                ("service-job", f"/jobs/{keys['profile']}", 1280, "dark", 1000),
                (
                    *("service-compare", f"/compare?before={before}&now={keys['profile']}"),
                    *(1280, "light", 1000),
                ),
            ],
        )
    return 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except httpx.HTTPError as error:
        sys.exit(f"the server does not answer as it should: {error}")
