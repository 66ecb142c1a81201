"""Which candidate a layer is compiled with: its record's, a similar kernel's, or the default."""

from __future__ import annotations

import logging
from dataclasses import replace
from functools import cache

from utvm_deploy import __version__
from utvm_deploy.candidate import GENERIC
from utvm_deploy.errors import UnsupportedOperator
from utvm_deploy.graph.model import Graph, Operator
from utvm_deploy.kernels.call import KernelCall
from utvm_deploy.kernels.identity import identity_of
from utvm_deploy.kernels.lowering import lower
from utvm_deploy.paths import records_file
from utvm_deploy.records import Records, Setting, read_records

_log = logging.getLogger(__name__)


@cache
def shipped_records(core: str) -> Records:
    """What comes with the package for a core; none for most."""
    path = records_file(core)
    return read_records(path) if path.is_file() else Records()


def records_for(core: str, own: Records | None) -> Records:
    """The user's records, if there are any, and the shipped ones."""
    shipped = shipped_records(core)
    if own is not None and not any(record.setting.core == core for record in own):
        cores = ", ".join(sorted({record.setting.core for record in own})) or "no core at all"
        _log.warning("the records are of %s; there is nothing for %s in them", cores, core)
    return Records([*own, *shipped]) if own is not None else shipped


def best_call(graph: Graph, operator: Operator, core: str, records: Records) -> KernelCall:
    """The call of the best candidate that fits; it says where that came from."""
    if core != GENERIC and len(records):
        near = Setting(core, "", "", __version__, "")
        for candidate, origin in records.choices(identity_of(graph, operator), core, near):
            try:
                call = lower(graph, operator, core, candidate)
            except UnsupportedOperator as error:
                _log.debug("%s from a %s does not fit: %s", candidate.label, origin, error)
                continue
            return replace(call, origin=origin)
    return lower(graph, operator, core)
