"""The command line: ranges of seeds, in one process or several, and a report."""

from __future__ import annotations

import argparse
import concurrent.futures
import multiprocessing
import re
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path

from random_models.coverage import Coverage
from random_models.generator import generate, generate_attention
from random_models.minimizer import minimize
from random_models.recipe import Recipe, write
from random_models.runner import Outcome, Rig, Verdict
from utvm_deploy.compiler.options import EXACT, FLOAT_MATHS, LEVELS, Objective

REGRESSIONS = Path(__file__).with_name("regressions")
# A child of several jobs starts anew after so many: TVM keeps what it has seen.
_PORTION = 100
#: With this rate, zeros are packed wherever that saves a byte.
PACKING_RATE = 100_000.0
#: A seed becomes a recipe.
Make = Callable[[int], Recipe]
# Failures that have the same operator are mostly the same; only so many are reduced.
_MOST_MINIMIZED = 12


def main(argv: Sequence[str] | None = None) -> int:
    """Run the models and report; the exit status."""
    parser = argparse.ArgumentParser(prog="python -m tests.random_models", description=__doc__)
    parser.add_argument("--count", type=int, default=100, help="models to run")
    parser.add_argument("--seed", type=int, default=0, help="the first one's number")
    parser.add_argument("--board", default="host", help="an emulated board, or host")
    parser.add_argument("--jobs", type=int, default=1, help="processes")
    parser.add_argument("--float", action="store_true", help="make models of float32")
    parser.add_argument("--int4", action="store_true", help="make models with weights of int4")
    parser.add_argument("--sparse", action="store_true", help="make models with pruned weights")
    parser.add_argument("--only", metavar="OPERATOR", nargs="+", help="make models of these only")
    parser.add_argument(
        "--family", choices=("attention",), help="make networks of this family, also of --int4"
    )
    parser.add_argument(
        "--coverage", type=Path, metavar="FILE.md", help="write the table of values"
    )
    parser.add_argument("--keep", action="store_true", help="do not minimize what fails")
    parser.add_argument(
        "--fence", action="store_true", help="let no layer touch what is not its own"
    )
    parser.add_argument("--core", default="", help="with the kernels of this core, as C")
    parser.add_argument("--float-math", choices=FLOAT_MATHS, default=EXACT, help="as utvm has it")
    parser.add_argument("--optimize", choices=LEVELS, default=Objective.TIME, help="as utvm has it")
    parser.add_argument("--format", metavar="NAME", help="a number format, as utvm has it")
    args = parser.parse_args(argv)
    opened = partial(
        Rig,
        args.board,
        fence=args.fence,
        level=args.optimize,
        core=args.core,
        float_math=args.float_math,
        number_format=args.format,
    )
    if args.sparse:
        opened = partial(opened, flash_rate=PACKING_RATE)
    kinds = tuple(sorted(args.only)) if args.only else None
    make = partial(
        generate, kinds=kinds, of_float=args.float, is_narrow=args.int4, is_sparse=args.sparse
    )
    if args.family:
        make = partial(generate_attention, of_float=args.float, is_narrow=args.int4)
    seeds = range(args.seed, args.seed + args.count)
    coverage, outcomes = Coverage(), dict[int, Outcome]()
    for seed, outcome in _outcomes(opened, seeds, make, args.jobs):
        outcomes[seed] = outcome
        if outcome.verdict is Verdict.EQUAL:
            recipe = make(seed)
            coverage.add(recipe, write(recipe))
        if outcome.verdict.is_fault:
            print(f"seed {seed}: {outcome.verdict.value}: {outcome.detail}", flush=True)
        if len(outcomes) % 100 == 0:
            print(f"{len(outcomes)} of {args.count}", file=sys.stderr, flush=True)
    _report(args.board, list(outcomes.values()))
    if args.coverage:
        title = f"Values met in {len(outcomes)} random models on {args.board}"
        args.coverage.write_text(coverage.markdown(title), encoding="utf-8")
    failing = {seed: o for seed, o in outcomes.items() if o.verdict.is_fault}
    if failing and not args.keep:
        _minimize(opened, failing, make)
    return 1 if failing else 0


def _outcomes(
    opened: Callable[[], Rig], seeds: Sequence[int], make: Make, jobs: int
) -> Iterator[tuple[int, Outcome]]:
    portions = [seeds[i : i + _PORTION] for i in range(0, len(seeds), _PORTION)]
    if jobs == 1:
        with opened() as rig:
            for seed in seeds:
                yield seed, rig.check(make(seed), f"seed_{seed}")
        return
    context = multiprocessing.get_context("spawn")
    with concurrent.futures.ProcessPoolExecutor(
        jobs, mp_context=context, max_tasks_per_child=1
    ) as pool:
        tasks = [pool.submit(_run_portion, opened, portion, make) for portion in portions]
        for task in concurrent.futures.as_completed(tasks):
            yield from task.result()


def _run_portion(
    opened: Callable[[], Rig], seeds: Sequence[int], make: Make
) -> list[tuple[int, Outcome]]:
    return list(_outcomes(opened, seeds, make, 1))


def _report(board: str, outcomes: Sequence[Outcome]) -> None:
    print(f"{len(outcomes)} models on {board}:")
    for verdict in Verdict:
        found = [o for o in outcomes if o.verdict is verdict]
        if not found:
            continue
        print(f"  {len(found):5} {verdict.value}")
        reasons = Counter(_reason(o.detail) for o in found if o.detail)
        for reason, count in reasons.most_common(15):
            print(f"        {count:5} {reason}")
    compared = [sum(o.output_bytes for o in outcomes), sum(o.layer_bytes for o in outcomes)]
    print(f"{compared[0]:,} output bytes and {compared[1]:,} bytes of layers compared")


def _reason(detail: str) -> str:
    """A detail without what is this model's own, so that equal reasons count together."""
    detail = re.sub(r"'[^']*'", "'…'", detail)
    detail = re.sub(r"[-+]?\d+(\.\d+)?(e[-+]?\d+)?", "N", detail)
    return detail[:160]


def _minimize(opened: Callable[[], Rig], failing: dict[int, Outcome], make: Make) -> None:
    """Reduce one failure of each kind, and store it."""
    by_kind: dict[tuple[Verdict, str], int] = {}
    for seed, outcome in failing.items():
        by_kind.setdefault((outcome.verdict, outcome.wrong_kind or _reason(outcome.detail)), seed)
    for (verdict, kind), seed in list(by_kind.items())[:_MOST_MINIMIZED]:
        with opened() as rig:

            def fails(recipe: Recipe, rig: Rig = rig, wanted: tuple = (verdict, kind)) -> bool:
                outcome = rig.check(recipe)
                found = outcome.wrong_kind or _reason(outcome.detail)
                return (outcome.verdict, found) == wanted

            smallest = minimize(make(seed), fails)
            print(f"seed {seed}, {rig.check(smallest.recipe).detail}")
        path = store(smallest.recipe, f"{'_'.join(smallest.recipe.kinds).lower()}_seed_{seed}")
        print(f"  in {smallest.tries} tries reduced to {path}:")
        for number, step in enumerate(smallest.recipe.steps):
            print(f"    {number}: {step.kind} of {step.inputs} {dict(step.attributes)}")


def store(recipe: Recipe, name: str) -> Path:
    """Write a recipe among the regressions."""
    REGRESSIONS.mkdir(exist_ok=True)
    return write(recipe).save(REGRESSIONS / f"{name[:80]}.tflite")
