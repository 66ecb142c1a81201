"""Portable kernels with a schedule of somebody's search by TVM: any trace that TVM can replay.

trace=J         the instructions and decisions of the schedule, as TVM's JSON has them

A trace comes from a record, and a record from anybody. So only instructions that move, split and
mark loops are replayed: none that adds text to the C.

A trace may name tensor intrinsics, as RewriteTensorize writes them. Ours are registered here, so
such a record compiles in any process.
"""

from __future__ import annotations

import json
import zlib
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from utvm_deploy.kernels.contract.call import OwnKernel
from utvm_deploy.kernels.contract.lazy_tvm import s_tir
from utvm_deploy.kernels.contract.strategy import Choices
from utvm_deploy.kernels.intrinsics.facts import is_available
from utvm_deploy.kernels.portable.schedules.template_free import loops_of, plain
from utvm_deploy.records.candidate import GENERIC, Candidate

TRACE = "trace"
_INSTRUCTIONS = frozenset(
    (
        *("GetSBlock", "GetLoops", "GetChildBlocks", "GetProducers", "GetConsumers"),
        *("SamplePerfectTile", "SamplePartitionedTile", "SampleCategorical"),
        *("SampleComputeLocation", "Split", "Fuse", "Merge", "Reorder", "AddUnitLoop", "Unroll"),
        *("LoopPartition", "CacheRead", "CacheWrite", "ComputeAt", "ReverseComputeAt"),
        *("ComputeInline", "ReverseComputeInline", "DecomposeReduction", "RFactor"),
        *("Blockize", "Tensorize", "Annotate", "Unannotate", "EnterPostproc"),
    )
)
_ANNOTATIONS = frozenset(("pragma_auto_unroll_max_step", "pragma_unroll_explicit"))
_OF_TVM = "meta_schedule."


@dataclass(frozen=True)
class TraceChoices(Choices):
    """A candidate with a trace."""

    trace: str


@dataclass(frozen=True)
class GivenTrace:
    """A kernel that is scheduled by a trace."""

    kernel: OwnKernel
    trace: str

    @property
    def name(self) -> str:
        return f"{self.kernel.name}_t{zlib.crc32(self.trace.encode()):08x}"

    def prim_func(self) -> Any:
        return loops_of(self.kernel)

    def schedule(self, sch: Any, core: str) -> str:
        s_tir.schedule.Trace.apply_json_to_schedule(json.loads(self.trace), sch)
        return "generic C, by a schedule that TVM's search found"


def candidate_with(trace: Any) -> Candidate:
    """The candidate that replays a trace of TVM's."""
    text = json.dumps(plain(trace.as_json(False)), separators=(",", ":"))
    return TraceChoices(text).candidate(GENERIC)


def with_trace(kernel: OwnKernel, candidate: Candidate) -> GivenTrace | str:
    """The kernel with the candidate's schedule; a text says why there is none."""
    choices = TraceChoices.read(candidate)
    if isinstance(choices, str):
        return choices
    if loops_of(kernel) is None:
        return f"{kernel.name} is a C routine, which TVM does not schedule"
    return _refused(choices.trace) or _replayed(GivenTrace(kernel, choices.trace))


def _refused(trace: str) -> str:
    """Why a trace is not replayed; empty if it may be."""
    try:
        instructions, _ = json.loads(trace)
        kinds = [(str(kind), list(attributes)) for kind, _, attributes, _ in instructions]
    except (ValueError, TypeError, RecursionError):
        return "its trace is not a trace of TVM's"
    for kind, attributes in kinds:
        if kind not in _INSTRUCTIONS:
            return f"its trace has the instruction {kind}, which is not replayed here"
        named = str(attributes[0]) if attributes else ""
        if kind == "Tensorize" and not is_available(named):
            return f"its trace has the tensor intrinsic {named!r}, which this version does not have"
        is_harmless = named in _ANNOTATIONS or named.startswith(_OF_TVM)
        if kind == "Annotate" and not is_harmless:
            return f"its trace annotates {named!r}, which is not replayed here"
    return ""


@lru_cache(maxsize=256)
def _replayed(kernel: GivenTrace) -> GivenTrace | str:
    """The kernel, if TVM can replay its trace."""
    try:
        kernel.schedule(s_tir.Schedule(kernel.prim_func()), GENERIC)
    except Exception as error:  # of TVM's many classes: a trace may say anything
        said = str(error).strip().partition("\n")[0]
        return f"TVM cannot replay its trace on {kernel.kernel.name}: {said}"
    return kernel
