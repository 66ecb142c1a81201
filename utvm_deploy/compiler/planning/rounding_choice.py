"""One rounding of each output instead of two, where the model's code hardly grows by it.

A routine with one rounding is smaller than its twin with two, and faster. But layers share
routines, and not every layer can round once. A model that needs both twins has both of them. So
layers that share a routine are decided together, and level ``balanced`` takes one rounding for them
where the bytes of code and tables grow by at most ``MOST_GROWTH_BYTES``.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import replace

from utvm_deploy.compiler.arena.plan import Step, View
from utvm_deploy.compiler.planning.flash_rate import flash_bytes, routines_of
from utvm_deploy.kernels.contract.call import with_one_rounding

#: The most bytes of flash by which layers that share a routine may grow.
MOST_GROWTH_BYTES = 256


def rounded_where_small(sequence: Sequence[Step | View], core: str) -> tuple[Step | View, ...]:
    """The sequence, in which layers round once where the code hardly grows by it.

    ``core`` is the one that routines are ordered for.
    """
    calls = {n: item.call for n, item in enumerate(sequence) if isinstance(item, Step)}
    once = {n: made for n, call in calls.items() if (made := with_one_rounding(call)) is not call}
    before = flash_bytes(calls.values(), core)
    # The routines with one rounding, without those that both forms need.
    others = {
        n: {*routines_of(call.kernel, core)} - {*routines_of(calls[n].kernel, core)}
        for n, call in once.items()
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


def _sharing(routines: Mapping[int, Iterable[Hashable]]) -> list[set[int]]:
    """The layers in groups: those of a group share routines, directly or through others."""
    groups: list[tuple[set[int], set[Hashable]]] = []
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
