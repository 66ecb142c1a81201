"""The facts of a quantization: what was observed, what is wanted, what came out."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from utvm_deploy.base.errors import UsageError
from utvm_deploy.base.files import write_atomically
from utvm_deploy.base.results import Result, plain_object
from utvm_deploy.frontend.files.state import KeptState
from utvm_deploy.graph.model import Array
from utvm_deploy.graph.names import short_name

INT8, INT16X8, FLOAT = "int8", "int16x8", "float"
#: What a whole model can be quantized to; int16x8 has int16 activations and int8 weights.
SCHEMES = (INT8, INT16X8)
#: int8 with weights of int4 where there are kernels for them.
INT4 = "int4"
#: Those of all layers of a model.
UNIFORM_SCHEMES = (*SCHEMES, INT4)
#: One of these for each layer.
MIXED = "mixed"
WANTED_SCHEMES = (*UNIFORM_SCHEMES, MIXED)
#: The type of activations.
DTYPES: Mapping[str, str] = {INT8: "int8", INT16X8: "int16"}

#: How far below the largest of its row a score still counts; softmax gives others no step. A tenth
#: of one, 1/256 or 1/32768, is more than exp(-8) or exp(-13).
COUNTING: Mapping[str, float] = {INT8: 8.0, INT16X8: 13.0}

#: Below this SQNR of an output, in dB, a warning says how to find the layers that cause it.
LEAST_SQNR_DB: Mapping[str, float] = {INT8: 20.0, INT16X8: 35.0, INT4: 12.0}
SENSITIVITY_HINT = "--sensitivity shows which layers cause it"
#: How ranges of tensors follow from what was observed.
MIN_MAX, PERCENTILE, MSE = "min-max", "percentile", "mse"
CLIPPINGS = (MIN_MAX, PERCENTILE, MSE)
#: What there is, is tried, and judged by samples that are held out.
AUTO, YES, NO = "auto", "yes", "no"
WANTED_CLIPPINGS = (*CLIPPINGS, AUTO)
#: Whether weights are equalized across layers.
WANTED_EQUALIZING = (AUTO, YES, NO)

#: Fewer samples than this are used, with a warning.
FEW_SAMPLES = 32
#: The first samples, on which outputs are compared. The reference kernels are slow.
COMPARED_SAMPLES = 64
#: The samples that are kept for distributions of values, and for PT2E; at most this many.
KEPT_SAMPLES = 256
PT2E_SAMPLES = 512
_LEAST_TO_HOLD_OUT = 64


def held_out(samples: int, compared: int = COMPARED_SAMPLES) -> int:
    """How many of the samples are kept back, so that models are compared on data new to them.

    Few samples are all needed for the ranges.
    """
    return 0 if samples < _LEAST_TO_HOLD_OUT else min(compared, samples // 4)


_LARGEST_FLOAT32 = 2.0**128 - 2.0**104


@dataclass(frozen=True)
class Range:
    """The smallest and the largest value of a tensor.

    ``top`` is for scores that softmax takes: the least of what is the largest in a row.
    """

    low: float
    high: float
    top: float | None = None

    @property
    def is_too_wide(self) -> bool:
        """Whether float32 has no number for the distance of the two, of which the scale is made."""
        return self.high - self.low > _LARGEST_FLOAT32


def too_wide(name: str, one: Range) -> str:
    """What to say of a tensor whose range has no scale."""
    return (
        f"tensor '{short_name(name)}' of the float model reaches from {one.low:g} to {one.high:g} "
        "on the calibration data, too far for a scale in float32; give values as the model was "
        "trained on"
    )


@dataclass(frozen=True, eq=False)
class Calibration:
    """What the float model computed on the samples.

    It does not depend on the scheme, so one calibration serves any number of recipes.
    """

    form: str  # of the model: "tflite", "onnx" or "pt2"
    model: bytes = field(repr=False)  # the file that was run; recipes and ranges name its tensors
    ranges: Mapping[str, Range]  # of each computed tensor; of .pt2, what the user declared
    # The same without the samples that were held out.
    fitted: Mapping[str, Range] = field(repr=False)
    operators: tuple[tuple[str, str], ...]  # kind and first output of each operator, in order
    # Samples, one array per input; the first have outputs.
    inputs: tuple[Array, ...] = field(repr=False)
    # What the float model makes of these, one array per output.
    outputs: tuple[Array, ...] = field(repr=False)
    output_names: tuple[str, ...]
    samples: int
    # How many of the first samples are new to the models that are compared on them. The model that
    # is chosen is then made again from all samples.
    held_out: int
    warnings: tuple[str, ...] = ()
    equalized: int = 0  # layers whose outputs have equalized channels
    # That of the file itself, if this one is of a .tflite file that was made from it.
    source: Calibration | None = field(default=None, repr=False)
    # Those of the model's own, which become its variables in the end.
    states: tuple[KeptState, ...] = field(default=(), repr=False)
    # As ``outputs``, of all samples that are kept here.
    all_outputs: tuple[Array, ...] = field(default=(), repr=False)

    def of_all_samples(self) -> Calibration:
        """The calibration whose models are made of all samples, and compared on them."""
        return replace(self, outputs=self.all_outputs, held_out=0, fitted=self.ranges)


#: In place of the names of layers: all that can be meant.
ALL_LAYERS = ("*",)


@dataclass(frozen=True)
class Recipe:
    """How each operator is quantized.

    ``operators`` maps the name of an operator's first output to a scheme, or to "float".
    ``ranges`` replaces the calibrated ranges of tensors. ``clipping`` says how the others follow
    from what was observed. ``narrow`` has the first outputs of layers whose weights become int4
    where the scheme is int8.
    """

    scheme: str = INT8
    operators: Mapping[str, str] = field(default_factory=dict)
    ranges: Mapping[str, Range] = field(default_factory=dict)
    float_ends: bool = False
    clipping: str = MIN_MAX
    narrow: tuple[str, ...] = ()

    @classmethod
    def of(cls, scheme: str, **given: Any) -> Recipe:
        """The recipe of a scheme of ``UNIFORM_SCHEMES``; ``given`` are further fields."""
        return cls(INT8, narrow=ALL_LAYERS, **given) if scheme == INT4 else cls(scheme, **given)

    @property
    def label(self) -> str:
        """The scheme as callers know it."""
        return INT4 if self.narrow == ALL_LAYERS else self.scheme


def counting(
    ranges: Mapping[str, Range], seen: Mapping[str, Range], recipe: Recipe
) -> dict[str, Range]:
    """The ranges, in which scores begin where they count; ``seen`` are those that were observed."""
    made = dict(ranges)
    for name, one in seen.items():
        scheme = recipe.operators.get(name, recipe.scheme)
        if one.top is not None and name in ranges and scheme in COUNTING:
            low = max(ranges[name].low, one.top - COUNTING[scheme])
            made[name] = replace(ranges[name], low=low)
    return made


@dataclass(frozen=True)
class FloatOperator:
    """An operator of the quantized file that computes in float32."""

    index: int
    kind: str
    output: str


@dataclass(frozen=True)
class OutputError:
    """How far an output of the quantized model is from the float model's.

    It is that of a model which was made without the compared samples, if these were held out.
    """

    name: str
    # None if the two are equal, or the float output is the same for all samples.
    sqnr_db: float | None
    largest: float  # the largest absolute difference


def quality(
    floats: Sequence[FloatOperator], outputs: Sequence[OutputError], *, is_held_out: bool
) -> str:
    """How many operators stayed float, and the error of the worst output, in a phrase."""
    told = "no operator in float32"
    if floats:
        told = f"{len(floats)} operator{'s' * (len(floats) > 1)} in float32"
    known = [one.sqnr_db for one in outputs if one.sqnr_db is not None]
    what = "held-out SQNR" if is_held_out else "SQNR"
    return f"{told}, {what} {min(known):.1f} dB" if known else told


class QuantizedFile(Result):
    """A quantized .tflite file, and the errors of its outputs."""

    data: bytes
    outputs: tuple[OutputError, ...]

    @property
    def table(self) -> list[dict[str, Any]]:
        """A row for each output: its SQNR in dB, and the largest difference."""
        return [asdict(one) for one in self.outputs]

    def save(self, path: str | Path) -> None:
        """Write the .tflite file. Raises UtvmError if it cannot be written."""
        if Path(path).suffix.lower() != ".tflite":
            raise UsageError(f"{path} does not end in .tflite; give such a name")
        write_atomically(Path(path), lambda file: file.write(self.data))


@dataclass(frozen=True, eq=False, repr=False)
class QuantizedModel(QuantizedFile):
    """A quantized .tflite file, and what is known about it."""

    data: bytes = field(repr=False)
    scheme: str
    calibration: Calibration = field(repr=False)
    float_operators: tuple[FloatOperator, ...]
    rewritten: tuple[str, ...]  # kinds of operators that our own rewriting quantized
    outputs: tuple[OutputError, ...]
    compared_samples: int
    float_bytes: int
    warnings: tuple[str, ...]
    clipping: str = MIN_MAX
    # The least SQNR of an output by each clipping that was tried, in dB; None if there is none.
    clippings: Mapping[str, float | None] = field(default_factory=dict)
    # The same without and with equalized weights, if that was tried.
    equalizing: tuple[float | None, float | None] | None = None
    # The same as the file's own quantizer makes it, and as a .tflite file, if both were tried.
    converting: tuple[float | None, float | None] | None = None

    @property
    def samples(self) -> int:
        """How many samples the model was calibrated with."""
        return self.calibration.samples

    @property
    def headline(self) -> str:
        """Scheme, size, what stayed float, the error, and how many warnings there are."""
        is_held_out = self.calibration.held_out > 0
        count = len(self.warnings)
        return (
            f"{self.scheme}: {len(self.data):,} bytes from {self.float_bytes:,}, "
            f"{quality(self.float_operators, self.outputs, is_held_out=is_held_out)}"
            + (f" ({count} warning{'s' * (count > 1)})" if count else "")
        )

    def to_dict(self) -> dict[str, Any]:
        """The object of ``utvm quantize --json``, without an output."""
        facts = {
            "scheme": self.scheme,
            "samples": self.calibration.samples,
            "compared_samples": self.compared_samples,
            "held_out": self.calibration.held_out > 0,
            "bytes": len(self.data),
            "float_bytes": self.float_bytes,
            "float_operators": [asdict(one) for one in self.float_operators],
            "rewritten": list(self.rewritten),
            "outputs": [asdict(one) for one in self.outputs],
            "warnings": list(self.warnings),
            "equalizing": self.equalizing,
            "converting": self.converting,
            "clipping": self.clipping,
            "clippings": dict(self.clippings),
            "ok": True,
            "output": None,
        }
        return plain_object("utvm.quantize/1", facts)


def declared_range(given: tuple[float, float] | None) -> Range | None:
    """The range of inputs that a caller declares; UsageError unless it goes upwards."""
    if given is None:
        return None
    try:
        low, high = map(float, given)
    except (TypeError, ValueError) as error:
        raise UsageError(
            f"input_range is {given!r}; give its lower and its higher number, such as (-1, 1)"
        ) from error
    if not (math.isfinite(low) and math.isfinite(high) and low < high):
        raise UsageError(f"{low:g}, {high:g} is not a range from a lower to a higher number")
    return Range(low, high)
