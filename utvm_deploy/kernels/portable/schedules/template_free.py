"""The template-free space of portable kernels, by the rules of TVM's meta_schedule.

The rules turn a PrimFunc into sketches: schedules with open decisions. A candidate is a sketch and
its decisions:

sketch=N        the number of the sketch
decisions=D     the value of each sampling instruction, such as "1.4.2/1.1.8/2"

Equal candidates make equal code as long as the rules and TVM are the same. A record has the digest
of its code, so it shows if they are not.
"""

from __future__ import annotations

import sys
import types
import zlib
from dataclasses import dataclass
from functools import lru_cache
from math import prod
from typing import Any

from utvm_deploy.kernels.contract.call import OwnKernel
from utvm_deploy.kernels.contract.lazy_tvm import meta_schedule as ms
from utvm_deploy.kernels.contract.lazy_tvm import s_tir, tirx, tvm
from utvm_deploy.kernels.contract.strategy import Choices
from utvm_deploy.records.candidate import GENERIC, Candidate

SKETCH, DECISIONS = "sketch", "decisions"
#: Two spatial tiles (S) around the reduction (R), and one within it. Finished outputs go to their
#: consumer after one of the outer two.
TILING = "SSRS"
WRITE_LEVELS = (1, 2)
#: The largest extent of an inner tile along one loop.
MAX_INNERMOST = 16
#: Loops with at most one of these numbers of steps are unrolled.
UNROLL_STEPS = (0, 4, 16, 64)
#: Stands for the int32 parameters of a kernel, because meta_schedule knows only buffers.
_NUMBER = 3
#: TVM's intrinsics for GPUs and servers.
_INTRINSICS = "tvm.s_tir.tensor_intrin"


@dataclass(frozen=True)
class SketchChoices(Choices):
    """A candidate of the template-free space."""

    sketch: int
    decisions: str


def has_sketch(candidate: Candidate) -> bool:
    """Whether a candidate is of the template-free space."""
    return candidate.choice(SKETCH) is not None


@dataclass(frozen=True)
class Sketch:
    """A schedule with open decisions, as TVM's JSON has it."""

    instructions: Any
    # Index of each sampling instruction, and its first sample.
    decisions: tuple[tuple[int, tuple[int, ...] | int], ...]

    @property
    def is_fused(self) -> bool:
        """Whether accumulators are computed inside of their consumer's loops."""
        return any(one[0] in ("ReverseComputeAt", "ComputeAt") for one in self.instructions)

    def read(self, text: str) -> list[Any] | None:
        """The decisions in ``text`` as a trace has them; None if they do not fit the sketch."""
        try:
            parts = [[int(number) for number in part.split(".")] for part in text.split("/")]
        except ValueError:
            return None
        if len(parts) != len(self.decisions):
            return None
        found: list[Any] = []
        for part, (index, sampled) in zip(parts, self.decisions, strict=True):
            if isinstance(sampled, int):
                if len(part) != 1:
                    return None
                found.append([index, part[0]])
            elif len(part) != len(sampled) or prod(part) != prod(sampled) or min(part) < 1:
                return None
            else:
                found.append([index, part])
        return found


@dataclass(frozen=True)
class Traced:
    """A kernel that is scheduled by a sketch and decisions."""

    kernel: OwnKernel
    sketch: int
    decisions: str

    @property
    def name(self) -> str:
        return f"{self.kernel.name}_s{self.sketch}_{zlib.crc32(self.decisions.encode()):08x}"

    def prim_func(self) -> Any:
        return loops_of(self.kernel)

    def schedule(self, sch: Any, core: str) -> str:
        sketch = sketches(self.kernel)[self.sketch]
        decisions = sketch.read(self.decisions)
        assert decisions is not None, self.decisions
        s_tir.schedule.Trace.apply_json_to_schedule([sketch.instructions, decisions], sch)
        sch.enter_postproc()
        for step in _postprocs():
            step.apply(sch)
        return f"generic C, template-free: sketch {self.sketch}, decisions {self.decisions}"


def traced(kernel: OwnKernel, candidate: Candidate) -> Traced | str:
    """The kernel with the schedule of a candidate; a text says why there is none."""
    choices = SketchChoices.read(candidate)
    if isinstance(choices, str):
        return choices
    known, number, decisions = sketches(kernel), choices.sketch, choices.decisions
    if number >= len(known):
        return f"{kernel.name} has no sketch {number}; it has {len(known)} sketches"
    if known[number].read(decisions) is None:
        return f"{decisions!r} are not the decisions of sketch {number}"
    found = Traced(kernel, number, decisions)
    return found if design(found) is not None else f"TVM refuses {decisions} for sketch {number}"


@lru_cache(maxsize=256)
def sketches(kernel: OwnKernel) -> tuple[Sketch, ...]:
    """The sketches that the rules make of a kernel; none if they do not apply."""
    loops = loops_of(kernel)
    func = None if loops is None else _without_numbers(loops)
    if func is None or not _is_open(func):
        return ()
    try:
        designs = search_context(func, space_of_c(), "replay-trace", 0).generate_design_space()
    except (RuntimeError, TypeError, ValueError):  # from TVM, for a PrimFunc it has no rules for
        return ()
    found = [_sketch(design.trace) for design in designs]
    # Without a fused consumer, accumulators of the whole output are scratch: too much.
    fused = [one for one in found if one.is_fused]
    return tuple(one for one in fused or found if one.decisions)


def searchable(kernel: OwnKernel) -> Any:
    """The PrimFunc of a kernel with buffers alone, which meta_schedule can search."""
    return _without_numbers(loops_of(kernel))


def candidate_of(kernel: OwnKernel, trace: Any) -> Candidate | None:
    """The candidate that makes the schedule of ``trace``; None if it is of no sketch."""
    found = _sketch(trace)
    for number, sketch in enumerate(sketches(kernel)):
        if sketch.instructions == found.instructions:
            return SketchChoices(number, _text(found)).candidate(GENERIC)
    return None


@lru_cache(maxsize=256)
def design(kernel: Traced) -> Any:
    """The schedule as meta_schedule searches it; None if TVM refuses the decisions."""
    sch = s_tir.Schedule(_module(_without_numbers(kernel.prim_func())))
    try:
        kernel.schedule(sch, GENERIC)
    except (RuntimeError, TypeError, ValueError):  # from TVM, for decisions that do not fit
        return None
    return sch


def space_of_c(*more_rules: Any) -> Any:
    """TVM's space generator for plain C on one core: tiles, places of stages, and unrolling.

    TVM has no default rules for ``Target("c")``. These neither vectorize nor use threads, and keep
    the order in which each sum is added up, so every schedule computes the same bits.
    ``more_rules`` are schedule rules that TVM tries first, such as one for tensor intrinsics.
    """
    rule = ms.schedule_rule
    rules = [
        *more_rules,
        rule.AutoInline(
            into_producer=False,
            into_consumer=True,
            inline_const_tensor=True,
            disallow_if_then_else=True,
            require_injective=True,
            require_ordered=True,
        ),
        rule.MultiLevelTiling(
            structure=TILING,
            max_innermost_factor=MAX_INNERMOST,
            reuse_write=rule.ReuseType(req="may", levels=list(WRITE_LEVELS), scope="global"),
        ),
        rule.ParallelizeVectorizeUnroll(
            max_jobs_per_core=-1,
            max_vectorize_extent=-1,
            unroll_max_steps=list(UNROLL_STEPS),
            unroll_explicit=True,
        ),
        rule.RandomComputeLocation(),
    ]
    mutators = {
        ms.mutator.MutateTileSize(): 0.8,
        ms.mutator.MutateUnroll(): 0.1,
        ms.mutator.MutateComputeLocation(): 0.1,
    }
    return ms.space_generator.PostOrderApply(
        sch_rules=rules, postprocs=_postprocs(), mutator_probs=mutators
    )


def search_context(func: Any, space: Any, strategy: Any, seed: int) -> Any:
    """The context of meta_schedule for a search in a space of a PrimFunc."""
    # TVM would import its intrinsics here for 13 seconds, and no rule above needs them.
    is_ours = _INTRINSICS not in sys.modules
    sys.modules.setdefault(_INTRINSICS, types.ModuleType(_INTRINSICS))
    try:
        return ms.TuneContext(
            mod=_module(func),
            target=tvm.target.Target("c"),
            space_generator=space,
            search_strategy=strategy,
            num_threads=1,
            rand_state=seed + 1,
        )
    finally:
        if is_ours:
            del sys.modules[_INTRINSICS]


def loops_of(kernel: OwnKernel) -> Any:
    """The PrimFunc of a kernel; None if it has none.

    A native kernel may have a PrimFunc, too, with the same parameters as its driver.
    """
    make = getattr(kernel, "prim_func", None)
    return make() if make else None


def _postprocs() -> list[Any]:
    return [ms.postproc.RewriteParallelVectorizeUnroll(), ms.postproc.RewriteReductionBlock()]


def _module(func: Any) -> Any:
    return tvm.IRModule({"main": func.with_attr("global_symbol", "main")})


def _without_numbers(func: Any) -> Any:
    numbers = {p: p.ty for p in func.params if type(p.ty).__name__ != "BufferType"}
    return func.specialize({p: tirx.IntImm(str(kind), _NUMBER) for p, kind in numbers.items()})


def _is_open(func: Any) -> bool:
    """Whether the rules apply: there are reductions, each with one result.

    Every schedule of ``space_of_c`` adds up in the order of the PrimFunc. So sums of floating point
    have the same bits.
    """
    sch = s_tir.Schedule(_module(func))
    blocks = [sch.get(one) for one in sch.get_child_blocks(sch.get_sblock("root"))]
    reductions = [block for block in blocks if block.init is not None]
    return bool(reductions) and all(
        isinstance(block.body, tirx.BufferStore) for block in reductions
    )


def _sketch(trace: Any) -> Sketch:
    # TVM's search simplifies traces in the same way.
    simple = trace.simplified(remove_postproc=True)
    instructions, decisions = plain(simple.as_json(True))
    return Sketch(
        instructions,
        tuple(
            (int(index), tuple(sampled) if isinstance(sampled, list) else int(sampled))
            for index, sampled in decisions
        ),
    )


def is_fused(trace: Any) -> bool:
    """Whether accumulators are computed inside of their consumer's loops."""
    return _sketch(trace).is_fused


def described(trace: Any) -> tuple[str, str]:
    """The instructions of a trace as a text, and its decisions."""
    sketch = _sketch(trace)
    return repr(sketch.instructions), _text(sketch)


def plain(value: Any) -> Any:
    """What TVM makes of a trace, as lists, texts and numbers of Python."""
    if value is None or isinstance(value, str | int | float):
        return value
    if isinstance(value, tirx.IntImm | tirx.FloatImm):
        return value.value
    return [plain(one) for one in value]


def _text(sketch: Sketch) -> str:
    return "/".join(
        ".".join(map(str, sampled)) if isinstance(sampled, tuple) else str(sampled)
        for _, sampled in sketch.decisions
    )
