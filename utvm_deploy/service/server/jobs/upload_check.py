"""In a child process of bounded memory and time: whether a file is a model or data, and of what.

    python -m utvm_deploy.service.server.jobs.upload_check FILE FOLDER

leaves ``facts.json`` in the folder, and of a model ``inspection.json`` and ``graph.svg``; or
``refusal.txt``.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from utvm_deploy.base.errors import DataError
from utvm_deploy.base.readable import utf8
from utvm_deploy.frontend.conversion import limit_import, refusal
from utvm_deploy.frontend.formats import converted
from utvm_deploy.frontend.tflite import load_model
from utvm_deploy.graph.names import short_name
from utvm_deploy.quality.datasets.arrays import load_arrays
from utvm_deploy.results.inspecting.facts import Inspection, TensorFacts, graph_svg, inspect_model
from utvm_deploy.service.server.store.facts import DATA_ENDING, ModelFacts, TensorSummary

FACTS, INSPECTION, PICTURE, REFUSAL = ("facts.json", "inspection.json", "graph.svg", "refusal.txt")
#: Inputs, and outputs, that are named in the facts.
_MOST_TENSORS = 16
#: A larger picture or list of operators is not kept: no browser shows it well.
_MOST_BYTES = 8 << 20
#: Of all arrays of a file of data, which may be compressed; and the types of those that train.
_MOST_ARRAY_BYTES, _TYPES = 256 << 20, "biufSU"


def main(path: Path, folder: Path) -> int:
    """The exit status."""
    # Sentences name the file, and not where the server keeps it.
    os.chdir(path.parent)
    path = Path(path.name)
    try:
        if path.suffix == DATA_ENDING:
            limit_import()
            _check_data(path)
            (folder / FACTS).write_text("{}", encoding="utf-8")
            return 0
        # Other formats are read in a separate child, because their packages need much memory.
        converted(path)
        limit_import()
        graph = load_model(path)
        found = inspect_model(graph)
        (folder / FACTS).write_text(json.dumps(asdict(_facts(found))), encoding="utf-8")
        for name, text in ((INSPECTION, json.dumps(asdict(found))), (PICTURE, graph_svg(graph))):
            content = text.encode()
            if len(content) <= _MOST_BYTES:
                (folder / name).write_bytes(content)
    except DataError as error:
        (folder / REFUSAL).write_bytes(utf8(str(error)))
        return 1
    except Exception as error:
        (folder / REFUSAL).write_bytes(utf8(refusal(path, error)[1]))
        return 1
    return 0


def _check_data(path: Path) -> None:
    """Raise DataError unless this is a file of arrays that can be samples or labels."""
    for name, array in load_arrays(path, _MOST_ARRAY_BYTES).items():
        if array.dtype.kind not in _TYPES:
            raise DataError(f"array {name!r} of {path} is {array.dtype}; give numbers, or text")


def _facts(found: Inspection) -> ModelFacts:
    return ModelFacts(
        operators=len(found.operators),
        kinds=found.kinds,
        macs=found.macs or 0,
        weights_bytes=found.weights_bytes or 0,
        peak_activation_bytes=found.peak_activation_bytes or 0,
        inputs=_summaries(found.inputs),
        outputs=_summaries(found.outputs),
    )


def _summaries(tensors: Sequence[TensorFacts]) -> tuple[TensorSummary, ...]:
    return tuple(
        TensorSummary(short_name(tensor.name), tensor.dtype, tensor.shape)
        for tensor in tensors[:_MOST_TENSORS]
    )


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), Path(sys.argv[2])))
