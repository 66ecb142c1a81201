"""FULLY_CONNECTED, and CONV_2D of 1x1, with packed weights (``packing.py``).

A routine computes the sums of all outputs of a pixel, or of a row of the batch. A second one makes
outputs of them. Zeros add nothing to a sum, and the input's zero point is in the bias.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np

from utvm_deploy.graph.attributes import Convolution, FullyConnected
from utvm_deploy.graph.model import Array, Graph, Operator
from utvm_deploy.graph.shapes import input_tensor
from utvm_deploy.kernels.contract.c_texts import shared_text
from utvm_deploy.kernels.contract.call import ConstantArgument, KernelCall
from utvm_deploy.kernels.contract.driver import Driver, Index, Operand
from utvm_deploy.kernels.contract.strategy import Choices, Layer, Strategy, Wish
from utvm_deploy.kernels.native.dense import SCALE_WORDS, pack_scales
from utvm_deploy.kernels.native.layer_tables import convolution_tables, dense_tables
from utvm_deploy.kernels.native.sparse.packing import (
    BITMAP,
    FORMS,
    ITEMS,
    LANES,
    VECTORS,
    WORD_BITS,
    Packed,
    packed,
    smallest,
)
from utvm_deploy.kernels.native.sparse.sums_code import (
    TILE,
    has_vectors,
    outputs_cycles,
    pixels_text,
    sums_cycles,
    sums_text,
)
from utvm_deploy.records.candidate import SPARSE, Candidate

#: Counts of a row have 16 bits, and sums of that many products have 32.
_MOST_INPUTS = 65_535
_KINDS = ("CONV_2D", "FULLY_CONNECTED")


@dataclass(frozen=True)
class SparseChoices(Choices):
    """The form of the weights; the smallest one without a choice."""

    form: str = ""


@dataclass(frozen=True)
class SparseLayer:
    """Shape parameters; ``stored`` are the packed weights, ``scales`` is 1 or the outputs."""

    pixels: int  # of all images, or rows of the batch
    inputs: int
    outputs: int
    scales: int
    form: str
    stored: int
    is_dense: bool

    @property
    def name(self) -> str:
        kind = "fully_connected" if self.is_dense else "conv2d_1x1"
        channel = "_per_channel" if self.is_dense and self.scales > 1 else ""
        shape = f"n{self.pixels}_{self.inputs}x{self.outputs}{channel}"
        return f"{kind}_{shape}_{self.form}_{self.stored}"

    @property
    def why(self) -> str:
        zeros = 1 - self.stored / (self.inputs * self.outputs)
        blocks = {"blocks": "blocks of four", VECTORS: "gathered blocks of four"}
        what = {BITMAP: "a bitmap", **blocks, "list": "a list"}[self.form]
        return f"{zeros:.0%} of the weights are neither stored nor multiplied, by {what}"

    @property
    def scratch(self) -> tuple[Operand, ...]:
        return (Operand("sums", (self.outputs, self.tiles[0][2]), "int32"),)

    @property
    def _activations(self) -> tuple[Operand, Operand]:
        source = Operand("source", (self.pixels, self.inputs), "int8")
        return source, Operand("output", (self.pixels, self.outputs), "int8")

    @property
    def tables(self) -> tuple[Operand, ...]:
        """Constant tables, in the order of the arguments."""
        bias = (Operand("bias", (self.outputs,), "int32"),) if self.is_dense else ()
        scaling = Operand("scaling", (self.scales * SCALE_WORDS,), "int32")
        rest = *bias, scaling, Operand("limits", (2,), "int32")
        weights = Operand("weights", (self.stored,), "int8")
        if self.form == BITMAP:
            words = self.outputs * -(-self.inputs // WORD_BITS)
            return weights, Operand("steps", (words,), "uint32"), *rest
        items = self.stored // ITEMS[self.form] + (LANES if self.form == VECTORS else 0)
        steps = Operand("steps", (items,), "uint8")
        return weights, steps, Operand("counts", (self.outputs,), "uint16"), *rest

    @property
    def parameters(self) -> tuple[Operand, ...]:
        source, output = self._activations
        return source, *self.tables, output

    @property
    def tiles(self) -> tuple[tuple[int, int, int], ...]:
        """Pixels whose sums are computed at once: the first, how often, and how many."""
        whole = 0 if self.form == VECTORS else self.pixels // TILE
        rest = self.pixels - TILE * whole
        tiles = ((0, whole, TILE), (TILE * whole, rest, 1))
        return tuple(one for one in tiles if one[1])

    def texts(self, core: str) -> tuple[str, ...]:
        sums = (sums_text(core, self.form, pixels) for _, _, pixels in self.tiles)
        if self.is_dense:
            return (*sums, *map(shared_text, ("utvm_scale_wide", "utvm_sparse_dense")))
        outputs = (pixels_text(core, pixels) for _, _, pixels in self.tiles)
        return (*sums, shared_text("utvm_scale"), *outputs)

    def cycles_on(self, core: str) -> float:
        """About the cycles of a call."""
        items = self.stored // ITEMS.get(self.form, 1)
        sums = sum(
            count * sums_cycles(core, self.form, pixels, items, self.outputs)
            for _, count, pixels in self.tiles
        )
        return sums + outputs_cycles(self.pixels * self.outputs, is_dense=self.is_dense)

    def drive(self, c: Driver) -> None:
        for first, count, pixels in self.tiles:
            with c.loop("tile", count) as tile:
                self._tile(c, tile * pixels + first, pixels)

    def _tile(self, c: Driver, first: Index, pixels: int) -> None:
        source, output = self._activations
        stored = [one.at() for one in self.tables]
        split = next(n for n, one in enumerate(self.tables) if one.name in ("bias", "scaling"))
        (sums,) = self.scratch
        words = (-(-self.inputs // WORD_BITS),) if self.form == BITMAP else ()
        given = (source.at(first), *stored[:split], *words, self.outputs, sums.at(), self.inputs)
        c.call(f"utvm_sparse_{self.form}_{pixels}", *given)
        if not self.is_dense:
            given = (sums.at(), *stored[split:], output.at(first), self.outputs, self.outputs)
            c.call(f"utvm_sparse_pixels_{pixels}", *given)
            return
        with c.loop("pixel", pixels) as pixel:
            tables = (sums.at(0, pixel), *stored[split:], output.at(first + pixel))
            step = SCALE_WORDS if self.scales > 1 else 0
            c.call("utvm_sparse_dense", *tables, self.outputs, pixels, step)


def build_sparse(layer: Layer, wish: Wish) -> KernelCall | str:
    """The call instead of the portable one, or why there is none; empty where few are zeros."""
    choices = SparseChoices.read(wish.candidate)
    if isinstance(choices, str):
        return choices
    weights = packable(layer.graph, layer.operator)
    is_dense = layer.kind == "FULLY_CONNECTED"
    gathers = is_dense and has_vectors(layer.core)
    best = None if weights is None else smallest(weights, gathers=gathers)
    if weights is None or best is None:
        return ""
    forms = (*FORMS, VECTORS) if gathers else FORMS
    if choices.form not in ("", *forms):
        return f"there is no form {choices.form!r}; the forms are: {', '.join(forms)}"
    found = packed(weights, choices.form) if choices.form else best
    if found is None:
        return f"rows of {weights.shape[1]} weights have no whole {choices.form}"
    return _dense_call(layer, found) if is_dense else _pixels_call(layer, found)


def packable(graph: Graph, operator: Operator) -> Array | None:
    """The weights [outputs, inputs] of an int8 layer whose zeros could be left out, or None."""
    attributes = operator.attributes
    if operator.kind not in _KINDS or not isinstance(attributes, Convolution | FullyConnected):
        return None
    source, weights = (input_tensor(graph, operator, n) for n in (0, 1))
    types = source.dtype, weights.dtype, graph.tensors[operator.outputs[0]].dtype
    if weights.data is None or {*types} != {"int8"}:
        return None
    if isinstance(attributes, Convolution):
        is_whole = weights.shape[3] == source.shape[3]
        # Its own padding, such as that of a PAD before it, makes more pixels.
        is_plain = attributes.strides == (1, 1) and not any(attributes.padding)
        if weights.shape[1:3] != (1, 1) or not (is_whole and is_plain):
            return None
    found = weights.data.reshape(weights.shape[0], -1)
    return found if found.shape[1] <= _MOST_INPUTS else None


def sparse_candidates(layer: Layer) -> tuple[Candidate, ...]:
    """The forms of a layer, the smallest first."""
    forms = (SparseChoices(), *map(SparseChoices, (*FORMS, VECTORS)))
    found: dict[object, Candidate] = {}
    for one in (choices.candidate(SPARSE) for choices in forms):
        call = build_sparse(layer, Wish(one))
        if isinstance(call, KernelCall):
            found.setdefault(call.kernel, one)
    return tuple(found.values())


def _dense_call(layer: Layer, found: Packed) -> KernelCall | str:
    tables = dense_tables(layer)
    if isinstance(tables, str):
        return tables
    outputs, inputs = tables.weights.shape
    scaling = pack_scales(tables, outputs)
    sizes = (tables.batch, inputs, outputs, scaling["scaling"].size // SCALE_WORDS)
    kernel = SparseLayer(*sizes, found.form, found.weights.size, is_dense=True)
    rest = {"bias": tables.bias.astype(np.int32), **scaling}
    return _call(layer.portable, kernel, found, rest)


def _pixels_call(layer: Layer, found: Packed) -> KernelCall | str:
    tables = convolution_tables(layer)
    scaling = tables.short_scaling()
    if isinstance(scaling, str):
        return scaling
    outputs, inputs = layer.result.shape[3], layer.source.shape[3]
    sizes = (math.prod(layer.result.shape[:3]), inputs, outputs, outputs)
    kernel = SparseLayer(*sizes, found.form, found.weights.size, is_dense=False)
    rows = np.stack(scaling, axis=1).astype(np.int32)
    rest = {"scaling": rows.reshape(-1), "limits": np.array(tables.limits, np.int32)}
    return _call(layer.portable, kernel, found, rest)


def _call(
    call: KernelCall, kernel: SparseLayer, found: Packed, rest: Mapping[str, Array]
) -> KernelCall:
    counts = {} if found.form == BITMAP else {"counts": found.counts}
    tables = {"weights": found.weights, "steps": found.steps, **counts, **rest}
    constants_of = (ConstantArgument(name, data) for name, data in tables.items())
    source, *_, output = call.arguments
    return replace(
        call,
        kernel=kernel,
        arguments=(source, *constants_of, output),
        products=kernel.pixels * kernel.stored,
    )


SPARSE_STRATEGIES = (Strategy(_KINDS, build_sparse, sparse_candidates),)
