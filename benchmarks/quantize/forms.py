"""What int8, int4, a mix of schemes and pruned weights take on boards, and how good they are.

    python benchmarks/quantize/forms.py MODEL:LOW..HIGH --rows F.jsonl
    python benchmarks/quantize/forms.py MODEL:CALIB.npz:LABELLED.npz... --rows F.jsonl
    python benchmarks/quantize/forms.py net:NAME... --rows F.jsonl
    python benchmarks/quantize/forms.py --rows F.jsonl --page

Data are as for ``accuracy.py``; ``net:NAME`` is one of ``nets.py``, trained and converted. A mix
loses at most ``MAX_LOSS`` dB of SQNR against int16x8, or ``MAX_POINTS`` of accuracy where there are
labels; it knows no board. For "pruned", the least weights of dense and pointwise layers become
zeros, in blocks of four inputs, without training; then the model is quantized to int8. Each model
and form adds a line to the file of rows. --page writes these as tables between the marks of
docs/internals/quantization-figures.md.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from accuracy import Array, Data, data_of, figures, quantized, reals
from nets import made_net

import utvm_deploy
from utvm_deploy.base.errors import UtvmError
from utvm_deploy.boards.board import load_board
from utvm_deploy.frontend.number_format import with_tables
from utvm_deploy.frontend.tflite import load_model
from utvm_deploy.oracle.reference import run_reference
from utvm_deploy.quality.precision.prices import measure
from utvm_deploy.quality.quantizing.model_steps import opened

PAGE = Path(__file__).resolve().parents[2] / "docs" / "internals" / "quantization-figures.md"
MARKS = "<!-- forms on boards -->\n", "<!-- end -->\n"
BOARDS = ("mps2_an386", "mps2_an500", "mps3_an547", "qemu_rv32imc")
FORMS = ("int8", "int4", "mixed", "pruned")
MAX_LOSS, MAX_POINTS = 12.0, 0.5
#: The share of zeros, and the inputs of a block.
ZEROS, BLOCK = 0.75, 4


def pruned(weights: Array) -> Array:
    """A table of a dense or pointwise layer with zeros; other ones stay."""
    *outer, inputs = weights.shape
    is_matrix = len(outer) == 1 or (len(outer) == 3 and outer[1:] == [1, 1])
    if not is_matrix or inputs % BLOCK or outer[0] == 1:
        return weights
    blocks = weights.reshape(-1, BLOCK)
    sizes = np.abs(blocks.astype(np.float64)).sum(axis=1)
    kept = sizes > np.quantile(sizes, ZEROS)
    return np.where(kept[:, None], blocks, 0).reshape(weights.shape).astype(np.float32)


def made(
    path: Path, form: str, data: Data, labelled: str | None, folder: Path
) -> tuple[bytes, str]:
    """The quantized file, and what the form is called in the tables."""
    if form != "mixed":
        source = path
        if form == "pruned":
            source = folder / "pruned.tflite"
            source.write_bytes(with_tables(path.read_bytes(), pruned))
        scheme = "int8" if form == "pruned" else form
        found: Any = utvm_deploy.quantize(source, data.calibration, scheme=scheme)
        return found.data, form
    given, most = (data.calibration, MAX_LOSS) if labelled is None else (labelled, MAX_POINTS)
    found = utvm_deploy.quantize(path, given, scheme="mixed", max_loss=most)
    mix = found.mixed
    return found.data, f"mixed: {len(mix.narrow)} int4, {len(mix.wide)} int16x8"


def answers(path: Path, data: Data) -> Array:
    """What a model says to the inputs that are held out."""
    graph = load_model(path)
    source, sink = graph.tensors[graph.inputs[0]], graph.tensors[graph.outputs[0]]
    inputs = quantized(data.inputs, source)
    run = run_reference(path, [x.reshape(source.shape) for x in inputs])
    return reals(np.concatenate([one[0] for one in run.outputs]), sink)


def net_parts(name: str, folder: Path) -> list[str]:
    """The files of one of the nets: its model in float32, and the two of its data."""
    net = made_net(name)
    model = folder / f"{name}.pt2"
    torch.export.save(torch.export.export(net.module, (net.calibration[:1],)), model)
    calibration, labelled = folder / "calibration.npz", folder / "labelled.npz"
    np.savez(calibration, inputs=net.calibration.numpy())
    np.savez(labelled, inputs=net.held_out.numpy(), labels=net.labels.numpy())
    return [str(model), str(calibration), str(labelled)]


def rows(spec: str, folder: Path) -> Iterator[dict[str, Any]]:
    """The figures of each form of a model."""
    name, *parts = spec.split(":")
    if name == "net":
        name, *parts = net_parts(parts[0], folder)
    path = folder / f"{Path(name).stem}.tflite"
    path.write_bytes(opened(Path(name), is_converted=True).data)
    graph = load_model(path)
    data = data_of(parts, graph.tensors[graph.inputs[0]].shape[1:])
    labelled = None if data.labels is None else parts[1]
    exact = answers(path, data)
    for form in FORMS:
        file = folder / f"{form}.tflite"
        content, label = made(path, form, data, labelled, folder)
        file.write_bytes(content)
        prices: dict[str, Any] = {}
        for board in BOARDS:
            try:
                found = measure(content, load_board(board))
            except UtvmError as error:
                prices[board] = str(error)
                continue
            prices[board] = [found.ticks, found.flash_bytes, found.ram_bytes]
        cells = figures(answers(file, data), exact, data)
        if not np.allclose(exact.sum(axis=-1), 1, atol=0.05):
            cells[1] = ""  # outputs are no probabilities of classes
        yield {"model": path.stem, "form": label, "figures": cells, "boards": prices}


def tables(found: Sequence[dict[str, Any]]) -> Iterator[str]:
    """The lines of the page: how good the forms are, and what they take on each board."""
    yield "| model | form | accuracy | as float32 | SQNR |"
    yield "|---|---|--:|--:|--:|"
    for row in found:
        yield f"| {' | '.join([row['model'], row['form'], *row['figures']])} |"
    for board in BOARDS:
        ticks = "instructions" if load_board(board).cpu.core.startswith("rv") else "cycles"
        yield ""
        yield f"| model | form | {ticks} on `{board}` | flash | RAM |"
        yield "|---|---|--:|--:|--:|"
        for row in found:
            one = row["boards"][board]
            fits = not isinstance(one, str)
            cells = [f"{number:,}" for number in one] if fits else ["does not fit", "", ""]
            yield f"| {' | '.join([row['model'], row['form'], *cells])} |"


def write_page(found: Sequence[dict[str, Any]]) -> None:
    """Put the tables between the marks."""
    text = PAGE.read_text(encoding="utf-8")
    before, _, rest = text.partition(MARKS[0])
    _, _, after = rest.partition(MARKS[1])
    lines = "".join(f"{line}\n" for line in tables(found))
    PAGE.write_text(f"{before}{MARKS[0]}{lines}{MARKS[1]}{after}", encoding="utf-8")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("models", metavar="MODEL:...", nargs="*")
    parser.add_argument("--rows", metavar="F.jsonl", type=Path, required=True)
    parser.add_argument("--page", action="store_true")
    args = parser.parse_args()
    for spec in args.models:
        with tempfile.TemporaryDirectory() as folder, args.rows.open("a") as file:
            for row in rows(spec, Path(folder)):
                print(json.dumps(row), file=file, flush=True)
    if args.page:
        write_page([json.loads(line) for line in args.rows.read_text().splitlines()])


if __name__ == "__main__":
    main()
