"""Measures a server under load: 100 jobs from 20 clients, with few and with many jobs stored.

    pip install locust
    python benchmarks/service/load.py                with 10, 1,000 and 10,000 finished jobs stored
    python benchmarks/service/load.py --stored 10    with 10

Clients, server and jobs share this computer. So the figures are those of a server that is busy.
"""

from __future__ import annotations

import argparse
import csv
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
sys.path.insert(0, str(ROOT / "tests" / "service"))

from server_process import serving  # noqa: E402
from stored_jobs import fill  # noqa: E402

from utvm_deploy.service.server.store.database import Database  # noqa: E402

STORED = (10, 1_000, 10_000)
CLIENTS, JOBS = 20, 100
#: The longest that a run may take.
PATIENCE_S = 900.0
#: Jobs of the store ended long ago; the server shall keep them nevertheless.
KEEP_DAYS = "100000"


def measure(stored: int, folder: Path) -> tuple[Mapping[str, tuple[int, int, int]], float]:
    """Requests, p50 and p95 in ms of each kind of request; and the seconds of the run."""
    data = folder / "data"
    data.mkdir()
    with Database(data / "service.sqlite") as database:
        fill(database, stored, models=min(stored, 200))
    environment = {
        **os.environ,
        "MODEL": str(ROOT / "models" / "digits.tflite"),
        "JOBS": str(JOBS // CLIENTS),
        "CLIENTS": str(CLIENTS),
    }
    with serving(data, "--keep-days", KEEP_DAYS) as server:
        argv = [sys.executable, "-m", "locust", "-f", str(HERE / "clients.py"), "--headless"]
        argv += ["--host", server.url, "-u", str(CLIENTS), "-r", str(CLIENTS), "--only-summary"]
        began = time.monotonic()
        subprocess.run(
            [*argv, "--csv", str(folder / "load")],
            env=environment,
            cwd=folder,
            check=True,
            timeout=PATIENCE_S,
        )
        seconds = time.monotonic() - began
        ended = server.http.get("/api/v1/jobs", params={"state": "done", "verb": "inspect"})
    assert len(ended.json()) == JOBS, f"{len(ended.json())} of {JOBS} jobs are done"
    with (folder / "load_stats.csv").open(newline="") as file:
        rows = [row for row in csv.DictReader(file) if row["Name"] != "Aggregated"]
    assert not sum(int(row["Failure Count"]) for row in rows)
    return {
        row["Name"]: (int(row["Request Count"]), int(row["50%"]), int(row["95%"])) for row in rows
    }, seconds


def main() -> None:
    """Print a table in Markdown."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--stored", type=int, action="append", help="finished jobs in the store")
    sizes = parser.parse_args().stored or STORED
    found = {}
    for stored in sizes:
        with tempfile.TemporaryDirectory() as folder:
            found[stored], seconds = measure(stored, Path(folder))
        print(f"{stored:,} stored jobs: {JOBS} jobs took {seconds:.0f} s", file=sys.stderr)
    print("| request | " + " | ".join(f"{stored:,} stored" for stored in sizes) + " |")
    print("|---|" + "--:|" * len(sizes))
    for name in sorted(found[sizes[0]]):
        cells = [
            f"{figures[1]} / {figures[2]}"
            for figures in (found[stored].get(name, (0, 0, 0)) for stored in sizes)
        ]
        print(f"| {name} | {' | '.join(cells)} |")


if __name__ == "__main__":
    main()
