"""A profile as Chrome's trace events, which chrome://tracing and Perfetto show on a time axis.

The form is the "JSON Object Format" of the Trace Event Format (Google, 2016): complete events (X)
for layers, a counter (C) for the arena.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

_PROCESS = 1
_LAYERS = 1


def trace_events(result: Mapping[str, Any], live_bytes: Sequence[int]) -> dict[str, Any]:
    """The trace of one inference.

    ``result`` is the object of ``utvm profile --json``. ``live_bytes`` has, for each layer, or each
    call of a layer in strips, the bytes of the arena in use. Times are in microseconds of the
    board's clock. Without a clock, a tick is a microsecond, and ``otherData`` says so. Layers
    follow each other without gaps. What the model takes between them is at the end, as ``between
    layers``.
    """
    unit, rate = result["tick_unit"], result["ticks_per_second"]
    has_time = result["seconds"] is not None and rate
    scale = 1e6 / rate if has_time else 1.0
    events: list[dict[str, Any]] = [
        _name("process_name", f"{result['model']} on {result['board']}"),
        _name("thread_name", "layers"),
    ]
    at, prefix = 0, f"{result['model']}_"
    for layer, live in zip(_calls(result), live_bytes, strict=True):
        args = {
            "layer": layer["index"],
            unit: layer["ticks"],
            "MACs": layer["macs"],
            "kernel": str(layer["kernel"]).removeprefix(prefix),
            "why": layer["why"],
        }
        if layer.get("bound"):
            args["bound"] = layer["bound"]["memory"]
        events.append(_span(layer["operator"], at, layer["ticks"], scale, args))
        events.append(_counter(at, scale, live))
        at += layer["ticks"]
    rest = result["ticks"] - at
    if rest > 0:
        events.append(_span("between layers", at, rest, scale, {unit: rest}))
    events.append(_counter(max(at, result["ticks"]), scale, 0))
    return {
        "traceEvents": events,
        "displayTimeUnit": "ns",
        "otherData": {
            "model": result["model"],
            "board": result["board"],
            "unit": f"modelled {unit}" if result["is_modelled"] else unit,
            "time": f"{unit} at {rate:,} per second"
            if has_time
            else f"no clock: 1 microsecond here is one of the {unit}",
        },
    }


def _calls(result: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """The calls in the order of time: strips of several layers alternate."""
    calls = [call for layer in result["layers"] for call in layer.get("calls") or [layer]]
    return sorted(calls, key=lambda call: int(call["index"]))


def _name(kind: str, name: str) -> dict[str, Any]:
    return {"ph": "M", "name": kind, "pid": _PROCESS, "tid": _LAYERS, "args": {"name": name}}


def _span(
    name: str, begin: int, ticks: int, scale: float, args: Mapping[str, Any]
) -> dict[str, Any]:
    times = {"ts": begin * scale, "dur": ticks * scale}
    return {"ph": "X", "name": name, "pid": _PROCESS, "tid": _LAYERS, **times, "args": dict(args)}


def _counter(at: int, scale: float, value: int) -> dict[str, Any]:
    args = {"bytes in use": value}
    return {"ph": "C", "name": "arena", "pid": _PROCESS, "ts": at * scale, "args": args}
