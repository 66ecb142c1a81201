"""The door of onnxruntime: prepares, observes and quantizes float ONNX files."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from utvm_deploy.base.errors import ModelError, last_words
from utvm_deploy.graph.model import Array
from utvm_deploy.quality.quantizing.facts import FLOAT, INT16X8, Range, Recipe
from utvm_deploy.quality.quantizing.onnx import file as onnx_file
from utvm_deploy.quality.quantizing.tflite.calibrate import Observed

#: The samples that the quantizer itself sees; the ranges are those of the calibration.
_SEEN = 2
#: Functions whose kernels of int8 have a fixed scale: the range that gives it.
_FIXED = {"Sigmoid": Range(0.0, 255 / 256), "Tanh": Range(-1.0, 127 / 128)}


def prepared(data: bytes, folder: Path) -> bytes:
    """The file with constants folded and batch normalizations joined to convolutions."""
    from onnxruntime.quantization.shape_inference import quant_pre_process

    unrolled = onnx_file.unrolled_model(data).SerializeToString()
    source, target = folder / "unrolled.onnx", folder / "prepared.onnx"
    source.write_bytes(unrolled)
    try:
        # Symbolic shapes need sympy, and all shapes are fixed.
        quant_pre_process(str(source), str(target), skip_symbolic_shape=True)
        made = target.read_bytes()
    except Exception:  # it fails on some models that the quantizer takes as they are
        made = unrolled
    return onnx_file.for_quantizer(made)


def observe(
    data: bytes,
    inputs: Sequence[Array],
    job: Mapping[str, Any],
    progress: Callable[[int, int], None],
) -> tuple[Observed, tuple[Array, ...], list[str]]:
    """The ranges of float tensors, the outputs of the first samples, and the outputs' names."""
    every, names = onnx_file.with_all_outputs(data)
    session, given = _session(every)
    ends = [value.name for value in _session(data)[0].get_outputs()]
    seen = Observed(job, *onnx_file.scores_of(data))
    outputs: list[list[Array]] = []
    count = len(inputs[0])
    for sample in range(count):
        feed = {n: a[sample] for n, a in zip(given, inputs, strict=True)}
        values = dict(zip(names, session.run(names, feed), strict=True))
        if sample < job["kept"]:
            outputs.append([values[name] for name in ends])
        for name, array in (*feed.items(), *values.items()):
            if array.size and array.dtype == np.float32:
                seen.see(sample, name, array)
        progress(sample + 1, count)
    return seen, tuple(np.stack(arrays) for arrays in zip(*outputs, strict=True)), ends


def float_values(data: bytes, inputs: Sequence[Array]) -> Iterator[tuple[str, Array]]:
    """The name and the elements of each float tensor, on each sample."""
    every, names = onnx_file.with_all_outputs(data)
    session, given = _session(every)
    for sample in range(len(inputs[0])):
        feed = {name: array[sample] for name, array in zip(given, inputs, strict=True)}
        made = zip(names, session.run(names, feed), strict=True)
        yield from ((n, a) for n, a in (*feed.items(), *made) if a.size and a.dtype == np.float32)


def runner(data: bytes) -> tuple[Callable[[Sequence[Array]], Sequence[Array]], list[str]]:
    """What runs a file on one sample, and the names of its outputs."""
    session, given = _session(data)

    def run(sample: Sequence[Array]) -> Sequence[Array]:
        made: list[Array] = session.run(None, dict(zip(given, sample, strict=True)))
        return made

    return run, [value.name for value in session.get_outputs()]


def _session(data: bytes) -> tuple[Any, list[str]]:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    options.log_severity_level = 3
    try:
        session = onnxruntime.InferenceSession(data, options, providers=["CPUExecutionProvider"])
    except Exception as error:  # onnxruntime has many classes for it
        raise ModelError(f"onnxruntime cannot run it: {last_words(error)}") from error
    return session, [value.name for value in session.get_inputs()]


def quantized(
    data: bytes,
    ranges: Mapping[str, Range],
    inputs: Sequence[Array],
    recipe: Recipe,
    folder: Path,
) -> Path:
    """The QDQ file that a recipe describes."""
    from onnxruntime.quantization import QuantFormat, QuantType, quantize_static

    is_wide = recipe.scheme == INT16X8
    source, target = folder / "float.onnx", folder / "qdq.onnx"
    source.write_bytes(data)
    operators = onnx_file.operators_of(data)
    mixed = {one for one in recipe.operators.values() if one not in (FLOAT, recipe.scheme)}
    if mixed:
        raise ModelError(
            f"an ONNX model has one scheme for all operators, not {recipe.scheme} and "
            f"{', '.join(sorted(mixed))}; quantize it as a .tflite file"
        )
    fixed = {
        output: _FIXED[kind]
        for kind, output, _ in operators
        if kind in _FIXED and output in ranges and not is_wide
    }
    overrides = {
        name: [{"rmin": np.float32(one.low), "rmax": np.float32(one.high)}]
        for name, one in _with_values({**ranges, **fixed, **recipe.ranges}).items()
    }
    try:
        quantize_static(
            str(source),
            str(target),
            _reader(data, inputs),
            quant_format=QuantFormat.QDQ,
            per_channel=True,
            activation_type=QuantType.QInt16 if is_wide else QuantType.QInt8,
            weight_type=QuantType.QInt8,
            nodes_to_exclude=[
                name
                for kind, output, name in operators
                if recipe.operators.get(output) == FLOAT
                or (kind == "Clip" and _is_beside_zero(ranges.get(output)))
            ],
            extra_options={"ActivationSymmetric": is_wide, "TensorQuantOverrides": overrides},
        )
    except Exception as error:  # onnxruntime has many classes for it
        raise ModelError(f"onnxruntime cannot quantize it: {last_words(error)}") from error
    return target


def _is_beside_zero(known: Range | None) -> bool:
    """Whether zero is outside of a range.

    onnxruntime leaves out a Clip if it can, and widens its range to zero: values between zero and
    the limit would pass.
    """
    return known is not None and (known.low > 0 or known.high < 0)


def _with_values(ranges: Mapping[str, Range]) -> dict[str, Range]:
    """The ranges, with 0 to 1 for tensors that are always zero.

    onnxruntime would give these a scale of 1 and a zero point of 0. LiteRT cannot add such a tensor
    to one of a small scale. And onnxruntime leaves out a Relu whose range begins at zero: its zero
    point must be the least step.
    """
    return {name: one if one.low or one.high else Range(0.0, 1.0) for name, one in ranges.items()}


def _reader(data: bytes, inputs: Sequence[Array]) -> Any:
    from onnxruntime.quantization import CalibrationDataReader

    _, given = _session(data)

    class Reader(CalibrationDataReader):  # type: ignore[misc]
        """The first samples."""

        def __init__(self) -> None:
            self.position = 0

        def get_next(self) -> dict[str, Array] | None:
            """The next sample; None after the last."""
            place = self.position
            self.position += 1
            if place >= min(_SEEN, len(inputs[0])):
                return None
            return {name: array[place] for name, array in zip(given, inputs, strict=True)}

    return Reader()
