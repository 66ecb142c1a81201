"""Put the tables of a comparison into docs/reference/benchmarks.md.

    utvm bench MODEL... --board B --cmsis-nn DIR --json > bench.json
    python benchmarks/cmsis_nn/tables.py bench.json docs/reference/benchmarks.md
        [--mark NAME] [--models-only]

Everything between the two marks of the page is replaced; the prose around them stays.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

FIGURES = ("core", "pessimistic", "rich", "instructions")


def main() -> None:
    """Replace the part between the marks."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("result", type=Path, help="what `utvm bench --json` printed")
    parser.add_argument("page", type=Path)
    parser.add_argument("--mark", default="tables", help="which place of the page")
    parser.add_argument("--models-only", action="store_true", help="no tables of layers")
    args = parser.parse_args()
    result = json.loads(args.result.read_text(encoding="utf-8"))
    page = args.page.read_text(encoding="utf-8")
    begin, end = (f"<!-- {args.mark}: {place} -->" for place in ("begin", "end"))
    before, _, rest = page.partition(begin)
    _, _, after = rest.partition(end)
    if not after:
        raise SystemExit(f"{args.page} lacks the marks {begin} and {end}")
    text = "\n".join(tables(result, models_only=args.models_only))
    args.page.write_text(f"{before}{begin}\n{text}\n{end}{after}", encoding="utf-8")


def tables(result: dict[str, Any], *, models_only: bool = False) -> Iterator[str]:
    """An overview, then one table per model."""
    models = result["models"]
    if not models:
        raise SystemExit("no model of the result was compared; its `failed` says why")
    unit = models[0]["figures"][0]
    label = f"modelled {unit}" if models[0]["is_modelled"] else unit
    yield f"Board `{result['board']}` ({result['core']}), {label}."
    yield f"The other engine is {engines(models)}."
    yield ""
    yield from overview(models, unit, label)
    if any(model["builds"] for model in models):
        yield ""
        yield from builds(models, unit)
    for failed in result["failed"]:
        yield ""
        yield f"Not compared: {failed['name']}. {failed['error']}."
    for model in [] if models_only else models:
        yield ""
        yield from layers(model, unit)


def engines(models: list[dict[str, Any]]) -> str:
    """What the other engine is, without the build, which is each model's own."""
    names = (model["engine"].replace(f", build {model['build']}", "") for model in models)
    return "; ".join(dict.fromkeys(names))


def builds(models: list[dict[str, Any]], unit: str) -> Iterator[str]:
    """One line per model and build: its whole run, and which build is compared."""
    labels = list(dict.fromkeys(one["label"] for model in models for one in model["builds"]))
    yield "Whole models by each build of CMSIS-NN; the fastest, in bold, is the one compared:"
    yield ""
    yield f"| model | {' | '.join(labels)} | layers that differ, in any build |"
    yield f"|---|{'--:|' * len(labels)}---|"
    for model in models:
        runs = {one["label"]: one for one in model["builds"]}
        cells = [
            "" if label not in runs else bold(runs[label]["theirs"][unit], label == model["build"])
            for label in labels
        ]
        differing = sorted({layer for one in runs.values() for layer in one["differing_layers"]})
        yield f"| {model['name']} | {' | '.join(cells)} | {', '.join(map(str, differing))} |"


def bold(value: int, is_bold: bool) -> str:
    """A number, perhaps in bold."""
    return f"**{value:,}**" if is_bold else f"{value:,}"


def overview(models: list[dict[str, Any]], unit: str, label: str) -> Iterator[str]:
    """One line per model."""
    head = f"| model | ours | CMSIS-NN | ratio ({label}) | {' | '.join(FIGURES)} |"
    rule = "|---|" + "--:|" * (3 + len(FIGURES))
    yield head
    yield rule
    for model in models:
        yield row(model["name"], model, unit)
    yield from end_to_end(models, unit)
    if any(model["elsewhere"] for model in models):
        yield ""
        yield "The same with everything but weights in tightly coupled RAM, where it fits:"
        yield ""
        yield head
        yield rule
        for model in models:
            if model["elsewhere"]:
                yield row(model["name"], model["elsewhere"], unit)
            else:
                yield f"| {model['name']} | does not fit | | | | | | |"
    yield ""
    yield "| model | RAM ours | RAM CMSIS-NN | flash ours | flash CMSIS-NN | placement |"
    yield "|---|--:|--:|--:|--:|---|"
    for model in models:
        ours, theirs = model["size"]["ours"], model["size"]["theirs"] or {}
        yield (
            f"| {model['name']} | {ours['ram_bytes']:,} | {number(theirs.get('ram_bytes'))} | "
            f"{ours['flash_bytes']:,} | {number(theirs.get('flash_bytes'))} | "
            f"{placement(model['placement'])} |"
        )


def end_to_end(models: list[dict[str, Any]], unit: str) -> Iterator[str]:
    """CMSIS-NN on all channels of the file, where ours drops some."""
    dropped = [model for model in models if model["in_file"]]
    if not dropped:
        return
    yield ""
    yield "With all channels of the file for CMSIS-NN, where ours drops constant ones. What kernels"
    yield "gain, times what fewer channels gain, is the ratio from end to end:"
    yield ""
    yield f"| model | ours | CMSIS-NN | end to end | kernels | channels | {' | '.join(FIGURES)} |"
    yield "|---|" + "--:|" * (5 + len(FIGURES))
    for model in dropped:
        whole, theirs = model["in_file"], model["theirs"][unit]
        channels = whole["theirs"][unit] / theirs
        ratios = [whole["ratios"].get(figure) for figure in FIGURES]
        told = " | ".join("" if ratio is None else f"{ratio:.2f}" for ratio in ratios)
        yield (
            f"| {model['name']} | {model['ours'][unit]:,} | {whole['theirs'][unit]:,} | "
            f"{model['end_to_end_ratio']:.2f} | {model['ratio']:.2f} | {channels:.2f} | {told} |"
        )


def row(name: str, item: dict[str, Any], unit: str) -> str:
    """Both engines' figures and every ratio."""
    theirs = (item["theirs"] or {}).get(unit)
    ratios = [item.get("ratio"), *(item.get(f"ratio_{figure}") for figure in FIGURES)]
    told = " | ".join("" if ratio is None else f"{ratio:.2f}" for ratio in ratios)
    return f"| {name} | {item['ours'][unit]:,} | {number(theirs)} | {told} |"


def placement(places: dict[str, Any]) -> str:
    """Where the data lay, for both if it is the same."""
    ours, theirs = places["ours"], places["theirs"]
    text = (
        f"activations {ours['activations']}; scratch {ours['scratch']}; weights {ours['weights']}"
    )
    if theirs is not None and theirs != ours:
        text += f"; CMSIS-NN's scratch {theirs['scratch']}, weights {theirs['weights']}"
    return text


def layers(model: dict[str, Any], unit: str) -> Iterator[str]:
    """One line per layer."""
    yield f"### {model['name']}"
    yield ""
    yield "| layer | operator | MACs | ours | CMSIS-NN | ratio | core | output | our kernel |"
    yield "|--:|---|--:|--:|--:|--:|--:|---|---|"
    for layer in model["layers"]:
        theirs = (layer["theirs"] or {}).get(unit)
        ratios = (layer.get("ratio"), layer.get("ratio_core"))
        told = " | ".join("" if ratio is None else f"{ratio:.2f}" for ratio in ratios)
        yield (
            f"| {layer['index']} | {layer['operator']} | {number(layer['macs'] or None)} | "
            f"{layer['ours'][unit]:,} | {number(theirs)} | {told} | {output(layer)} | "
            f"`{layer['kernel']}` |"
        )


def output(layer: dict[str, Any]) -> str:
    """Whether the bytes are equal."""
    wrong = layer["differing_bytes"]
    if wrong is None:
        return "not compared"
    return "equal" if wrong == 0 else f"**{wrong} of {layer['output_bytes']} bytes differ**"


def number(value: int | None) -> str:
    """With thousands apart, or nothing."""
    return "" if value is None else f"{value:,}"


if __name__ == "__main__":
    main()
