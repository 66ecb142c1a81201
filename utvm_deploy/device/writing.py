"""A language model writes: a token a run, chosen from the scores of the run before.

``examples/writer/text.c`` chooses the same tokens. So everything is integers, or single operations
of float32, which are equal on all processors.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from utvm_deploy.base.errors import ModelError, UsageError
from utvm_deploy.compiler.compiled.model import CompiledModel
from utvm_deploy.device.model import DeviceModel
from utvm_deploy.frontend.vocabulary import Vocabulary
from utvm_deploy.graph.model import Array

_MASK = 0xFFFFFFFF
#: Scores become differences to the best one, in parts of a factor of two in probability.
_PARTS = 2048
_LARGEST = 65_535
#: _PARTS * log2(e).
_PARTS_OF_E = np.float32(2954.6394)
_INTEGERS = ("int32", "int64")


class Sampler:
    """Chooses tokens by their scores, from a seed.

    ``temperature`` divides the scores; 0 takes the best token. ``top_k`` leaves that many of the
    best tokens; 0 leaves all.
    """

    def __init__(self, temperature: float = 0.8, top_k: int = 0, seed: int = 0) -> None:
        if not (temperature == 0 or 0.01 <= temperature <= 100) or top_k < 0:
            raise UsageError(
                f"the temperature is {temperature:g} and top-k {top_k}; give a temperature of 0, "
                "or of 0.01 to 100, and a top-k of 0 (all tokens) or more"
            )
        self._temperature = np.float32(temperature)
        self._top_k = top_k
        self._state = seed & _MASK

    def choose(self, scores: Array, scale: float = 1.0) -> int:
        """The index of a score. Integers times ``scale`` are the real scores."""
        flat = scores.ravel()
        numbers = np.flatnonzero(flat == flat)  # not those that are NaN
        best = int(numbers[flat[numbers].argmax()]) if numbers.size else 0
        if self._temperature == 0:
            return best
        # Exact in 64 bits, and one rounding in float32.
        wide = flat if flat.dtype == np.float32 else flat.astype(np.int64)
        with np.errstate(over="ignore", invalid="ignore"):
            factor = np.float32(np.float32(scale) * _PARTS_OF_E) / self._temperature
            parts = (wide[best] - wide).astype(np.float32) * factor
        below = np.where(parts < _LARGEST, parts, _LARGEST).astype(np.int64)
        below[best] = 0  # also if its score is not finite
        weights = np.where(self._kept(below), _power(below), 0)
        sums = np.cumsum(weights)
        drawn = self._random() * int(sums[-1]) >> 32
        return int(np.searchsorted(sums, drawn, "right"))

    def _kept(self, below: Array) -> Array:
        """Which scores are of the ``top_k`` best; of equals, the first."""
        kept = np.zeros(below.size, bool)
        kept[np.argsort(below, kind="stable")[: self._top_k or None]] = True
        return kept

    def _random(self) -> int:
        """32 bits: a counter whose bits are mixed (splitmix32)."""
        self._state = (self._state + 0x9E3779B9) & _MASK
        mixed = self._state ^ self._state >> 16
        mixed = mixed * 0x21F0AAAD & _MASK
        mixed ^= mixed >> 15
        mixed = mixed * 0x735A2D97 & _MASK
        return mixed ^ mixed >> 15


def _power(below: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """65536 * 2^(-below / _PARTS), rounded down.

    A cubic stands for 2^-x: exact at 0 and 1, and fitted between them to 0.015 %.
    """
    x = below % _PARTS * 32  # 16 bits of fraction
    slope = 45_324 - ((15_149 - (x * 2_593 >> 16)) * x >> 16)
    power: npt.NDArray[np.int64] = (65_536 - (slope * x >> 16)) >> below // _PARTS
    return power


class Step(NamedTuple):
    """A step, or a block of them: the last token that it read, the next one, and what it took."""

    token: int
    following: int
    ticks: int
    tokens: int = 1  # that it read


def check_writer(compiled: CompiledModel, vocabulary: Vocabulary) -> None:
    """ModelError for a model that does not read a token, and perhaps its position, and score all.

    It has one or two inputs of one integer each, and one output: a score of each piece. A block
    takes several tokens, and perhaps the position of the first one or of each.
    """
    inputs, outputs = compiled.step_inputs, compiled.outputs
    takes = [(one.dtype in _INTEGERS and np.prod(one.shape) == 1) for one in inputs]
    if not 1 <= len(takes) <= 2 or not all(takes) or len(outputs) != 1:
        raise ModelError(
            f"{compiled.name} does not write: a model that does takes a token and its position, "
            "an int32 or int64 each, and has one output; export one step of it"
        )
    blocks = compiled.block_inputs
    sizes = [int(np.prod(one.shape)) for one in blocks]
    is_usual = len(blocks) == len(inputs) and all(one.dtype in _INTEGERS for one in blocks)
    if blocks and not (is_usual and all(one in (1, sizes[0]) for one in sizes)):
        raise ModelError(
            f"{compiled.name} has a block of steps that takes no tokens with positions; export "
            "it with a token for each step, and with the first position or all"
        )
    if np.prod(outputs[0].shape) != len(vocabulary.pieces):
        raise ModelError(
            f"{compiled.name} scores {np.prod(outputs[0].shape):,} tokens, and its vocabulary has "
            f"{len(vocabulary.pieces):,} pieces; give the vocabulary that it was trained with"
        )


def write(
    model: DeviceModel, vocabulary: Vocabulary, begin: Sequence[int], sampler: Sampler
) -> Iterator[Step]:
    """The runs of a text that begins with these tokens, as each is done.

    Blocks take what they can of the tokens in front of the last one; steps take the others. It ends
    with the token ``end``, or when the cache is full. The state of the model is cleared before it.
    """
    check_writer(model.compiled, vocabulary)
    inputs, output = model.compiled.step_inputs, model.compiled.outputs[0]
    model.reset_state()
    taken = 0
    blocks = model.compiled.block_inputs
    size = int(np.prod(blocks[0].shape)) if blocks else len(begin)
    while taken + size < len(begin):
        places = np.arange(taken, taken + size)
        given = [
            np.resize(np.asarray(value, one.dtype), one.shape)
            for value, one in zip((begin[taken : taken + size], places), blocks, strict=False)
        ]
        ticks = model.prefill(given)
        taken += size
        yield Step(begin[taken - 1], begin[taken], ticks, size)
    token = begin[taken]
    for position in range(taken, vocabulary.length):
        values = zip((token, position), inputs, strict=False)
        arrays = [np.full(one.shape, value, one.dtype) for value, one in values]
        (scores,), ticks = model.step(arrays)
        if position + 1 < len(begin):
            following = begin[position + 1]
        else:
            following = sampler.choose(scores, output.scale or 1.0)
        yield Step(token, following, ticks)
        if following == vocabulary.end:
            return
        token = following
