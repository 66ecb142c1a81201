"""Measures what a session with a device costs: exchanges, task lists, bulk memory, modules.

    python benchmarks/sessions/run.py                      the table, for the default boards
    python benchmarks/sessions/run.py --board B --link L   one board, one link
    python benchmarks/sessions/run.py --write              docs/internals/sessions.md and .svg

All numbers of a row come from one run on one computer; the ratios are what to look at.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

import utvm_deploy
from utvm_deploy.base.errors import UtvmError
from utvm_deploy.device import Device
from utvm_deploy.device.link.base import Task

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
sys.path.insert(0, str(HERE))

from report import markdown, plot, table  # noqa: E402

#: Where sessions are measured by default: a process, and an emulated board over each of its links.
DEFAULTS = (
    ("host", "monitor"),
    ("mps2_an500", "monitor"),
    ("mps2_an500", "debug"),
    ("mps2_an500", "monitor+debug"),
)
BATCHES = (1, 16, 256)
CALLS = 200
BULK_BYTES = 64 * 1024
MODULE_BYTES = 8 * 1024
#: Each measurement is the median of so many.
ROUNDS = 9
BATCH_TIMEOUT_S = 30.0

KERNEL = """
#include <stdint.h>
void axpy(const int8_t *x, int32_t *y, int32_t n) { for (int i = 0; i < n; i++) y[i] += 3 * x[i]; }
"""


@dataclass(frozen=True)
class Measured:
    """One board over one link; everything in seconds."""

    board: str
    link: str
    start_s: float  # from nothing to the first answer, the image being built
    exchange_s: float  # four bytes read
    batches_s: dict[int, float]  # number of tasks -> one execute
    read_s: float  # BULK_BYTES
    write_s: float
    strict_s: float  # CALLS calls of a small kernel, each at once
    lazy_s: float  # the same, queued
    mixed_s: float  # CALLS calls with other arguments each time, queued
    repeat_s: float  # the same, as one call repeated
    kernel_s: float  # what the calls themselves take, by the device's clock
    compile_s: float  # a module of MODULE_BYTES, not seen before
    load_s: float  # linked and written, compiled before
    module_bytes: int


def seconds(work: Callable[[], object], rounds: int = ROUNDS) -> float:
    """Median time of ``work``."""
    times = []
    for _ in range(rounds):
        began = time.perf_counter()
        work()
        times.append(time.perf_counter() - began)
    return statistics.median(times)


def measure(board: str, link: str) -> Measured:
    """Start the board and measure everything once."""
    with utvm_deploy.connect(board, link=link) as device:
        _ = device.hello  # builds the image
    with utvm_deploy.connect(board, link=link) as device:
        start_s = seconds(lambda: device.hello, 1)
        memory = device.allocate(BULK_BYTES)
        noise = np.random.default_rng(0).bytes(BULK_BYTES)
        exchange_s = seconds(lambda: device.read(memory, 4), 50)
        task = Task(device.symbol("utvm_fill"), (memory, 4, 0))
        batches = {n: seconds(lambda n=n: device.execute([task] * n, BATCH_TIMEOUT_S))
                   for n in BATCHES}  # fmt: skip
        write_s = seconds(lambda: device.write(memory, noise), 3)
        read_s = seconds(lambda: device.read(memory, BULK_BYTES), 3)
        if device.read(memory, BULK_BYTES) != noise:
            raise SystemExit(f"{board} over {link} gave other bytes back")
        device.free(memory)
        strict_s, lazy_s, mixed_s, repeat_s, kernel_s = run_kernel(device)
        compile_s, load_s, size = load_big_module(device)
    return Measured(
        board,
        link,
        start_s,
        exchange_s,
        batches,
        read_s,
        write_s,
        strict_s,
        lazy_s,
        mixed_s,
        repeat_s,
        kernel_s,
        compile_s,
        load_s,
        size,
    )


def run_kernel(device: Device) -> tuple[float, float, float, float, float]:
    """CALLS calls, strict, lazy, mixed and as repeats, with the result read; and their own time."""
    module = device.load_module(KERNEL, flags=("-O3",))
    x = device.tensor(np.ones(64, np.int8), name="x")
    y = device.tensor(np.zeros(64, np.int32), name="y")
    rounds = 0

    def check(calls: int) -> None:
        nonlocal rounds
        rounds += calls
        if y.numpy()[0] != 3 * rounds:
            raise SystemExit(f"{device.board.name} computes wrongly")

    def calls() -> None:
        for _ in range(CALLS):
            module["axpy"](x, y, 64)
        check(CALLS)

    def mixed() -> None:
        for number in range(CALLS):
            module["axpy"](x, y, 64 - number % 2)
        check(CALLS)

    def repeated() -> None:
        module["axpy"](x, y, 64, repeat=CALLS)
        check(CALLS)

    device.strict = True
    strict_s = seconds(calls, 3)
    device.strict = False
    lazy_s, mixed_s, repeat_s = (seconds(work, 5) for work in (calls, mixed, repeated))
    call = module["axpy"](x, y, 64, repeat=CALLS)
    kernel_s = sum(call.ticks.all) / call.ticks.per_second
    return strict_s, lazy_s, mixed_s, repeat_s, kernel_s


def load_big_module(device: Device) -> tuple[float, float, int]:
    """A module of MODULE_BYTES: first load, later loads, size."""
    # A seed of its own, or the cache of an earlier run has it.
    values = np.random.default_rng().integers(0, 256, MODULE_BYTES - 64)
    source = (
        f"const unsigned char table[] = {{{','.join(map(str, values))}}};\n"
        "void look(const int *at, int *out) { *out = table[*at]; }\n"
    )

    def load() -> int:
        with device.load_module(source, name="big") as module:
            at, out = device.tensor(np.array([77], np.int32)), device.empty(1, np.int32)
            module["look"](at, out)
            if out.numpy()[0] != values[77]:
                raise SystemExit(f"the module on {device.board.name} computes wrongly")
            return module.size_bytes

    compile_s = seconds(load, 1)
    load_s = seconds(load, 5)
    return compile_s, load_s, load()


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--board", help="one board instead of the default ones")
    parser.add_argument("--link", default="monitor", help="its link (default: monitor)")
    parser.add_argument("--write", action="store_true", help="write the page in docs/")
    arguments = parser.parse_args(argv)
    pairs = [(arguments.board, arguments.link)] if arguments.board else DEFAULTS
    rows = []
    for board, link in pairs:
        try:
            rows.append(measure(board, link))
        except UtvmError as error:
            print(f"{board} over {link}: {error}", file=sys.stderr)
            return 1
    print(table(rows))
    if arguments.write:
        (ROOT / "docs" / "internals" / "sessions.svg").write_text(plot(rows), encoding="utf-8")
        (ROOT / "docs" / "internals" / "sessions.md").write_text(markdown(rows), encoding="utf-8")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
