"""Damaged ONNX files, each of a number, and the child that imports many of them one by one.

    python onnx_mutations.py FOLDER FIRST LAST

FOLDER holds whole models. For each file the child writes ``begin N`` and ``end N VERDICT DETAIL``.
"""

from __future__ import annotations

import json
import shutil
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx

from utvm_deploy.base.errors import ModelError
from utvm_deploy.frontend.conversion import main as convert
from utvm_deploy.frontend.tflite import load_model

_NUMBERS = (0, 1, -1, 2, -2, 3, 255, 2**16, 2**20, 2**31 - 1, 2**31, 2**40, 2**62, -(2**31))
_TYPES = tuple(range(24))

Mutation = Callable[[np.random.Generator, Any], None]


def mutant(number: int, originals: Sequence[bytes]) -> bytes:
    """File ``number``; always the same for the same originals."""
    rng = np.random.default_rng([number, 78])
    data = originals[int(rng.integers(len(originals)))]
    kind = number % 4
    if kind == 0:
        return _with_other_bytes(rng, data)
    if kind == 1:
        return data[: int(rng.integers(0, len(data)))]
    model = onnx.load_model_from_string(data)
    for _ in range(1 if rng.random() < 0.7 else 3):
        FIELDS[int(rng.integers(len(FIELDS)))](rng, model)
    return bytes(model.SerializeToString())


def _with_other_bytes(rng: np.random.Generator, data: bytes) -> bytes:
    changed = bytearray(data)
    for place in rng.integers(0, len(data), rng.integers(1, 6)):
        changed[place] = int(rng.integers(256))
    return bytes(changed)


def _one(rng: np.random.Generator, items: Any) -> Any:
    return items[int(rng.integers(len(items)))] if len(items) else None


def _dimension(rng: np.random.Generator, model: Any) -> None:
    graph = model.graph
    value = _one(rng, [*graph.input, *graph.output, *graph.value_info])
    dimension = _one(rng, value.type.tensor_type.shape.dim)
    if dimension is not None:
        dimension.dim_value = _one(rng, _NUMBERS)


def _constant_shape(rng: np.random.Generator, model: Any) -> None:
    tensor = _one(rng, model.graph.initializer)
    if tensor is not None:
        del tensor.dims[:]
        tensor.dims.extend(_one(rng, _NUMBERS) for _ in range(rng.integers(0, 5)))


def _constant_type(rng: np.random.Generator, model: Any) -> None:
    tensor = _one(rng, model.graph.initializer)
    if tensor is not None:
        tensor.data_type = _one(rng, _TYPES)


def _constant_bytes(rng: np.random.Generator, model: Any) -> None:
    tensor = _one(rng, model.graph.initializer)
    if tensor is not None and tensor.raw_data:
        tensor.raw_data = rng.bytes(int(rng.integers(0, 2 * len(tensor.raw_data))))


def _attribute(rng: np.random.Generator, model: Any) -> None:
    node = _one(rng, model.graph.node)
    attribute = _one(rng, node.attribute)
    if attribute is None:
        return
    if attribute.ints:
        attribute.ints[int(rng.integers(len(attribute.ints)))] = _one(rng, _NUMBERS)
        if rng.random() < 0.3:
            del attribute.ints[-1]
    else:
        attribute.i, attribute.f = _one(rng, _NUMBERS), float(rng.choice([0, -1, np.nan, np.inf]))


def _operand(rng: np.random.Generator, model: Any) -> None:
    node = _one(rng, model.graph.node)
    names = [name for other in model.graph.node for name in (*other.input, *other.output)]
    if node.input:
        node.input[int(rng.integers(len(node.input)))] = _one(rng, [*names, "", "nothing"])


def _fewer_operands(rng: np.random.Generator, model: Any) -> None:
    node = _one(rng, model.graph.node)
    if node.input:
        del node.input[-1]


def _kind(rng: np.random.Generator, model: Any) -> None:
    kinds = [node.op_type for node in model.graph.node]
    extra = ("Expand", "ConstantOfShape", "Tile", "Loop", "If", "Range", "Resize", "Pad", "Split")
    _one(rng, model.graph.node).op_type = _one(rng, [*kinds, *extra])


def _without(rng: np.random.Generator, model: Any) -> None:
    del model.graph.node[int(rng.integers(len(model.graph.node)))]


def _order(rng: np.random.Generator, model: Any) -> None:
    nodes = list(model.graph.node)
    rng.shuffle(nodes)
    del model.graph.node[:]
    model.graph.node.extend(nodes)


def _version(rng: np.random.Generator, model: Any) -> None:
    model.opset_import[0].version = _one(rng, _NUMBERS)


NOTHING_CHOSEN = {"shapes": {}, "states": [], "stream": None, "image": None, "weights": None}
FIELDS: tuple[Mutation, ...] = (
    *(_dimension, _constant_shape, _constant_type, _constant_bytes, _attribute, _attribute),
    *(_operand, _fewer_operands, _kind, _without, _order, _version),
)


def main(folder: Path, first: int, last: int) -> None:
    """Import each file as the child of ``converted`` does, and the .tflite file of it."""
    originals = [path.read_bytes() for path in sorted(folder.glob("*.onnx"))]
    for number in range(first, last):
        made = Path(tempfile.mkdtemp(prefix="utvm-onnx-"))
        path = made / "hostile.onnx"
        path.write_bytes(mutant(number, originals))
        (made / "chosen.json").write_text(json.dumps(NOTHING_CHOSEN), encoding="utf-8")
        print(f"begin {number}", flush=True)
        if convert(path, made) == 0:
            verdict, detail = "converted", ""
            try:
                load_model(made / "model.tflite")
            except ModelError as exc:
                verdict, detail = "refused later", str(exc)
        else:
            detail = (made / "refusal.txt").read_text("utf-8").partition("\n")[2]
            verdict = "refused"
            if "bug of utvm_deploy" in detail:
                verdict = "bug"
            elif "\n" in detail or str(path) not in detail:
                verdict = "unclear"
        print(f"end {number} {verdict!r} {detail!r}", flush=True)
        shutil.rmtree(made)


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]))
