"""What a worker reports when it joins a cluster, and what a client reads of it."""

from __future__ import annotations

import asyncio
import platform
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from utvm_deploy import __version__
from utvm_deploy.base.errors import ClusterError
from utvm_deploy.boards.board import load_board
from utvm_deploy.device.doctor.installed import needed_programs, program_version
from utvm_deploy.results.runs.origin import versions
from utvm_deploy.service.cluster.dask_settings import load_distributed
from utvm_deploy.service.cluster.offers import Offer

#: The key of our facts among what Dask's scheduler knows of a worker.
KEY = "utvm"
#: How long a scheduler may take to answer; one that is busy takes milliseconds.
_ANSWER_TIMEOUT_S = 5.0


@dataclass(frozen=True)
class WorkerFacts:
    """One worker of a cluster: a machine and its boards."""

    name: str
    address: str
    offers: tuple[Offer, ...]
    versions: Mapping[str, str]  # packages and programs, by name
    last_seen: float  # seconds since the epoch; by the scheduler's clock


class Told:
    """Gives facts to Dask, which asks for them when a worker registers."""

    def __init__(self, facts: Mapping[str, Any]) -> None:
        self._facts = dict(facts)

    def __call__(self, _worker: object) -> Mapping[str, Any]:
        return self._facts


def machine_facts(offered: Sequence[Offer]) -> dict[str, Any]:
    """The facts of this machine, as a worker reports them."""
    return {
        "host": platform.node(),
        "offers": [asdict(offer) for offer in offered],
        "versions": {**versions(), **program_versions(offered)},
    }


def program_versions(offered: Sequence[Offer]) -> dict[str, str]:
    """The versions of the programs that jobs on these boards run."""
    programs = {one for offer in offered for one in needed_programs(load_board(offer.board))}
    found = {program: program_version(program) for program in sorted(programs)}
    return {program: version for program, version in found.items() if version is not None}


def worker_facts(client: Any) -> list[WorkerFacts]:
    """The workers that a cluster has now, sorted by name; without those of other software.

    Raises ClusterError if the scheduler does not answer.
    """
    try:
        identity = client.sync(
            client.scheduler.identity, n_workers=-1, callback_timeout=_ANSWER_TIMEOUT_S
        )
    except (OSError, asyncio.TimeoutError) as error:
        raise ClusterError(
            f"the scheduler does not say within {_ANSWER_TIMEOUT_S:g} s which workers it has"
        ) from error
    found = [
        WorkerFacts(
            # Dask numbers the workers that it starts itself.
            worker["name"] if isinstance(worker["name"], str) else worker[KEY]["host"],
            address,
            tuple(Offer(**offer) for offer in worker[KEY]["offers"]),
            worker[KEY]["versions"],
            worker["last_seen"],
        )
        for address, worker in identity["workers"].items()
        if KEY in worker
    ]
    return sorted(found, key=lambda one: (one.name, one.address))


def software() -> dict[str, str]:
    """The versions that must be equal on all machines: they exchange Python objects."""
    return {
        "python": f"{sys.version_info.major}.{sys.version_info.minor}",
        "distributed": str(load_distributed().__version__),
        "utvm-deploy": __version__,
    }


def check_software(who: str, theirs: Mapping[str, Any]) -> None:
    """Raise ClusterError if the versions that Dask reports of ``who`` are not this machine's."""
    found = {**theirs["packages"], "python": ".".join(theirs["host"]["python"].split(".")[:2])}
    for name, version in software().items():
        # The scheduler reads the Python objects of jobs, too.
        if found.get(name) != version:
            raise ClusterError(
                f"the {who} has {name} {found.get(name) or 'not installed'}, and this machine "
                f"{version}; install the same version on both"
            )
