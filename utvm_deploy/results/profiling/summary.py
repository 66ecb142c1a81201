"""A profile as the object that ``utvm profile --json`` prints."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from typing import Any

from utvm_deploy.base.results import picked
from utvm_deploy.records import NEAREST, RECORD
from utvm_deploy.results.profiling.bound import Bound
from utvm_deploy.results.profiling.layer_costs import LayerProfile, Profile

#: Of each layer; None for one that has no bound.
Bounds = Sequence[Bound | None]


def profile_summary(found: Profile, bounds: Bounds | None = None) -> dict[str, Any]:
    """A profile for ``--json`` and for a bundle's report."""
    return {
        **picked(
            found,
            "board",
            "model",
            "tick_unit",
            "ticks_per_second",
            "is_modelled",
            "cycle_model",
            "runs",
            "ticks",
            "ticks_median",
            "seconds",
        ),
        "figures": dict(found.figures),
        **picked(
            found, "macs", "arena_bytes", "pool_bytes", "weights_bytes", "flash_bytes", "ram_bytes"
        ),
        "placement": dict(vars(found.placement)),
        **({"twin": found.twin_note} if found.twin_note else {}),
        "npu_cycles": found.npu_cycles,
        "stand_in": found.stand_in,
        "layers": [
            {
                **_layer_facts(item),
                "bound": None if bound is None else asdict(bound),
                "strips": item.strips,
                "calls": [_layer_facts(call) for call in item.calls],
            }
            for item, bound in zip(found.layers, bounds or [None] * len(found.layers), strict=True)
        ],
    }


#: The head of the column of estimates.
NPU = "NPU (Vela)"
#: What the heads of columns mean.
_HEADS = {
    "core": "cycles of the core alone, without waiting for memory",
    "pessimistic": "cycles if no multiplication issued together with a load",
    "rich": "cycles that also count misses of the instruction cache, waits for the store buffer, "
    "unaligned loads and bank conflicts",
    "bound": "the least cycles of any kernel, by its multiplications, loads, stores and misses",
    "x bound": "cycles over the bound; no kernel is below 1.00",
    NPU: "Vela's estimate in cycles of the NPU, which nobody measured",
}
#: What words in names and reasons mean.
_PHRASES = {
    f"by a {RECORD}": "a measurement that `utvm tune` wrote into a file of records chose the "
    "kernel; without one, a layer has the default",
    f"by a {NEAREST}": "a measurement of the most similar layer chose the kernel",
    "strips": "the layer is several calls, each for some of its rows; its figures are their sums",
}


def words_in(heads: Iterable[str], texts: Iterable[str]) -> tuple[tuple[str, str], ...]:
    """The words of a profile that need a legend, with their meanings: in heads, and in texts."""
    shown, whole = {head.removeprefix(">") for head in heads}, " ".join(texts)
    return (
        *((word, meaning) for word, meaning in _HEADS.items() if word in shown),
        *((word, meaning) for word, meaning in _PHRASES.items() if word in whole),
    )


def latency_line(found: Mapping[str, Any]) -> str:
    """The latency of a summary, and whether anybody ever measured it; else the count."""
    unit = f"modelled {found['tick_unit']}" if found["is_modelled"] else found["tick_unit"]
    without = f" without {found['stand_in']}" if found.get("stand_in") else ""
    if found["seconds"] is None:
        return f"{found['ticks']:,} {unit}{without}"
    text = f"latency{without}: {1e3 * found['seconds']:.3f} ms"
    if found["is_modelled"]:
        clock = found["ticks_per_second"] / 1e6
        return f"{text} at {clock:g} MHz (modelled, never measured on silicon)"
    return f"{text} (smallest of {found['runs']} runs)"


def npu_lines(found: Mapping[str, Any]) -> tuple[str, ...]:
    """What an NPU would take besides a summary's ticks, and whether its layers did nothing."""
    cycles, absent = found.get("npu_cycles"), found.get("stand_in")  # older results have none
    if cycles is None:
        return ()
    total = f"Vela's estimate: {cycles:,} cycles of the NPU, which are in no sum here"
    if not absent:
        return (total,)
    return (
        total,
        f"without a driver of {absent}, a stand-in did nothing in its layers: outputs are not "
        f"computed, and later layers read bytes of no meaning",
    )


def memory_line(found: Mapping[str, Any]) -> str:
    """RAM and flash of the image of a summary, with the runtime."""
    pools = f" and pools {found['pool_bytes']:,}" if found["pool_bytes"] else ""
    return (
        f"RAM of the image: {found['ram_bytes']:,} bytes, of which arena "
        f"{found['arena_bytes']:,}{pools}; flash: {found['flash_bytes']:,} bytes, of which "
        f"weights {found['weights_bytes']:,}"
    )


def _layer_facts(item: LayerProfile) -> dict[str, Any]:
    return {
        "index": item.layer.index,
        "operator": item.layer.kind,
        "name": item.layer.name,
        "ticks": item.ticks,
        "ticks_median": item.ticks_median,
        "ticks_per_mac": item.ticks_per_mac,
        "figures": dict(item.figures),
        **picked(item.layer, "macs", "kernel", "engine", "why", "origin", "npu_cycles"),
    }
