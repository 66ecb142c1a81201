"""``utvm_deploy.convert``: the .tflite file that a quantized model of another form becomes."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from utvm_deploy.api import steps
from utvm_deploy.base.errors import UsageError
from utvm_deploy.base.files import write_atomically
from utvm_deploy.base.outputs import check_outputs
from utvm_deploy.base.results import Result, plain_object
from utvm_deploy.base.temporary import TemporaryFolder
from utvm_deploy.frontend.files.given_shapes import Chosen, given_only
from utvm_deploy.frontend.formats import prefilled_tflite, quantized_tflite
from utvm_deploy.frontend.tflite import load_bytes, load_model
from utvm_deploy.graph.macs import total_macs
from utvm_deploy.graph.model import Graph
from utvm_deploy.oracle.signed import check_same_values
from utvm_deploy.results.inspecting.facts import graph_svg

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from utvm_deploy.api.steps import Chosen as ChosenOptions

SCHEMA = "utvm.convert/1"
_ENDING = ".tflite"


@dataclass(frozen=True, repr=False, eq=False)
class ConvertResult(Result):
    """What ``convert`` made."""

    source: Path
    output: Path | None  # None if nothing was written
    data: bytes  # the .tflite file
    graph: Graph

    @property
    def headline(self) -> str:
        """The size of the file, and what it holds."""
        return (
            f"{self.output or self.source.stem + _ENDING}: {len(self.data):,} bytes, "
            f"{len(self.graph.operators)} operators, {total_macs(self.graph):,} MACs, converted "
            f"from {self.source}"
        )

    @property
    def table(self) -> list[dict[str, Any]]:
        """A row for each operator of the file."""
        tensors = self.graph.tensors
        return [
            {
                "index": index,
                "operator": operator.kind,
                "output": tensors[operator.outputs[0]].name,
                "dtype": tensors[operator.outputs[0]].dtype,
                "shape": tensors[operator.outputs[0]].shape,
            }
            for index, operator in enumerate(self.graph.operators)
        ]

    @property
    def svg(self) -> str | None:
        """The graph as a picture."""
        return graph_svg(self.graph)

    def save(self, path: str | Path) -> None:
        """Write the .tflite file. Raises UtvmError if it cannot be written."""
        target = _checked(self.source, Path(path))
        write_atomically(target, lambda file: file.write(self.data))

    def to_dict(self) -> dict[str, Any]:
        """The object of ``utvm convert --json``."""
        return plain_object(
            SCHEMA,
            {
                "model": str(self.source),
                "output": None if self.output is None else str(self.output),
                "bytes": len(self.data),
                "sha256": hashlib.sha256(self.data).hexdigest(),
                "operators": len(self.graph.operators),
            },
        )


def convert(
    model: str | Path,
    output: str | Path | None = None,
    *,
    prefill: str | Path | None = None,
    write: bool = True,
    **chosen: Unpack[ChosenOptions],
) -> ConvertResult:
    """The .tflite file of a quantized .onnx or .pt2 model; ``quantize`` takes float models.

    Of a .tflite file, it has what was chosen: signature, shapes, states and the image.
    uint8 becomes int8 where each byte of the reference kernels differs by 128 alone.

    ``model`` is the path of the file, and ``output`` that of the .tflite file to write. Without
    ``output``, or without ``write``, nothing is written, and ``save`` of the result can do so.
    ``chosen`` are ``inputs``, ``signature``, ``states``, ``stream`` and ``image_input`` of
    ``compile``.

    ``prefill`` is a .tflite file of the same module, exported for a block of several steps. The
    result has it as the signature "prefill", with the weights and scales of ``model``.

    ``data`` of the result are the bytes of the file. Raises ModelError for a file that is not
    quantized or cannot be imported, and UsageError for an ``output`` with another ending.
    """
    if not isinstance(model, str | Path):
        raise UsageError(
            f"an object of type {type(model).__name__} is not a model here; give the path of a "
            "quantized .onnx or .pt2 file"
        )
    source = Path(model)
    target = None if output is None else _checked(source, Path(output))
    with steps.chosen_of({**chosen}):
        # Nothing is written that other functions do not read.
        if prefill is not None:
            data = prefilled_tflite(source, Path(prefill))
            graph = _read_whole(data, source)
        else:
            data = quantized_tflite(source)
            graph = load_bytes(data, source.stem, str(source))
            if source.suffix.lower() == _ENDING:
                check_same_values(source, data, graph)
    if target is not None and write:
        write_atomically(target, lambda file: file.write(data))
    return ConvertResult(source, target, data, graph)


def _read_whole(data: bytes, source: Path) -> Graph:
    """The graph of a file with a step and a block."""
    with TemporaryFolder("utvm-convert") as folder, given_only(Chosen()):
        (folder / f"{source.stem}.tflite").write_bytes(data)
        return load_model(folder / f"{source.stem}.tflite", is_quiet=True)


def _checked(source: Path, output: Path) -> Path:
    if output.suffix.lower() != _ENDING:
        raise UsageError(f"{output}: convert writes a .tflite file; give a name that ends so")
    check_outputs(source, output)
    return output
