"""One rounding of each output instead of two, where the model's code hardly grows by it.

A routine with one rounding is smaller than its twin with two, and faster. But layers share
routines, and not every layer can round once. A model that needs both twins has both of them. So
layers that share a routine are decided together, and level ``balanced`` takes one rounding for them
where the bytes of code and tables grow by at most ``MOST_GROWTH_BYTES``.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache

from utvm_deploy.compiler.arena.plan import Step, View
from utvm_deploy.kernels.contract.call import (
    ConstantArgument,
    KernelCall,
    is_native,
    with_one_rounding,
)

#: The most bytes of flash by which layers that share a routine may grow.
MOST_GROWTH_BYTES = 256
#: About the bytes of a kernel's driver; those of a convolution over columns take 80 to 400.
_DRIVER_BYTES = 120
#: Nearly all instructions of the routines take four bytes.
_INSTRUCTION_BYTES = 4
#: A line of an assembly string that is neither a label nor a directive.
_INSTRUCTION = re.compile(r'^\s*"[a-z][^":]*\\n"', re.MULTILINE)


def rounded_where_small(sequence: Sequence[Step | View], core: str) -> tuple[Step | View, ...]:
    """The sequence, in which layers round once where the code hardly grows by it.

    ``core`` is the one that routines are ordered for.
    """
    calls = {n: item.call for n, item in enumerate(sequence) if isinstance(item, Step)}
    once = {n: made for n, call in calls.items() if (made := with_one_rounding(call)) is not call}
    before = flash_bytes(calls.values(), core)
    # The routines with one rounding, without those that both forms need.
    others = {
        n: {*_routines(call, core)} - {*_routines(calls[n], core)} for n, call in once.items()
    }
    for layers in _sharing(others):
        changed = {**calls, **{n: once[n] for n in layers}}
        after = flash_bytes(changed.values(), core)
        if after - before <= MOST_GROWTH_BYTES:
            calls, before = changed, after
    return tuple(
        replace(item, call=calls[n]) if isinstance(item, Step) else item
        for n, item in enumerate(sequence)
    )


def flash_bytes(calls: Iterable[KernelCall], core: str) -> int:
    """About the bytes of flash that the assembly, drivers and tables of these calls take."""
    routines: dict[str, int] = {}
    kernels, tables = set(), 0
    for call in calls:
        kernels.add(call.kernel)
        routines.update(_routines(call, core))
        tables += sum(a.data.nbytes for a in call.arguments if isinstance(a, ConstantArgument))
    return sum(routines.values()) + len(kernels) * _DRIVER_BYTES + tables


def _routines(call: KernelCall, core: str) -> dict[str, int]:
    """The C texts with assembly that a call needs, and their bytes."""
    texts = call.kernel.texts(core) if is_native(call.kernel) else ()
    return {text: size for text in texts if (size := _assembly_bytes(text))}


@lru_cache(maxsize=256)
def _assembly_bytes(text: str) -> int:
    return _INSTRUCTION_BYTES * len(_INSTRUCTION.findall(text))


def _sharing(routines: Mapping[int, Iterable[str]]) -> list[set[int]]:
    """The layers in groups: those of a group share routines, directly or through others."""
    groups: list[tuple[set[int], set[str]]] = []
    for layer, texts in routines.items():
        layers, all_texts = {layer}, set(texts)
        apart = []
        for other in groups:
            if other[1].isdisjoint(all_texts):
                apart.append(other)
            else:
                layers |= other[0]
                all_texts |= other[1]
        groups = [*apart, (layers, all_texts)]
    return [layers for layers, _ in groups]
