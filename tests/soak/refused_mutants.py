"""Model files that LiteRT refuses and the import takes, found by changing fields of good files.

    python tests/soak/refused_mutants.py --count 2000            # of random models
    python tests/soak/refused_mutants.py --count 500 --files models/*.tflite

There is nothing to be exact to in such a file, so each one is a fault of the import. With
``--other``, also what LiteRT takes and the import refuses: there, some refusals are right. Each
file is tried in a child process that is forked, because LiteRT aborts on some.
"""

from __future__ import annotations

import argparse
import os
import re
import resource
import signal
import sys
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import numpy as np
from random_models.generator import generate
from random_models.recipe import write

from utvm_deploy.base.errors import ModelError
from utvm_deploy.frontend.files import tflite_schema as schema
from utvm_deploy.frontend.tflite import load_bytes

_NUMBERS = (-1, 0, 1, 2, 3, 4, 5, 7, 100, 40_000)
_EXTENTS = (1, 2, 3, 4, 5, 8, 16)
_VERSIONS = (0, 1, 2, 3, 4, 5, 6, 7, 8, 12)
_SCALES = (1e-9, 0.001, 1 / 256, 1 / 32768, 0.05, 1.0, 8.0, 300.0)
_ZERO_POINTS = (-128, -1, 0, 1, 5, 127)
#: What the import only warns of: a CONV_2D without a bias. And what TFLite Micro alone computes: an
#: LSTM of int16.
_WARNED = ("has_bias was not true", "input_gate_bias->type != kTfLiteFloat32 (INT64")
_SECONDS = 5
_MOST_BYTES = 6 << 30


@dataclass
class _Change:
    """What was changed, for the list of findings."""

    what: str
    kind: str


class _Mutator:
    """One change of a field of a model, which a seed chooses."""

    def __init__(self, model: Any, rng: np.random.Generator) -> None:
        self.model, self.rng = model, rng
        self.graph = model.subgraphs[0]

    def one_of(self, values: Sequence[Any]) -> Any:
        return values[int(self.rng.integers(len(values)))]

    def apply(self) -> _Change:
        operator = self.one_of(self.graph.operators)
        kind = schema.kind_of(self.model, operator)
        name = self.one_of(tuple(MUTATIONS))
        told = MUTATIONS[name](self, operator)
        return _Change(f"{name} {told}", kind)

    def tensor_of(self, operator: Any) -> tuple[str, Any]:
        """One of an operator's tensors, and what it is to the operator."""
        sides = [(f"input {i}", n) for i, n in enumerate(schema.numbers(operator.inputs))]
        sides += [(f"output {i}", n) for i, n in enumerate(schema.numbers(operator.outputs))]
        where, number = self.one_of([side for side in sides if side[1] >= 0] or [("none", 0)])
        return where, self.graph.tensors[number]


def _type(m: _Mutator, operator: Any) -> str:
    where, tensor = m.tensor_of(operator)
    types = (schema.FLOAT32, schema.INT8, schema.INT16, schema.INT32, schema.INT64)
    types += (schema.UINT8, schema.FLOAT16)
    old, new = tensor.type, m.one_of(types)
    tensor.type = new
    data = m.model.buffers[tensor.buffer].data
    if data is not None and len(data) and old in schema.STORED and new in schema.STORED:
        values = np.asarray(data, np.uint8).view(schema.STORED[old])
        schema.set_constant(m.model, tensor, values.astype(schema.STORED[new]))
    return f"{where}: {old} to {new}"


def _shape(m: _Mutator, operator: Any) -> str:
    where, tensor = m.tensor_of(operator)
    shape = schema.numbers(tensor.shape)
    how = int(m.rng.integers(4))
    if how == 0 and shape:
        shape.pop(int(m.rng.integers(len(shape))))
    elif how == 1:
        shape.insert(int(m.rng.integers(len(shape) + 1)), 1)
    elif shape:
        shape[int(m.rng.integers(len(shape)))] = m.one_of(_EXTENTS)
    return f"{where}: {_reshaped(m, tensor, shape)}"


def _reshaped(m: _Mutator, tensor: Any, shape: list[int]) -> str:
    """The new shape; a constant gets as many values."""
    told = f"{schema.numbers(tensor.shape)} to {shape}"
    data = m.model.buffers[tensor.buffer].data
    if data is not None and len(data) and tensor.type in schema.STORED:
        values = np.asarray(data, np.uint8).view(schema.STORED[tensor.type])
        schema.set_constant(m.model, tensor, np.resize(values, shape))
    tensor.shape, tensor.shapeSignature = np.array(shape, np.int32), None
    return told


def _quantization(m: _Mutator, operator: Any) -> str:
    where, tensor = m.tensor_of(operator)
    how = int(m.rng.integers(6))
    params = tensor.quantization
    if how == 0 or params is None or params.scale is None:
        count = int(m.one_of((0, 1, 2)))
        tensor.quantization = schema.quantization([0.05] * count, [0] * count)
        return f"{where}: {count} scales"
    if how == 1:
        tensor.quantization = None
        return f"{where}: none"
    if how == 2:
        params.quantizedDimension = m.one_of((-1, 0, 1, 2, 3, 4, 5))
        return f"{where}: dimension {params.quantizedDimension} of {len(params.scale)} scales"
    if how == 3:
        params.zeroPoint = np.full(len(params.scale), m.one_of(_ZERO_POINTS), np.int64)
        return f"{where}: zero point {params.zeroPoint[0]}"
    if how == 4:
        params.scale = np.full(len(params.scale), m.one_of(_SCALES), np.float32)
        return f"{where}: scale {params.scale[0]:g}"
    axis = int(m.rng.integers(max(len(schema.numbers(tensor.shape)), 1)))
    count = schema.numbers(tensor.shape)[axis] if len(schema.numbers(tensor.shape)) else 1
    tensor.quantization = schema.quantization([params.scale[0]] * count, [0] * count)
    tensor.quantization.quantizedDimension = axis
    return f"{where}: {count} scales along {axis}"


def _option(m: _Mutator, operator: Any) -> str:
    options = operator.builtinOptions
    if options is None or m.rng.random() < 0.05:
        operator.builtinOptions, operator.builtinOptionsType = None, 0
        return "gone"
    names = [n for n, v in vars(options).items() if isinstance(v, bool | int | float)]
    if not names:
        return "none"
    name = m.one_of(names)
    old = getattr(options, name)
    if isinstance(old, bool):
        new: Any = not old
    elif isinstance(old, float):
        new = float(m.one_of((0.0, 0.5, 1.0, -1.0, 2.0)))
    else:
        limit = 6 if "ctivation" in name or name in ("padding", "type", "mode") else 50_000
        new = m.one_of([one for one in _NUMBERS if 0 <= one < limit or limit > 6])
    setattr(options, name, new)
    return f"{name} {old} to {new}"


def _version(m: _Mutator, operator: Any) -> str:
    code = m.model.operatorCodes[operator.opcodeIndex]
    old, code.version = code.version, m.one_of(_VERSIONS)
    return f"{old} to {code.version}"


def _storage(m: _Mutator, operator: Any) -> str:
    where, tensor = m.tensor_of(operator)
    data = m.model.buffers[tensor.buffer].data
    is_constant = data is not None and len(data) > 0
    how = int(m.rng.integers(3))
    if how == 0:
        tensor.isVariable = not tensor.isVariable
        return f"{where}: {'a constant' if is_constant else 'it'} variable {tensor.isVariable}"
    if is_constant:
        if how == 1 and len(m.graph.inputs) < 4:
            number = next(i for i, one in enumerate(m.graph.tensors) if one is tensor)
            m.graph.inputs = [*schema.numbers(m.graph.inputs), number]
            tensor.buffer = 0
            return f"{where}: an input instead of a constant"
        tensor.buffer = 0
        return f"{where}: no data"
    shape = schema.numbers(tensor.shape)
    if tensor.type not in schema.STORED or np.prod(shape) > 1e6:
        return "none"
    schema.set_constant(m.model, tensor, np.zeros(shape, schema.STORED[tensor.type]))
    return f"{where}: data"


def _operands(m: _Mutator, operator: Any) -> str:
    inputs, outputs = schema.numbers(operator.inputs), schema.numbers(operator.outputs)
    how = int(m.rng.integers(7))
    at = int(m.rng.integers(max(len(inputs), 1)))
    if how == 0 and inputs:
        inputs.pop(at)
        told = f"without input {at}"
    elif how == 1 and inputs:
        inputs[at] = -1
        told = f"input {at} is absent"
    elif how == 2:
        inputs.append(m.one_of([-1, *inputs]))
        told = f"input {len(inputs)} more"
    elif how == 3 and len(inputs) > 1:
        inputs[at], inputs[at - 1] = inputs[at - 1], inputs[at]
        told = f"inputs {at} and {at - 1} exchanged"
    elif how == 4 and inputs:
        inputs[at] = m.one_of(inputs)
        told = f"input {at} is another"
    elif how == 5 and len(outputs) > 1:
        outputs.pop()
        told = "an output less"
    else:
        like = m.graph.tensors[outputs[0]] if outputs else m.graph.tensors[0]
        made = schema.new_tensor(m.model, m.graph, like, b"more", like.type, like.quantization)
        outputs.append(made)
        told = "an output more"
    operator.inputs, operator.outputs = inputs, outputs
    return told


def _value(m: _Mutator, operator: Any) -> str:
    """A constant of integers, such as an axis or a shape."""
    where, tensor = m.tensor_of(operator)
    data = schema.constant(m.model, tensor)
    if tensor.type not in (schema.INT32, schema.INT64) or data is None:
        return _option(m, operator)
    flat = data.reshape(-1).copy()
    at = int(m.rng.integers(len(flat)))
    old, flat[at] = flat[at], m.one_of((-3, -2, *_NUMBERS[:-1]))
    schema.set_constant(m.model, tensor, flat.reshape(data.shape))
    return f"{where}: {old} to {flat[at]}"


#: What is changed; types, options and operands are most of what Prepare looks at.
MUTATIONS: Mapping[str, Callable[[_Mutator, Any], str]] = {
    "type": _type,
    "shape": _shape,
    "quantization": _quantization,
    "option": _option,
    "version": _version,
    "storage": _storage,
    "operands": _operands,
    "value": _value,
}


def mutant(seed: int, files: Sequence[Path] = ()) -> tuple[bytes, _Change]:
    """File ``seed`` with one field changed; always the same."""
    rng = np.random.default_rng([seed, 33])
    if files:
        data = files[seed % len(files)].read_bytes()
    else:
        data = write(generate(int(rng.integers(0, 100_000)))).to_bytes()
    model = schema.read_model(data)
    change = _Mutator(model, rng).apply()
    return schema.model_bytes(model), change


def litert_refusal(data: bytes) -> str | None:
    """What LiteRT's reference kernels say to a file; None if they take it and run it once."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(reader)
        os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
        resource.setrlimit(resource.RLIMIT_CPU, (_SECONDS, _SECONDS))
        resource.setrlimit(resource.RLIMIT_AS, (_MOST_BYTES, _MOST_BYTES))
        os.write(writer, _attempt(data).encode()[:4000])
        os._exit(0)
    os.close(writer)
    with os.fdopen(reader, "rb") as pipe:
        said = pipe.read().decode("utf-8", "replace")
    _, status = os.waitpid(child, 0)
    if os.WIFSIGNALED(status):
        return f"{signal.Signals(os.WTERMSIG(status)).name} after {said}"
    return None if said == "taken" else said


def _attempt(data: bytes) -> str:
    step = "build"
    try:
        interpreter = _interpreter(data)
        step = "prepare"
        interpreter.allocate_tensors()
        step = "invoke"
        for detail in interpreter.get_input_details():
            interpreter.set_tensor(detail["index"], np.zeros(detail["shape"], detail["dtype"]))
        interpreter.invoke()
    except Exception as error:
        return f"{step}: " + " ".join(str(error).split())
    return "taken"


def _interpreter(data: bytes) -> Any:
    """The reference kernels', or the default ones' for a version that only these have."""
    from ai_edge_litert.interpreter import Interpreter, OpResolverType

    kinds = OpResolverType.BUILTIN_REF, OpResolverType.BUILTIN_WITHOUT_DEFAULT_DELEGATES
    try:
        return Interpreter(model_content=data, experimental_op_resolver_type=kinds[0])
    except ValueError as error:
        if "Didn't find op" not in str(error):
            raise
        return Interpreter(model_content=data, experimental_op_resolver_type=kinds[1])


def our_refusal(data: bytes) -> str | None:
    """What the import says to a file; None if it takes it."""
    try:
        load_bytes(data, "mutant")
    except ModelError as error:
        return str(error)
    return None


def kinds_of(data: bytes) -> set[str]:
    """The operators of a file that the import takes."""
    return {operator.kind for operator in load_bytes(data, "mutant").operators}


def main(arguments: Sequence[str] | None = None) -> int:
    """Print what is found; the exit status is 1 if it is anything."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=200)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--files", type=Path, nargs="*", default=[])
    parser.add_argument("--other", action="store_true", help="what the import alone refuses, too")
    args = parser.parse_args(arguments)
    import ai_edge_litert.interpreter  # noqa: F401  # before the forks, so once

    verdicts: Counter[str] = Counter()
    for seed in range(args.first, args.first + args.count):
        try:
            data, change = mutant(seed, args.files)
        except Exception as error:  # the schema's writers refuse some values
            verdicts[f"not written ({type(error).__name__})"] += 1
            continue
        ours = our_refusal(data)
        if ours is not None and not args.other:
            verdicts["refused by the import"] += 1
            continue
        theirs = litert_refusal(data)
        if theirs is not None and any(one in theirs for one in _WARNED):
            theirs = None
        # LiteRT's SVDF writes behind its scratch; the table of truth names another oracle for it.
        if ours is None and theirs is not None and "SVDF" in kinds_of(data):
            theirs = None
        did = "takes" if theirs is None else "stops" if "invoke:" in theirs else "refuses"
        both = f"{'taken' if ours is None else 'refused'}, LiteRT {did}"
        verdicts[both] += 1
        if (ours is None) != (theirs is None):
            said = re.sub(r"/\S*/", "", theirs or ours or "")
            print(f"{seed} {change.kind} {change.what} | {both} | {said}", flush=True)
    print(", ".join(f"{count} {what}" for what, count in verdicts.most_common()))
    return int(verdicts["taken, LiteRT refuses"] > 0)


if __name__ == "__main__":
    sys.exit(main())
