"""Coverage-guided fuzz of the importer, with atheris (libFuzzer for Python).

    scripts/fuzz-import                            a minute
    scripts/fuzz-import --seconds 1800 --corpus build/fuzz-import

Whatever bytes come, the answer is a graph or a ModelError in one sentence, within ten seconds and
1 GiB. Exit 1 and the offending input's path if not. Inputs begin as random models and as mutants of
them; what reaches new code is kept and mutated further.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
SEEDS = 150
#: libFuzzer's own limits for one input; memory is all that the process may have.
TIMEOUT_S = 10
MEMORY_MB = 1536
MAX_INPUT_BYTES = 8192
INSTRUMENTED = ("utvm_deploy.frontend", "utvm_deploy.graph", "tflite", "flatbuffers")


def fuzz_one_process(arguments: list[str]) -> None:
    """In the child: hand the importer to libFuzzer, which does not return."""
    import atheris

    with atheris.instrument_imports(include=list(INSTRUMENTED)):
        from utvm_deploy.base.errors import ModelError
        from utvm_deploy.frontend.tflite import load_model
        from utvm_deploy.graph.passes.simplify import simplify
        from utvm_deploy.results.inspecting.facts import inspect_model

    # Ended by libFuzzer without a word: the file is left, in memory if there is a place for it.
    folder = tempfile.mkdtemp(
        prefix="utvm-fuzz-", dir="/dev/shm" if Path("/dev/shm").is_dir() else None
    )
    path = Path(folder) / "input.tflite"

    def import_bytes(data: bytes) -> None:
        path.write_bytes(data)
        try:
            graph = load_model(path)
            inspect_model(graph)
            simplify(graph)
        except ModelError as exc:
            assert "\n" not in str(exc), f"more than a sentence: {exc}"

    atheris.Setup(arguments, import_bytes)
    atheris.Fuzz()


def write_seeds(folder: Path) -> None:
    """Small random models, and mutants of such."""
    sys.path[:0] = [str(HERE), str(HERE.parent)]
    from hostile.mutations import mutant
    from random_models.generator import generate
    from random_models.recipe import write

    for seed in range(SEEDS):
        for name, data in ((f"model_{seed}", write(generate(seed)).to_bytes()), mutant(seed)):
            if len(data) <= MAX_INPUT_BYTES:
                (folder / f"{name}_{seed}".replace(" ", "_")).write_bytes(data)


def main() -> int:
    """The parent: seeds, then libFuzzer in a child."""
    parser = argparse.ArgumentParser(prog="scripts/fuzz-import", description=__doc__)
    parser.add_argument("--seconds", type=int, default=60)
    parser.add_argument("--corpus", type=Path, help="goes on from what was learned there")
    parser.add_argument("--artifacts", type=Path, default=Path("build/fuzz-import-findings"))
    args = parser.parse_args()
    args.artifacts.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="utvm-fuzz-seeds-") as seeds:
        write_seeds(Path(seeds))
        folders = [str(args.corpus)] if args.corpus else []
        if args.corpus:
            args.corpus.mkdir(parents=True, exist_ok=True)
        command = [
            *(sys.executable, "-m", "tests.frontend.fuzz_import", "--child"),
            *folders,
            seeds,
            f"-max_total_time={args.seconds}",
            f"-timeout={TIMEOUT_S}",
            f"-rss_limit_mb={MEMORY_MB}",
            f"-max_len={MAX_INPUT_BYTES}",
            f"-artifact_prefix={args.artifacts}/",
            "-print_final_stats=1",
        ]
        return 1 if subprocess.run(command).returncode else 0


if __name__ == "__main__":
    if sys.argv[1:2] == ["--child"]:
        fuzz_one_process([sys.argv[0], *sys.argv[2:]])
    sys.exit(main())
