"""Which kind of candidate won: a family, or a search by TVM's rules."""

from __future__ import annotations

from utvm_deploy.kernels.intrinsics.facts import PREFIX
from utvm_deploy.kernels.portable.schedules.given_trace import TRACE
from utvm_deploy.kernels.portable.schedules.template_free import has_sketch
from utvm_deploy.kernels.portable.schedules.tensorized import INTRINSICS
from utvm_deploy.records.candidate import Candidate

TEMPLATE_FREE, TENSOR_INTRINSICS = "template-free", "tensor intrinsics"


def winner_of(candidate: Candidate) -> str:
    """The family of a candidate, or the search that made it."""
    trace = candidate.choice(TRACE)
    if candidate.choice(INTRINSICS) is not None or (trace is not None and PREFIX in str(trace)):
        return TENSOR_INTRINSICS
    if trace is not None or has_sketch(candidate):
        return TEMPLATE_FREE
    return candidate.family
