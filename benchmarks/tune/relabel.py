"""Label records of an older tree as today's, where today's tree makes the same kernels of them.

    python benchmarks/tune/relabel.py --old-tree DIR [--measure N] CORE.jsonl...

Every edit of the kernels' generators makes records stale, whether or not it changes their code.
Both trees generate each record's C here, as replay does (benchmarks/replay). Where the C is the
same, or GCC makes the same assembly of it, the record gets today's ``code`` and version. Modelled
ticks also get today's ``model`` if N records spread over the file take the same ticks in both
trees, measured now. What differs is left as it is.

Kernels are found in the zoo and in the models that ``--model`` names: the repository's, and those
of the folder that UTVM_SHARED names, if nothing is given.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "benchmarks" / "replay"))
from emission import (  # noqa: E402
    board_of,
    candidate_parts,
    graphs_of,
    model_files,
    operators_by_key,
)

#: Generating the C of a file's records takes minutes; this ends what hangs.
TIMEOUT_S = 3600
#: Of assembly: where it comes from, and who wrote it.
_NOT_CODE = re.compile(r"^\s*\.(file|ident)\b.*$", re.MULTILINE)


def works_by_key(models: Sequence[Path], core: str) -> Mapping[str, Any]:
    """Key of each known kernel -> its work."""
    from utvm_deploy.tuning.workload import workload

    return {work.kernel.key: work for work in workload(graphs_of(models), core)}


def emit(request: Mapping[str, Any]) -> list[tuple[Sequence[str], str] | None]:
    """The C of each kernel and candidate, by this process's tree; None where there is none.

    Its pieces and the name of its function: today's tree brings both trees' into canonical form.
    """
    from utvm_deploy.records.candidate import Candidate
    from utvm_deploy.tuning.build import Builder

    operators = operators_by_key(tuple(Path(path) for path in request["models"]))
    made: list[tuple[Sequence[str], str] | None] = []
    with Builder(board_of(request["core"]), 0, 1) as builder:
        for key, candidate in request["candidates"]:
            try:
                one = Candidate.from_json(candidate)
                made.append(candidate_parts(builder, *operators[key], one))
            except Exception as error:
                # Whatever a generator refuses has no C; the next one may have.
                print(f"{key}: {type(error).__name__}: {error}", file=sys.stderr)
                made.append(None)
    return made


def measure(request: Mapping[str, Any]) -> list[int | None]:
    """The ticks of each kernel and candidate, by this process's tree; None where there are none."""
    from utvm_deploy.device import connect
    from utvm_deploy.records.candidate import Candidate
    from utvm_deploy.tuning.build import Builder
    from utvm_deploy.tuning.inputs import Job
    from utvm_deploy.tuning.measure import Measurer
    from utvm_deploy.tuning.tuner import fastest_link

    core = request["core"]
    works = works_by_key([Path(path) for path in request["models"]], core)
    board = board_of(core)
    with Builder(board, 0, 1) as builder, connect(board, link=fastest_link(board)) as device:
        measurer = Measurer(device)
        ticks: list[int | None] = []
        for key, candidate in request["candidates"]:
            work, one = works[key], Candidate.from_json(candidate)
            built = builder.start(work.graph, work.operator, one).result()
            # Each alone, so that it lies at the same place in both trees.
            (found,) = measurer.measure([Job(work, built)], is_compared=False)
            ticks.append(found.ticks_min if found.is_ok else None)
        return ticks


def ask(tree: Path, what: str, request: Mapping[str, Any]) -> subprocess.Popen[str]:
    """``emit`` or ``measure`` in a process that imports ``tree``'s package."""
    path = os.pathsep.join([str(tree), os.environ.get("PYTHONPATH", "")]).rstrip(os.pathsep)
    child = subprocess.Popen(
        [sys.executable, __file__, f"--{what}-in", str(tree)],
        env={**os.environ, "PYTHONPATH": path},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert child.stdin is not None
    child.stdin.write(json.dumps(request))
    child.stdin.close()
    child.stdin = None
    return child


def answers(trees: Sequence[Path], what: str, request: Mapping[str, Any]) -> list[list[Any]]:
    """What each tree gives; both work at once."""
    children = [ask(tree, what, request) for tree in trees]
    found = []
    for child, tree in zip(children, trees, strict=True):
        out, _ = child.communicate(timeout=TIMEOUT_S)
        if child.returncode:
            raise SystemExit(f"{tree} could not {what} the records' kernels (see above)")
        found.append(json.loads(out))
    return found


def assembly(text: str, board: Any, level: str) -> str:
    """What GCC makes of the C."""
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder) / "kernel.c"
        source.write_text(text)
        done = subprocess.run(
            [
                board.cpu.facts.compiler,
                *board.cpu.compiler_flags,
                *board.project.compiler_flags,
                *("-std=gnu11", level, "-S", "-o", "-", str(source)),
            ],
            capture_output=True,
            text=True,
            check=True,
            timeout=TIMEOUT_S,
        )
    return _NOT_CODE.sub("", done.stdout)


def relabel(
    path: Path, old_tree: Path, models: Sequence[Path], count: int, tolerance: float
) -> None:
    """One file, in place."""
    from utvm_deploy import __version__
    from utvm_deploy.base.files import write_text
    from utvm_deploy.compiler.code_digest import kernel_code
    from utvm_deploy.compiler.decision import model_of
    from utvm_deploy.kernels.choose.code_version import code_versions
    from utvm_deploy.records import is_modelled, read_records

    known = read_records(path)
    records = list(known)
    (core,) = {record.setting.core for record in records}
    board = board_of(core)
    request = {
        "core": core,
        "models": [str(path.resolve()) for path in models],
        "candidates": [[r.kernel.key, r.candidate.to_json()] for r in records],
    }
    trees = (old_tree.resolve(), ROOT)
    before, after = (
        [one and kernel_code(*one) for one in made] for made in answers(trees, "emit", request)
    )
    codes = code_versions()
    told: Counter[str] = Counter()
    same = []
    for index, record in enumerate(records):
        then, now = before[index], after[index]
        if then is None or now is None:
            told["have no C in one of the trees"] += 1
            continue
        level = record.setting.level
        if then != now and assembly(then, board, level) != assembly(now, board, level):
            told["have other code now"] += 1
            continue
        told["have the same C" if then == now else "have the same assembly"] += 1
        same.append(index)
        setting = replace(record.setting, utvm=__version__)
        records[index] = replace(record, code=codes[record.candidate.family], setting=setting)
    modelled = [i for i in same if is_modelled(records[i].setting.unit)]
    if modelled and count:
        step = max(len(modelled) // count, 1)
        sample = modelled[::step][:count]
        request["candidates"] = [request["candidates"][i] for i in sample]
        then, now = answers(trees, "measure", request)
        differing = 0
        for i, old, new in zip(sample, then, now, strict=True):
            if old is None or new is None or abs(new - old) > tolerance * old:
                differing += 1
                label = f"{records[i].kernel.name}, {records[i].candidate.label}"
                print(f"    {label}: {old} by the older tree, {new} by today's")
        exact = sum(old == new for old, new in zip(then, now, strict=True))
        if differing:
            told[f"keep their older model: {differing} of {len(sample)} differ"] = len(modelled)
        else:
            what = f"have today's model: of {len(sample)} measured in both trees {exact} are equal"
            told[f"{what}, all within {tolerance:.2%}"] = len(modelled)
            for i in modelled:
                setting = replace(records[i].setting, model=model_of(board))
                records[i] = replace(records[i], setting=setting)
    lines = [one.to_line() for one in records] + [one.to_line() for one in known.wholes]
    write_text(path, "".join(f"{line}\n" for line in lines))
    print(f"{path}: {len(records)} records; {'; '.join(f'{n} {what}' for what, n in told.items())}")


def main() -> int:
    if sys.argv[1:2] in (["--emit-in"], ["--measure-in"]):
        import utvm_deploy

        where = Path(utvm_deploy.__file__).resolve().parents[1]
        if where != Path(sys.argv[2]).resolve():
            raise SystemExit(f"imported the package of {where}, not of {sys.argv[2]}")
        # What the generators print is no answer.
        answer, sys.stdout = sys.stdout, sys.stderr
        work = emit if sys.argv[1] == "--emit-in" else measure
        json.dump(work(json.load(sys.stdin)), answer)
        return 0
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("records", nargs="+", type=Path, metavar="CORE.jsonl")
    parser.add_argument("--old-tree", type=Path, required=True, help="where they were made")
    parser.add_argument("--model", type=Path, action="append", help="beside the zoo")
    parser.add_argument("--measure", type=int, default=0, metavar="N", help="this many anew")
    parser.add_argument(
        "--tolerance",
        type=float,
        default=0.0,
        metavar="PERCENT",
        help="where the trees' runtimes differ, modules lie elsewhere, which costs single cycles",
    )
    options = parser.parse_args()
    for path in options.records:
        models = options.model or model_files()
        relabel(path, options.old_tree, models, options.measure, options.tolerance / 100)
    return 0


if __name__ == "__main__":
    sys.exit(main())
