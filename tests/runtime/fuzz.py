"""libFuzzer on the C runtime, with AddressSanitizer, UBSan and the runtime's own assertions.

    python -m tests.runtime.fuzz --seconds 60
    python -m tests.runtime.fuzz --runs 20000000 --corpus build/fuzz

Exit 1 and the offending input's path if something does not hold.
"""

from __future__ import annotations

import argparse
import re
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

from utvm_deploy.base.paths import runtime_dir

HERE = Path(__file__).parent
COMPILER = "clang"
FLAGS = [
    *("-std=c99", "-g", "-O2", "-fno-pie"),
    *("-fsanitize=address,undefined", "-fno-sanitize-recover=all"),
    *("-include", str(HERE / "fuzz_assert.h"), f"-I{HERE}"),
]
# libFuzzer wants to begin with something that reaches the runtime: a READ in a whole frame.
SEED_INPUT = bytes((1, 255, 255, 0, 2, 8, *range(8)))
# Long enough for the longest frame and a few short ones.
MAX_INPUT_BYTES = 512
BUILD_TIMEOUT_S = 120
# Beyond what libFuzzer was told, for start-up and the last input.
MARGIN_S = 60


@dataclass(frozen=True)
class FuzzRun:
    """What one run of libFuzzer came to."""

    inputs: int
    edges: int  # of the program that were reached
    finding: str  # what did not hold; empty if all did


def missing() -> str:
    """Why it cannot run here, or an empty string."""
    if shutil.which(COMPILER) is None:
        return f"{COMPILER} is not installed"
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder) / "empty.c"
        source.write_text(
            "#include <stddef.h>\n#include <stdint.h>\n"
            "int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)\n"
            "{ return data && size > 1u << 30; }\n"
        )
        command = [COMPILER, "-fsanitize=fuzzer,address", str(source), "-o", f"{folder}/empty"]
        done = subprocess.run(command, capture_output=True, timeout=BUILD_TIMEOUT_S)
    return "" if done.returncode == 0 else f"{COMPILER} has no libFuzzer; see scripts/setup"


def build(program: Path, runtime: Path) -> Path:
    """The fuzzer of the runtime's sources in that folder."""
    objects = []
    # What counts as reached is the runtime, not the port around it: that is also twice as fast.
    for sources, flag in (
        ([HERE / "fuzz_poll.c", HERE / "memory_port.c"], []),
        (sorted(runtime.glob("*.c")), ["-fsanitize=fuzzer-no-link"]),
    ):
        for source in sources:
            objects.append(str(program.with_name(f"{source.stem}.o")))
            command = [COMPILER, *FLAGS, *flag, f"-I{runtime}", "-c", str(source)]
            subprocess.run([*command, "-o", objects[-1]], check=True, timeout=BUILD_TIMEOUT_S)
    command = [COMPILER, *FLAGS, "-no-pie", "-fsanitize=fuzzer", *objects, "-o", str(program)]
    subprocess.run(command, check=True, timeout=BUILD_TIMEOUT_S)
    return program


def fuzz(
    program: Path,
    folder: Path,
    *,
    seconds: int | None = None,
    runs: int | None = None,
    seed: int = 0,
) -> FuzzRun:
    """Run it on and into the corpus in ``folder``; inputs that break something go there too."""
    corpus = folder / "corpus"
    corpus.mkdir(parents=True, exist_ok=True)
    (corpus / "seed").write_bytes(SEED_INPUT)
    command = [str(program), f"-max_len={MAX_INPUT_BYTES}", f"-artifact_prefix={folder}/"]
    command += [f"-seed={seed}", "-print_final_stats=1"]
    command += [f"-max_total_time={seconds}"] * (seconds is not None)
    command += [f"-runs={runs}"] * (runs is not None)
    timeout_s = None if seconds is None else seconds + MARGIN_S
    done = subprocess.run(
        [*command, str(corpus)],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        errors="replace",
        timeout=timeout_s,
    )
    count = re.findall(r"stat::number_of_executed_units: (\d+)", done.stderr)
    edges = re.findall(r" cov: (\d+)", done.stderr)
    lines = [
        line
        for line in done.stderr.splitlines()
        if re.search(r"not true|ERROR: |runtime error|Test unit written", line)
    ]
    finding = "" if done.returncode == 0 else "; ".join(lines) or f"status {done.returncode}"
    return FuzzRun(int(count[-1]) if count else 0, int(edges[-1]) if edges else 0, finding)


def main() -> int:
    parser = argparse.ArgumentParser(description="Fuzz the C runtime.")
    parser.add_argument("--seconds", type=int, help="stop after so long")
    parser.add_argument("--runs", type=int, help="stop after so many inputs")
    parser.add_argument("--corpus", type=Path, help="folder to keep what was learned in")
    parser.add_argument("--seed", type=int, default=0, help="0: another one each time")
    options = parser.parse_args()
    reason = missing()
    if reason:
        print(reason, file=sys.stderr)
        return 1
    with tempfile.TemporaryDirectory() as folder:
        program = build(Path(folder) / "fuzz", runtime_dir())
        found = fuzz(
            program,
            options.corpus or Path(folder),
            seconds=options.seconds or (None if options.runs else 60),
            runs=options.runs,
            seed=options.seed,
        )
    print(f"{found.inputs} inputs, {found.edges} edges, {found.finding or 'nothing found'}")
    return 1 if found.finding else 0


if __name__ == "__main__":
    sys.exit(main())
