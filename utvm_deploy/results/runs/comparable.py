"""What of a run, or of a server's job, can be compared with another."""

from __future__ import annotations

from utvm_deploy.base.errors import BenchError
from utvm_deploy.results.comparing.gate import Ours, ours_of
from utvm_deploy.results.runs.run import Run

#: Verbs whose results have figures to compare, and the schema of those.
COMPARED = {"profile": "utvm.profile/1", "bench": "utvm.bench/1"}


def check_compared(what: str, verb: str) -> None:
    """Raise BenchError, with ``what`` such as "run 52f1a5fc", if its verb has no figures."""
    if verb not in COMPARED:
        raise BenchError(
            f"{what} is of {verb}, which has no figures to compare; give one of "
            f"{' or '.join(COMPARED)}"
        )


def figures_of_run(run: Run) -> tuple[Ours, ...]:
    """Our figures of each model of a run with its result. Raises BenchError if it has none."""
    check_compared(f"run {run.key}", run.verb)
    try:
        return ours_of(run.result, COMPARED[run.verb])
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise BenchError(
            f"the result of run {run.key} cannot be read ({type(error).__name__}); do the run again"
        ) from error
