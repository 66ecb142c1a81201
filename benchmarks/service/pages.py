"""How long pages and lists of a server take, with few and with many jobs in its store.

    python benchmarks/service/pages.py [JOBS ...]

Each address is asked for ROUNDS times by one client. The jobs have ended; none runs.
"""

from __future__ import annotations

import statistics
import sys
import tempfile
import time
from pathlib import Path

import httpx

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests" / "service"))

from app_server import app_running  # noqa: E402
from stored_jobs import digest, fill, key_of  # noqa: E402

from utvm_deploy.service.server.store.settings import Settings  # noqa: E402

ROUNDS = 40
MODELS = 200


def paths(jobs: int) -> tuple[str, ...]:
    """What is asked for."""
    key, model = key_of(jobs - 1), digest(1)
    return (
        *("/", "/jobs", "/jobs?state=failed&board=host", f"/jobs/{key}", "/models"),
        *(f"/models/{model}", "/boards", "/boards/host", "/compare"),
        *("/api/v1/jobs", f"/api/v1/jobs/{key}", "/api/v1/models", "/api/v1/boards"),
    )


def milliseconds(http: httpx.Client, path: str) -> list[float]:
    """Of each request, sorted; the first, which fills caches, is left out."""
    found = []
    for _ in range(ROUNDS + 1):
        start = time.perf_counter()
        http.get(path).raise_for_status()
        found.append(1000 * (time.perf_counter() - start))
    return sorted(found[1:])


def main(counts: list[int]) -> None:
    for jobs in counts:
        with (
            tempfile.TemporaryDirectory() as folder,
            app_running(Settings(Path(folder) / "data")) as app,
        ):
            fill(app.parts.database, jobs, min(MODELS, jobs))
            print(f"{jobs} jobs   {'':26} p50 ms   p95 ms   max ms")
            for path in paths(jobs):
                times = milliseconds(app.http, path)
                p95 = times[int(0.95 * len(times)) - 1]
                figures = (statistics.median(times), p95, times[-1])
                print(f"{path[:40]:40}" + "".join(f"{one:9.1f}" for one in figures))


if __name__ == "__main__":
    main([int(one) for one in sys.argv[1:]] or [10, 1_000, 10_000])
