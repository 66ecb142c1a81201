"""utvm run: one sample through a model on a board, or a text that it writes."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from utvm_deploy.base.errors import ModelError
from utvm_deploy.base.files import write_atomically
from utvm_deploy.base.outputs import check_outputs
from utvm_deploy.cli.arguments import board_of
from utvm_deploy.cli.board_verbs.run_text import check_options, run_facts, write_text
from utvm_deploy.cli.compile_options import custom_of
from utvm_deploy.cli.output import Output
from utvm_deploy.cli.steps import check_board, compile_step, device_of, dry_run_step
from utvm_deploy.device import DeviceModel, checked_inputs
from utvm_deploy.device.link.base import Hello
from utvm_deploy.frontend.tflite import load_model
from utvm_deploy.graph.model import Array, Graph
from utvm_deploy.graph.names import short_name
from utvm_deploy.oracle.number_reference import float64_differences
from utvm_deploy.oracle.samples import load_input, random_samples


def run(args: argparse.Namespace, out: Output) -> int:
    """Run and print, or write, the outputs."""
    check_options(args)
    check_outputs(args.model, *args.output)
    board = board_of(args)
    check_board(args, board)
    if args.prompt is not None:
        return write_text(args, board, out)
    graph = load_model(args.model, custom_of(args, board))
    if args.output and len(args.output) != len(graph.outputs):
        raise ModelError(
            f"{args.model} has {len(graph.outputs)} output(s), --output was given "
            f"{len(args.output)} time(s); give one for each output, or none"
        )
    inputs, origin = _inputs(args, graph)
    with out.progress() as progress:
        compiled = compile_step(args, board, progress)
        checked_inputs(compiled, inputs)  # before anything is built
        if args.dry_run:
            return dry_run_step(args, board, compiled)
        progress(f"building the image and starting {board.name}", 0, 1)
        with device_of(args, board) as device:
            model = device.load(compiled)
            progress("running", 0, 1)
            outputs, ticks = model.run(inputs)
            differences = _differences(model, graph, inputs) if args.float64 else []
            hello, is_modelled = model.device.hello, model.device.is_modelled
    if origin:
        out.line(f"input: {origin}; --input FILE.npy gives your own")
    for path, array in zip(args.output, outputs, strict=False):
        write_atomically(path, partial(np.save, arr=array))
    for buffer, array in zip(compiled.outputs, outputs, strict=True):
        flat = array.ravel()
        shown = " ".join(str(value) for value in flat[:16]) + (" ..." if flat.size > 16 else "")
        out.line(f"{short_name(buffer.name)} {list(buffer.shape)} {buffer.dtype}: {shown}")
    for one in differences:
        out.line("layer {layer} {operator} {name}: {difference:.1e} from float64".format(**one))
    modelled = "modelled " if is_modelled else ""
    out.line(f"{ticks:,} {modelled}{hello.tick_unit} on {board.name}{_latency(ticks, hello)}")
    out.result(
        "utvm.run/1",
        {
            **run_facts(board.name, compiled.name, ticks, hello, is_modelled),
            "input": "files" if _files(args) else "random",
            **({"float64": differences} if args.float64 else {}),
            "outputs": [
                {"name": b.name, "dtype": b.dtype, "shape": b.shape, "values": a}
                for b, a in zip(compiled.outputs, outputs, strict=True)
            ],
        },
    )
    return 0


def _differences(model: DeviceModel, graph: Graph, inputs: Sequence[Array]) -> list[dict[str, Any]]:
    """How far each layer's output on the board is from float64, relative to its magnitude."""
    made = {
        buffer.source: (run.layer, buffer, array)
        for run in model.run_layers(*inputs)
        for buffer, array in zip(run.layer.outputs, run.outputs, strict=True)
        if buffer.source is not None
    }
    arrays = {source: array for source, (_, _, array) in made.items()}
    return [
        {
            "layer": made[source][0].index,
            "operator": made[source][0].kind,
            "name": short_name(made[source][1].name),
            "difference": difference,
        }
        for source, difference in float64_differences(graph, inputs, arrays).items()
        if source in made
    ]


def _files(args: argparse.Namespace) -> list[Path]:
    """The files of --input, which may also describe an image."""
    return [one for one in args.image_input if isinstance(one, Path)]


def _inputs(args: argparse.Namespace, graph: Graph) -> tuple[Sequence[Array], str]:
    """An array for each input, and where they come from unless the user gave them."""
    files = _files(args)
    if not files:
        samples = random_samples(graph, 1)
        return samples.inputs[0], samples.origin
    if len(files) != len(graph.inputs):
        raise ModelError(
            f"{args.model} has {len(graph.inputs)} input(s), --input was given "
            f"{len(files)} time(s); give one for each input, or none"
        )
    tensors = [graph.tensors[i] for i in graph.inputs]
    return [load_input(*pair) for pair in zip(files, tensors, strict=True)], ""


def _latency(ticks: int, hello: Hello) -> str:
    """Empty if ticks are not time."""
    if hello.tick_unit == "instructions":
        return ""
    clock = hello.ticks_per_second
    rate = f" at {clock / 1e6:g} MHz" if hello.tick_unit == "cycles" else ""
    return f", {1e3 * ticks / clock:.3f} ms{rate}"
