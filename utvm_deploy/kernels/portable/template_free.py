"""TVM's template-free space for plain kernels: meta_schedule's rules give sketches of a PrimFunc,
and a candidate is a sketch with the decisions of its sampling instructions, as data.

sketch=N        which of the schedules that the rules give
decisions=D     what each of its instructions samples, such as "1.4.2/1.1.8/2"

Equal candidates replay to equal code, as long as rules and TVM are the same; records tell by the
code's digest.
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
from utvm_deploy.kernels.contract.driver import is_native
from utvm_deploy.kernels.contract.lazy_tvm import meta_schedule as ms
from utvm_deploy.kernels.contract.lazy_tvm import s_tir, tirx, tvm
from utvm_deploy.kernels.contract.strategy import Choices
from utvm_deploy.records.candidate import GENERIC, Candidate

SKETCH, DECISIONS = "sketch", "decisions"


@dataclass(frozen=True)
class SketchChoices(Choices):
    """A candidate of the template-free space."""

    sketch: int
    decisions: str


def has_sketch(candidate: Candidate) -> bool:
    """Whether a candidate is of the template-free space."""
    return candidate.choice(SKETCH) is not None


#: Two tiles of outputs around a reduction, and the outputs of the inner one within it: what is
#: finished of them goes to its consumer after either of the outer two.
TILING = "SSRS"
WRITE_LEVELS = (1, 2)
#: No inner tile has more than this along one loop.
MAX_INNERMOST = 16
#: Loops with no more steps than one of these are unrolled.
UNROLL_STEPS = (0, 4, 16, 64)
#: Stands for the numbers that a kernel is given: meta_schedule knows buffers only.
_NUMBER = 3
#: Of what TVM's C generator reads once and never again, see ``chosen``: no space for such kernels.
_REMEMBERED = ("T.max(", "T.min(", "T.Select(")

_INTRINSICS = "tvm.s_tir.tensor_intrin"


@dataclass(frozen=True)
class Sketch:
    """A schedule with open decisions, as TVM's JSON has it."""

    instructions: Any
    # Index of each sampling instruction, and what it sampled first.
    decisions: tuple[tuple[int, tuple[int, ...] | int], ...]

    def read(self, text: str) -> list[Any] | None:
        """The decisions in ``text`` as a trace has them; None if they are not of this sketch."""
        parts = text.split("/") if text else []
        if len(parts) != len(self.decisions):
            return None
        found: list[Any] = []
        for part, (index, sampled) in zip(parts, self.decisions, strict=True):
            try:
                numbers = [int(number) for number in part.split(".")]
            except ValueError:
                return None
            if isinstance(sampled, int):
                if len(numbers) != 1:
                    return None
                found.append([index, numbers[0]])
            elif len(numbers) != len(sampled) or prod(numbers) != prod(sampled) or min(numbers) < 1:
                return None
            else:
                found.append([index, numbers])
        return found


@dataclass(frozen=True)
class Traced:
    """Another kernel, scheduled by a sketch and decisions instead of by itself."""

    kernel: OwnKernel
    sketch: int
    decisions: str

    @property
    def name(self) -> str:
        return f"{self.kernel.name}_s{self.sketch}_{zlib.crc32(self.decisions.encode()):08x}"

    def prim_func(self) -> Any:
        return _loops(self.kernel)

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
    """The kernel as the candidate wants it, or why that cannot be."""
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
    """What the rules make of a kernel; nothing where they are of no use."""
    loops = _loops(kernel)
    func = None if loops is None else _without_numbers(loops)
    if func is None or not _is_open(func):
        return ()
    try:
        designs = _context(func, "replay-trace", 0).generate_design_space()
    except (RuntimeError, TypeError, ValueError):  # TVM's own: nothing that its rules are made for
        return ()
    found = [_sketch(design.trace) for design in designs]
    # A whole output of accumulators is more scratch than anybody has.
    fused = [one for one in found if _has(one, "ReverseComputeAt") or _has(one, "ComputeAt")]
    return tuple(one for one in fused or found if one.decisions)


def search_context(kernel: OwnKernel, strategy: Any, seed: int) -> Any:
    """meta_schedule's context for a search in the space of a kernel that has sketches."""
    return _context(_without_numbers(_loops(kernel)), strategy, seed)


def candidate_of(kernel: OwnKernel, trace: Any) -> Candidate | None:
    """The candidate that replays to what ``trace`` does; None if it is of no sketch."""
    found = _sketch(trace)
    for number, sketch in enumerate(sketches(kernel)):
        if sketch.instructions == found.instructions:
            return SketchChoices(number, _text(found)).candidate(GENERIC)
    return None


@lru_cache(maxsize=256)
def design(kernel: Traced) -> Any:
    """The schedule as meta_schedule searches it; None if there cannot be such a one."""
    sch = s_tir.Schedule(_module(_without_numbers(kernel.prim_func())))
    try:
        kernel.schedule(sch, GENERIC)
    except (RuntimeError, TypeError, ValueError):  # TVM's own, of decisions that do not fit
        return None
    return sch


def _context(func: Any, strategy: Any, seed: int) -> Any:
    rule = ms.schedule_rule
    rules = [
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
    generator = ms.space_generator.PostOrderApply(
        sch_rules=rules, postprocs=_postprocs(), mutator_probs=mutators
    )
    # TVM imports its intrinsics for GPUs and servers here: 13 seconds for what no rule above asks.
    is_ours = _INTRINSICS not in sys.modules
    sys.modules.setdefault(_INTRINSICS, types.ModuleType(_INTRINSICS))
    try:
        return ms.TuneContext(
            mod=_module(func),
            target=tvm.target.Target("c"),
            space_generator=generator,
            search_strategy=strategy,
            num_threads=1,
            rand_state=seed + 1,
        )
    finally:
        if is_ours:
            del sys.modules[_INTRINSICS]


def _loops(kernel: OwnKernel) -> Any:
    """The PrimFunc to be searched: what ``loops`` gives where a kernel has it; None: there is none.

    Native kernels may have such a method, too: the same parameters, and TensorIR instead of calls.
    """
    naive = getattr(kernel, "loops", None)
    if naive is not None:
        return naive()
    return None if is_native(kernel) else kernel.prim_func()


def _postprocs() -> list[Any]:
    return [ms.postproc.RewriteParallelVectorizeUnroll(), ms.postproc.RewriteReductionBlock()]


def _module(func: Any) -> Any:
    return tvm.IRModule({"main": func.with_attr("global_symbol", "main")})


def _without_numbers(func: Any) -> Any:
    numbers = {p: p.ty for p in func.params if type(p.ty).__name__ != "BufferType"}
    return func.specialize({p: tirx.IntImm(str(kind), _NUMBER) for p, kind in numbers.items()})


def _is_open(func: Any) -> bool:
    """Whether every order of its loops computes the same: sums of whole numbers, no maxima."""
    text = str(func.script())
    if any(word in text for word in _REMEMBERED):
        return False
    sch = s_tir.Schedule(_module(func))
    blocks = [sch.get(one) for one in sch.get_child_blocks(sch.get_sblock("root"))]
    sums = [block for block in blocks if block.init is not None]
    return bool(sums) and all(
        isinstance(block.body, tirx.BufferStore)
        and isinstance(block.body.value, tirx.Add)
        and str(block.body.buffer.dtype).startswith("int")
        for block in sums
    )


def _sketch(trace: Any) -> Sketch:
    # As its search does, without what nothing depends on.
    simple = trace.simplified(remove_postproc=True)
    instructions, decisions = _plain(simple.as_json(True))
    return Sketch(
        instructions,
        tuple(
            (int(index), tuple(sampled) if isinstance(sampled, list) else int(sampled))
            for index, sampled in decisions
        ),
    )


def _plain(value: Any) -> Any:
    """TVM's arrays and numbers as Python's."""
    if isinstance(value, str | int | float):
        return value
    if isinstance(value, tirx.IntImm | tirx.FloatImm):
        return value.value
    return [_plain(one) for one in value]


def _text(sketch: Sketch) -> str:
    return "/".join(
        ".".join(map(str, sampled)) if isinstance(sampled, tuple) else str(sampled)
        for _, sampled in sketch.decisions
    )


def _has(sketch: Sketch, kind: str) -> bool:
    return any(instruction[0] == kind for instruction in sketch.instructions)
