"""A report as one HTML page, from the object that ``utvm report MODEL --json`` prints.

The page holds that object, too, so that ``utvm reproduce`` reads either.
"""

from __future__ import annotations

import base64
from collections.abc import Iterator, Mapping
from typing import Any

from utvm_deploy.quality.evaluating.page import evaluation_values, metric_text
from utvm_deploy.records import Record, Records
from utvm_deploy.results.comparing.page import recorded_or_measured
from utvm_deploy.results.pages.embedded_json import ELEMENT, for_page
from utvm_deploy.results.pages.render import number, render, render_part
from utvm_deploy.results.profiling.memory_page import memory_page_values
from utvm_deploy.results.profiling.page import profile_values
from utvm_deploy.tuning.report import tuning_values


def report_html(result: Mapping[str, Any], try_it: str = "") -> str:
    """The whole page; it loads nothing. ``try_it`` is the JSON of a model that runs in the page."""
    memory, evaluation, tuning = result["memory"], result["evaluation"], result["tuning"]
    bench = result["bench"]["models"][0] if result["bench"] else None
    graph = result["graph"]
    return render(
        "report.html",
        found=result,
        facts=list(_facts(result)),
        digests=list(_digests(result)),
        graph=None if graph is None else base64.b64encode(graph.encode()).decode(),
        layers=render_part("profile_body.html", **profile_values(result["profile"], bench)),
        memory=render_part("memory_body.html", level=3, **memory_page_values(memory)),
        bench=bench,
        bench_source=None if bench is None else recorded_or_measured(bench),
        evaluation=None
        if evaluation is None
        else render_part("evaluation_body.html", level=3, **evaluation_values(evaluation)),
        tuning=None if not tuning else render_part("tuning_body.html", **_tuning(tuning)),
        element=ELEMENT,
        json=for_page(result),
        try_it=try_it,
    )


def _facts(result: Mapping[str, Any]) -> Iterator[tuple[str, str, str]]:
    """What a reader wants first: (name, value, a remark)."""
    found, checked = result["profile"], result["verify"]
    without = f", without {found['stand_in']}" if found.get("stand_in") else ""
    modelled = "modelled, never measured on silicon" if found["is_modelled"] else "measured"
    modelled += without
    if found["seconds"] is not None:
        yield "Latency", f"{1e3 * found['seconds']:.3f} ms", modelled
    yield found["tick_unit"].capitalize(), number(found["ticks"]), modelled
    pools = found.get("pool_bytes", 0)  # older reports have none
    of_which = f"arena {found['arena_bytes']:,}" + (f", pools {pools:,}" if pools else "")
    yield "RAM of the image", f"{found['ram_bytes']:,} bytes", of_which
    yield (
        "Flash of the image",
        f"{found['flash_bytes']:,} bytes",
        f"weights {found['weights_bytes']:,}",
    )
    if found.get("npu_cycles") is not None:
        yield "Cycles of the NPU", number(found["npu_cycles"]), "Vela's estimate, never measured"
    elif found["macs"]:
        yield "MACs", number(found["macs"]), f"{found['ticks'] / found['macs']:.2f} each"
    if checked is None:
        yield "Reference", "not compared", "a stand-in computes no outputs"
    else:
        compared = f"each layer, {checked['samples']} samples"
        yield "Reference", "equal" if checked["ok"] else "DIFFERS", compared
    if result["bench"]:
        one = result["bench"]["models"][0]
        ratio = one["end_to_end_ratio"] or one["ratio"]
        if ratio is not None:
            yield "CMSIS-NN", f"{ratio:.2f}", "its time over ours"
    if result["evaluation"]:
        last = result["evaluation"]["runs"][-1]
        for name, value in list(last["metrics"].items())[:2]:
            count = f"{result['evaluation']['items']:,} {result['evaluation']['items_are']}"
            yield name.replace("_", " "), metric_text(name, value), count


def _digests(result: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    yield "model", f"{result['model']['file']}: {result['model']['sha256']}"
    yield "board", f"{result['board']['name']}: {result['board']['digest']}"
    for what, one in result["files"].items():
        yield what, f"{one['file']}: {one['sha256'] or 'a folder, without a digest'}"


def _tuning(records: list[Mapping[str, Any]]) -> dict[str, Any]:
    return tuning_values(Records(Record.from_json(one) for one in records))
