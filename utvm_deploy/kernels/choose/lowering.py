"""From an operator to a kernel call: the kernel that computes it on a core.

Each module of portable kernels and of C routines has a table of the operators that it lowers.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cache, partial
from importlib import import_module
from pkgutil import walk_packages

from utvm_deploy.base.errors import CompileError, UnsupportedOperator
from utvm_deploy.graph.attributes import CallTir, External
from utvm_deploy.graph.check import place_of, works_in_float
from utvm_deploy.graph.model import Graph, Operator
from utvm_deploy.graph.number_formats.shipped import FLOAT16_ARITHMETIC
from utvm_deploy.graph.quantize_hint import quantize_command
from utvm_deploy.graph.rounding import FactorError
from utvm_deploy.kernels import portable
from utvm_deploy.kernels.choose.known_calls import known_call
from utvm_deploy.kernels.contract.call import KernelCall, ScalarArgument
from utvm_deploy.kernels.contract.format_kernel import format_kernel_of, with_numbers
from utvm_deploy.kernels.contract.operation import Lowering, Operation
from utvm_deploy.kernels.contract.packed_weights import (
    PACKED_OPERATORS,
    packed_type,
    unpacked_graph,
)
from utvm_deploy.kernels.contract.strategy import Layer, NoChoices, Strategy, Wish
from utvm_deploy.kernels.native import routines
from utvm_deploy.kernels.native.dsp.strategies import DSP_STRATEGIES
from utvm_deploy.kernels.native.fpu.strategies import FPU_STRATEGIES
from utvm_deploy.kernels.native.mve.floats import HALF_STRATEGIES, VECTOR_STRATEGIES
from utvm_deploy.kernels.native.mve.strategies import MVE_STRATEGIES
from utvm_deploy.kernels.native.packed_call import packed_call
from utvm_deploy.kernels.native.rvv.strategies import RVV_STRATEGIES
from utvm_deploy.kernels.native.scalar.strategies import SCALAR_STRATEGIES
from utvm_deploy.kernels.native.simd.strategies import SIMD_STRATEGIES
from utvm_deploy.kernels.native.sparse.layer import SPARSE_STRATEGIES
from utvm_deploy.kernels.native.thumb.strategies import THUMB_STRATEGIES
from utvm_deploy.kernels.portable.loop_shapes import PORTABLE_STRATEGY
from utvm_deploy.records.candidate import GENERIC, SPARSE, Candidate
from utvm_deploy.targets.table import CORES, target_of


def _rows(table: str) -> dict[str, Lowering]:
    """The rows of all modules that have this table; an operator is in one module."""
    found: dict[str, Lowering] = {}
    for package in (portable, routines):
        for one in walk_packages(package.__path__, f"{package.__name__}."):
            rows: Mapping[str, Lowering] = getattr(import_module(one.name), table, {})
            twice = ", ".join(sorted(found.keys() & rows.keys()))
            assert not twice, f"{one.name} lowers {twice}, and so does another module"
            found.update(rows)
    return dict(sorted(found.items()))


#: Kind -> how an operator becomes a portable kernel or a C routine.
LOWERINGS: Mapping[str, Lowering] = _rows("LOWERINGS")
#: The same for operators that are computed in another way on int16 activations.
INT16_LOWERINGS: Mapping[str, Lowering] = _rows("INT16_LOWERINGS")
#: The same for operators that compute in float32.
FLOAT_LOWERINGS: Mapping[str, Lowering] = _rows("FLOAT_LOWERINGS")


#: Types of activations, in addition to int8, for which there are strategies.
_OWN_TYPES = ("int16", "float32")


@dataclass(frozen=True)
class Family:
    """Kernels for the cores whose target names the family."""

    strategies: tuple[Strategy, ...]
    #: For float32 where sums need not be those of the reference.
    fused: tuple[Strategy, ...] = ()
    #: For layers of float32 that are computed with numbers of float16.
    halves: tuple[Strategy, ...] = ()

    def strategy(self, kind: str, dtype: str) -> Strategy | None:
        """The strategy for an operator's kind on activations of a type."""
        # Strategies for int8 also serve other types, as far as ``_why_only_generic`` lets them.
        wanted = dtype if dtype in _OWN_TYPES else "int8"
        return next((one for one in self.strategies if one.serves(kind, wanted)), None)


#: All families. Every core has the first and the last one; its target says which others.
FAMILIES: Mapping[str, Family] = {
    SPARSE: Family(SPARSE_STRATEGIES),
    "mve": Family(MVE_STRATEGIES, VECTOR_STRATEGIES, HALF_STRATEGIES),
    "dsp": Family(DSP_STRATEGIES),
    "fpu": Family(FPU_STRATEGIES),
    "thumb": Family(THUMB_STRATEGIES),
    "rvv": Family(RVV_STRATEGIES),
    "simd": Family(SIMD_STRATEGIES),
    "scalar": Family(SCALAR_STRATEGIES),
    GENERIC: Family((PORTABLE_STRATEGY,)),
}


def families_for(core: str) -> tuple[str, ...]:
    """The families that a core has, the best first; unknown cores have the portable one.

    That of weights with many zeros is not among them: all cores have it.
    """
    facts = CORES.get(core)
    return (*(target_of(core).families_of(facts) if facts else ()), GENERIC)


def lower(
    graph: Graph,
    operator: Operator,
    core: str = GENERIC,
    candidate: Candidate | None = None,
    *,
    most_scratch: int | None = None,
    compact: int = 0,
) -> KernelCall:
    """The kernel that does what ``operator`` does, and its arguments in this graph.

    ``core`` names the core for which the kernel is; "generic" stands for every core. ``candidate``
    chooses the kernel. Without it, the best family that has a kernel chooses. ``most_scratch``
    (bytes) and ``compact`` are the limits of a ``Wish``. Raises UnsupportedOperator with the reason
    if the candidate does not fit.
    """
    wish = Wish(candidate, most_scratch, compact)
    build = partial(_built, graph, operator, core, wish)
    return known_call(graph, operator, (core, wish), build, is_trial=not wish.is_open)


def lower_dense(graph: Graph, operator: Operator, core: str) -> KernelCall:
    """The best kernel that has all weights, also those that are zeros."""
    for family in families_for(core):
        try:
            return lower(graph, operator, core, Candidate(family))
        except UnsupportedOperator:
            continue
    return lower(graph, operator)


def _built(graph: Graph, operator: Operator, core: str, wish: Wish) -> KernelCall:
    portable = known_call(graph, operator, core, partial(_portable, graph, operator, core))
    layer = Layer(graph, operator, core, portable)
    if isinstance(operator.attributes, External):
        return layer.portable  # there is nothing to choose
    if format_kernel_of(portable.kernel):
        return _of_numbers(layer, wish)
    if wish.candidate is not None:
        return _chosen(wish.candidate, layer, wish)
    for family in (SPARSE, *families_for(core)[:-1]):
        found = _in_family(family, layer, wish)
        if isinstance(found, KernelCall):
            return found
        # That a layer has few zeros does not explain which kernel it has.
        if found and family != SPARSE and not layer.portable.why_not:
            # The next family's call keeps the reason, too.
            why_not = f"no {family.upper()} kernel: {found}"
            layer = replace(layer, portable=replace(layer.portable, why_not=why_not))
    return layer.portable


def _of_numbers(layer: Layer, wish: Wish) -> KernelCall:
    """The call of a layer with numbers of a format: few kernels but the portable one read them."""
    attributes, portable = layer.operator.attributes, layer.portable
    if not isinstance(attributes, CallTir) or layer.graph.number_format is not FLOAT16_ARITHMETIC:
        return portable
    if attributes.origin is None:
        return portable
    graph, operator = attributes.origin
    floats = Layer(graph, operator, layer.core, lower(graph, operator))
    for family in families_for(layer.core)[:-1]:
        if wish.candidate is not None and wish.candidate.family != family:
            continue
        for strategy in FAMILIES[family].halves:
            if strategy.serves(operator.kind, _dtype(floats)):
                made = strategy.build(floats, replace(wish, candidate=None))
                if isinstance(made, KernelCall):
                    return _with_numbers_of(portable, floats.portable, made, family)
                portable = replace(portable, why_not=f"no {family.upper()} kernel: {made}")
    return portable


def _with_numbers_of(
    portable: KernelCall, floats: KernelCall, made: KernelCall, family: str
) -> KernelCall:
    """The call ``made``, with the tensors of numbers where it has those of ``floats``."""
    passed = [one for one in floats.arguments if not isinstance(one, ScalarArgument)]
    numbers = dict(zip(map(id, passed), portable.arguments, strict=True))
    arguments = tuple(numbers.get(id(one), one) for one in made.arguments)
    return replace(portable, kernel=made.kernel, arguments=arguments, family=family)


def candidates_in(family: str, layer: Layer) -> tuple[Candidate, ...]:
    """The candidates of a family that the tuner may measure; () if it has no kernel for a layer."""
    plain = Candidate(family)
    if format_kernel_of(layer.portable.kernel) and family != GENERIC:
        return (plain,) if _of_numbers(layer, Wish(plain)).family == family else ()
    if isinstance(_in_family(family, layer, Wish(plain)), str):
        return ()
    strategy = FAMILIES[family].strategy(layer.operator.kind, _dtype(layer))
    if strategy is None or strategy.candidates is None:
        return (plain,)
    listed = tuple(strategy.candidates(_as_int8(layer, strategy)))
    if strategy.unpacks or not _packed_weights(layer):
        return listed
    # Not all products have tables that can be packed.
    return tuple(one for one in listed if not isinstance(_in_family(family, layer, Wish(one)), str))


def _portable(graph: Graph, operator: Operator, core: str) -> KernelCall:
    if isinstance(operator.attributes, External):
        call: KernelCall = operator.attributes.lower(graph, operator, core)
        return call
    _refuse_packed(graph, operator)
    if operator.kind in FLOAT_LOWERINGS and works_in_float(graph, operator):
        call = FLOAT_LOWERINGS[operator.kind](Operation(graph, operator))
        return with_numbers(call, graph.number_format)
    lowering = LOWERINGS.get(operator.kind)
    if lowering is None:
        known = ", ".join(sorted(LOWERINGS))
        raise UnsupportedOperator(f"no kernel for operator {operator.kind}; there are {known}")
    source = operator.inputs[0]
    if source is not None and graph.tensors[source].dtype == "int16":
        lowering = INT16_LOWERINGS.get(operator.kind, lowering)
    try:
        return with_numbers(lowering(Operation(graph, operator)), graph.number_format)
    except FactorError as error:
        raise CompileError(f"{place_of(graph, operator)}: {error}") from None


def _refuse_packed(graph: Graph, operator: Operator) -> None:
    """The kernels of few operators compute with elements of less than a byte."""
    for tensor in (graph.tensors[one] for one in operator.inputs if one is not None):
        if tensor.element.in_unit > 1 and operator.kind not in PACKED_OPERATORS:
            raise UnsupportedOperator(
                f"{place_of(graph, operator)}, has {tensor.dtype} weights '{tensor.name}', with "
                f"which no kernel computes; quantize the float model to int8: {quantize_command()}"
            )


def _dtype(layer: Layer) -> str:
    """The type of the activations that a layer reads."""
    source = layer.operator.inputs[0]
    return "" if source is None else layer.graph.tensors[source].dtype


def _chosen(candidate: Candidate, layer: Layer, wish: Wish) -> KernelCall:
    """The call of the candidate; raises UnsupportedOperator if there is none."""
    families = (*families_for(layer.core), SPARSE)
    if candidate.family not in families:
        raise UnsupportedOperator(
            f"core {layer.core} has no kernels of family {candidate.family!r}; "
            f"it has {', '.join(families)}"
        )
    found = _in_family(candidate.family, layer, wish)
    if isinstance(found, str):
        why, kind = found or "the family has none", layer.operator.kind
        raise UnsupportedOperator(f"no kernel {candidate.label!r} for {kind}: {why}")
    return found


def _in_family(family: str, layer: Layer, wish: Wish) -> KernelCall | str:
    """The family's call, or why there is none; empty if it has no strategy for the operator."""
    dtype = _dtype(layer)
    strategy = FAMILIES[family].strategy(layer.operator.kind, dtype)
    is_for_any_type = strategy is not None and (dtype in _OWN_TYPES or not strategy.operators)
    # No family for integers is expected to have a kernel for float32.
    result = strategy.result if strategy else "int8"
    why = "" if is_for_any_type or dtype == "float32" else _why_only_generic(layer, result)
    if why or strategy is None:
        return why
    if strategy.candidates is None and isinstance(refused := NoChoices.read(wish.candidate), str):
        return refused
    found = strategy.build(_as_int8(layer, strategy), wish)
    if _packed_weights(layer) and not strategy.unpacks and isinstance(found, KernelCall):
        found = _packed(found, _as_int8(layer, strategy), strategy, wish)
    if isinstance(found, str):
        return found
    fused = _fused(layer, wish) if dtype == "float32" and family != GENERIC else None
    return replace(found, family=family, fused=fused)


def _fused(layer: Layer, wish: Wish) -> Callable[[], KernelCall | None] | None:
    """What makes the call by vectors, if the core has such kernels."""
    of_core = (one for name in families_for(layer.core) for one in FAMILIES[name].fused)
    strategy = next((one for one in of_core if one.serves(layer.kind, "float32")), None)
    if strategy is None:
        return None
    # Calls are kept as long as their graph, which they must not hold.
    layer = replace(layer, graph=layer.graph.replaced())

    def build() -> KernelCall | None:
        made = strategy.build(layer, wish)
        return made if isinstance(made, KernelCall) else None

    return cache(build)


def _packed(found: KernelCall, layer: Layer, strategy: Strategy, wish: Wish) -> KernelCall | str:
    """The call with packed weights of a kernel of int8, or of the first candidate that has one."""
    made = packed_call(found, is_open=wish.is_open and wish.most_scratch is None)
    if isinstance(made, KernelCall) or strategy.candidates is None or not wish.is_open:
        return made
    for one in strategy.candidates(layer):
        other = strategy.build(layer, replace(wish, candidate=one))
        if isinstance(other, KernelCall) and isinstance(packed := packed_call(other), KernelCall):
            return packed
    return made


def _as_int8(layer: Layer, strategy: Strategy) -> Layer:
    """The layer, with weights of int8 if they are packed and the strategy knows no such weights."""
    if strategy.unpacks or not _packed_weights(layer):
        return layer
    graph = unpacked_graph(layer.graph, layer.operator)
    return replace(layer, graph=graph, portable=_portable(graph, layer.operator, layer.core))


def _packed_weights(layer: Layer) -> str:
    """The type of a layer's weights if it is of less than a byte; else empty."""
    if layer.operator.kind not in PACKED_OPERATORS:
        return ""
    return packed_type(layer.graph, layer.operator)


def _why_only_generic(layer: Layer, result: str) -> str:
    """Why only generic kernels can compute a layer that is not of int8; else empty.

    ``result`` is the type that the strategy makes.
    """
    positions = (layer.operator.inputs[0], layer.operator.outputs[0])
    types = [layer.graph.tensors[one].dtype for one in positions if one is not None]
    wanted = ("int8", result)[-len(types) :]
    pairs = zip(types, wanted, strict=True)
    return next((f"it works on {one}" for one, fits in pairs if one != fits), "")
