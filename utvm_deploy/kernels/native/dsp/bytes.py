"""Copies, sums and extrema by words, on cores with the DSP extension.

Elsewhere, the compiler's code for the portable kernels is often faster: Helium's vectors are wider,
and other cores take more instructions for the bytes of a word.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import ClassVar

from utvm_deploy.graph.element_type import element_type
from utvm_deploy.kernels.contract.c_texts import bytes_texts, shared_text
from utvm_deploy.kernels.contract.call import KernelCall
from utvm_deploy.kernels.contract.driver import Driver, KernelParameter, Operand, buffers
from utvm_deploy.kernels.contract.routine_call import CRoutine
from utvm_deploy.kernels.contract.strategy import Layer, Wish
from utvm_deploy.kernels.native.dsp.assembly.shared_blocks import helper
from utvm_deploy.kernels.portable.integers.pool import Pool2D
from utvm_deploy.kernels.portable.integers.reductions import Mean, ReducedExtremum, SumOfBytes
from utvm_deploy.kernels.portable.movement import Joined
from utvm_deploy.targets.table import CORES, target_of

#: Elements of a sum, for whose few words a routine takes longer than a loop.
_FEW = 8
#: Bytes of a row for which the C library's copy is faster.
_LARGE = 64
#: Bytes of a row, on average, from which Helium's loop pays; the compiler's code has none for few.
_LOOPED = 20


@dataclass(frozen=True)
class JoinedRows:
    """Rows of several inputs, one after the other; each line of a cache is filled once."""

    joined: Joined

    scratch: ClassVar[tuple[Operand, ...]] = ()

    @property
    def name(self) -> str:
        return f"{self.joined.name}_dsp"

    @property
    def why(self) -> str:
        return f"copy by blocks of 16 bytes, row by row of {len(self.joined.sizes)} inputs"

    @property
    def parameters(self) -> tuple[Operand, ...]:
        return *self._sources, self._output

    def texts(self, core: str) -> tuple[str, ...]:
        return bytes_texts(core)

    def drive(self, c: Driver) -> None:
        with c.loop("row", self.joined.rows) as row:
            start = 0
            for source in self._sources:
                to, count = f"(int8_t *)({self._output.at(row, start)})", source.shape[1]
                size = element_type(source.dtype).size_bytes(count)
                c.call("utvm_bytes_copy", to, f"(const int8_t *)({source.at(row)})", size)
                start += count

    @property
    def _sources(self) -> list[Operand]:
        rows, dtype = self.joined.rows, self.joined.dtype
        sizes = enumerate(self.joined.sizes)
        return [Operand(f"input_{number}", (rows, size), dtype) for number, size in sizes]

    @property
    def _output(self) -> Operand:
        return Operand("output", (self.joined.rows, sum(self.joined.sizes)), self.joined.dtype)


def build_by_words(layer: Layer, wish: Wish) -> KernelCall | str:
    """The call of a routine for a CONCATENATION, a sum or an extremum, or why there is none."""
    call, kernel = layer.portable, layer.portable.kernel
    has_vectors = "mve" in target_of(layer.core).families_of(CORES[layer.core])
    if isinstance(kernel, Joined):
        sizes = [element_type(kernel.dtype).size_bytes(size) for size in kernel.sizes]
        fits = sum(sizes) >= _LOOPED * len(sizes) if has_vectors else max(sizes) < _LARGE
        return replace(call, kernel=JoinedRows(kernel)) if fits else ""
    if has_vectors:
        return ""
    if layer.operator.kind == "REDUCE_MAX" and isinstance(kernel, Pool2D) and kernel.channels == 1:
        # A maximum over the last dimension, whose limits are those of its type.
        around = (kernel.window.batch, kernel.window.height, 1)
        first, *_, last = call.arguments
        made = _reduction("utvm_extremum", (*around, 0), kernel.name, "int8")
        return replace(call, kernel=made, arguments=(first, last))
    if not isinstance(kernel, Mean | ReducedExtremum) or kernel.around is None:
        return ""
    numbers: tuple[int, ...] = kernel.around
    function = f"utvm_mean_{kernel.dtype}"
    if isinstance(kernel, ReducedExtremum):
        # With all bits flipped, the smaller value is the larger one.
        function, numbers = "utvm_extremum", (*numbers, 0 if kernel.takes_largest else -1)
    elif isinstance(kernel, SumOfBytes):
        function = "utvm_sum" if numbers[1] > _FEW else ""
    if (function, kernel.dtype) not in _ROUTINES:
        return ""
    return replace(call, kernel=_reduction(function, numbers, kernel.name, kernel.dtype))


def build_large_pool(layer: Layer, wish: Wish) -> KernelCall | str:
    """The call for averages over whole images of more pixels than sums of 16 bits allow."""
    call, kernel = layer.portable, layer.portable.kernel
    if not isinstance(kernel, Pool2D) or not kernel.is_average:
        return ""
    window, places = kernel.window, (kernel.window.output_height, kernel.window.output_width)
    is_whole = window.kernel == (window.height, window.width) and places == (1, 1)
    if window.is_padded or not is_whole:
        return ""
    numbers = (window.batch, window.height * window.width, kernel.channels)
    made = _reduction("utvm_average_images", numbers, kernel.name, kernel.dtype)
    return replace(call, kernel=made)


#: Function, and the type of its elements -> its parameters between input and output, and C texts.
_ROUTINES: Mapping[tuple[str, str], tuple[tuple[KernelParameter, ...], tuple[str, ...]]] = {
    ("utvm_average_images", "int8"): (
        ("low", "high"),
        ("utvm_word", "utvm_byte_sums", "utvm_pool_sums"),
    ),
    ("utvm_extremum", "int8"): ((), ("utvm_word",)),
    ("utvm_mean_int16", "int16"): (("offset", "multiplier", "shift", "zero_point"), ()),
    ("utvm_sum", "int8"): (
        (*buffers(ratio="float32", offset="float32"), "zero_point"),
        ("utvm_word", "utvm_byte_sums", "utvm_exact_float"),
    ),
}


def _reduction(function: str, numbers: tuple[int, ...], name: str, dtype: str) -> CRoutine:
    parameters, texts = _ROUTINES[function, dtype]
    first, last = buffers(input=dtype, output=dtype)
    return CRoutine(
        function,
        (first, *parameters, last),
        numbers,
        name=f"{name}_dsp",
        why="C, words of several elements at a time",
        c_texts=(*map(shared_text, texts), helper(function)),
    )
