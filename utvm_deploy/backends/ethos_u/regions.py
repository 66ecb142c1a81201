"""Regions of a model for an Ethos-U: from the model's file to Vela, and what comes back as a call.

Vela gets the operators as the file has them, with the region's inputs and outputs as its own. So
Vela's rules decide, and not what our passes made of the operators.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path

import numpy as np

from utvm_deploy.backends.calls import call
from utvm_deploy.backends.ethos_u.check import SCRATCH, NpuProgram, checked
from utvm_deploy.backends.ethos_u.configurations import OPTION, Configuration
from utvm_deploy.backends.ethos_u.dense import exact_multipliers, with_exact_dense
from utvm_deploy.backends.ethos_u.vela import (
    Estimate,
    VelaRefuses,
    compiled_by_vela,
    refused_by_vela,
)
from utvm_deploy.backends.interface import Backend, CText, Match, StaticLibrary
from utvm_deploy.base.errors import CompileError
from utvm_deploy.frontend.files.tflite_cut import only_operators
from utvm_deploy.frontend.tflite import load_model, tflite_bytes
from utvm_deploy.graph.model import Graph, Tensor
from utvm_deploy.kernels.contract.call import ConstantArgument, KernelCall
from utvm_deploy.kernels.contract.operation import Operation
from utvm_deploy.records.candidate import PLUGIN_PREFIX

_DENSE = "FULLY_CONNECTED"
#: The operators of which an interpreter of streams gave the bytes of LiteRT (tests/ethos_u).
KINDS = frozenset(
    (
        *(
            _DENSE,
            "CONV_2D",
            "DEPTHWISE_CONV_2D",
            "TRANSPOSE_CONV",
            "AVERAGE_POOL_2D",
            "MAX_POOL_2D",
        ),
        *("ADD", "SUB", "MUL", "MINIMUM", "MAXIMUM", "ABS", "PRELU", "LEAKY_RELU", "HARD_SWISH"),
        *("LOGISTIC", "TANH", "RELU", "RELU6", "RELU_N1_TO_1", "RELU_0_TO_1", "SOFTMAX"),
        *("QUANTIZE", "RESHAPE", "TRANSPOSE", "CONCATENATION", "SPLIT"),
    )
)
_MOST_DIMENSIONS = 4
#: Their outputs are sums of products, and products.
_SUMMING, _MULTIPLYING = ("CONV_2D", "DEPTHWISE_CONV_2D", "TRANSPOSE_CONV"), ("MUL", "PRELU")
_WINDOWED = (*_SUMMING, "AVERAGE_POOL_2D", "MAX_POOL_2D")
#: Of inputs divided by the output's; an interpreter found other bytes from 2**16 on.
_MOST_SCALE = 2.0**15
#: Those that compute: a region without one has nothing for an NPU.
_COMPUTING = KINDS - {"RESHAPE", "TRANSPOSE", "CONCATENATION", "SPLIT"}
HEADER = "ethosu_driver.h"
#: What a program's own text needs of that header, for sources that are built without it.
_DECLARED = """\
struct ethosu_driver;
struct ethosu_driver *ethosu_reserve_driver(void);
int ethosu_invoke_v3(struct ethosu_driver *driver, const void *payload, const int bytes,
                     uint64_t *const bases, const size_t *sizes, const int count, void *user);
void ethosu_release_driver(struct ethosu_driver *driver);
"""
#: The same functions for images that only count cycles of the core: they do nothing.
_STAND_IN = """\
struct ethosu_driver;
static struct ethosu_driver *ethosu_reserve_driver(void)
{
    return (struct ethosu_driver *)(uintptr_t)1; // only null means that there is none
}
static int ethosu_invoke_v3(struct ethosu_driver *driver, const void *payload, int bytes,
                            uint64_t *bases, const size_t *sizes, int count, void *user)
{
    (void)driver, (void)payload, (void)bytes, (void)bases, (void)sizes, (void)count, (void)user;
    return 0;
}
static void ethosu_release_driver(struct ethosu_driver *driver)
{
    (void)driver;
}
"""
FUNCTION = "ethosu_invoke_v3"
_ALIGNMENT = 16
#: The status where the driver gives no NPU.
_NO_DRIVER = -2


@dataclass(eq=False)
class Regions:
    """The model's file, and what Vela says of it. Each is asked once."""

    path: Path
    configuration: Configuration
    header: str  # of the driver; empty: the sources declare what they call
    # By the inputs and outputs of a region: its last operator alone has the same outputs.
    made: dict[tuple[tuple[int, ...], ...], tuple[NpuProgram, Estimate] | str] = field(
        default_factory=dict
    )
    dense: dict[tuple[int, ...], Mapping[bytes, bytes] | None] = field(default_factory=dict)

    @cached_property
    def _data(self) -> bytes:
        return tflite_bytes(self.path)

    @cached_property
    def _file(self) -> Graph:
        """The file's operators and tensors, before any pass."""
        return load_model(self.path, is_quiet=True)

    @cached_property
    def _refused(self) -> frozenset[str]:
        try:
            return refused_by_vela(self._data, self.path.name, self.configuration)
        except VelaRefuses:
            return frozenset()  # it may take regions

    def _exact(self, operation: Operation) -> Mapping[bytes, bytes] | None:
        """Of a fully connected layer: the multipliers that it gets; None if it stays here."""
        sources = set(operation.operator.sources)
        (found,) = (
            one for one in self._file.operators if one.kind == _DENSE and sources & set(one.sources)
        )
        key = found.sources
        if key not in self.dense:
            is_known = self.configuration.product != "u85" and found.inputs[1] is not None
            layer = Operation(self._file, found)
            constant = is_known and layer.input(1).data is not None
            self.dense[key] = exact_multipliers(layer) if constant else None
        return self.dense[key]

    def covers(self, operation: Operation) -> bool:
        """Whether an operator of int8 may be a part of a region."""
        tensors = operation.graph.tensors
        ends = (*operation.operator.inputs[:1], *operation.operator.outputs)
        return (
            operation.operator.kind in KINDS
            # Of five dimensions, Vela 5.2.0 broadcasts the wrong elements.
            and all(
                number is None or len(tensors[number].shape) <= _MOST_DIMENSIONS
                for number in (*operation.operator.inputs, *operation.operator.outputs)
            )
            and all(number is not None and tensors[number].dtype == "int8" for number in ends)
            and all(tensors[n].name not in self._refused for n in operation.operator.outputs)
            and (operation.operator.kind != _DENSE or self._exact(operation) is not None)
            and _stays_in_32_bits(operation)
            and not (self.configuration.product == "u85" and _has_batch(operation))
        )

    def build(self, match: Match) -> KernelCall | str:
        """The driver's call for a region, or why there is none."""
        if not any(one.kind in _COMPUTING for one in match.operators):
            return "nothing in it computes"
        if match.states:
            return "a state is kept in it"
        ends = match.inputs, match.outputs
        if ends not in self.made:
            self.made[ends] = self._compiled(match)
        made = self.made[ends]
        return made if isinstance(made, str) else self._call(match, *made)

    def _compiled(self, match: Match) -> tuple[NpuProgram, Estimate] | str:
        inputs, outputs = (self._sources(match, one) for one in (match.inputs, match.outputs))
        if isinstance(inputs, str) or isinstance(outputs, str):
            return str(inputs if isinstance(inputs, str) else outputs)
        operators = _between(self._file, inputs, outputs)
        if isinstance(operators, str):
            return operators
        data = only_operators(self._data, operators, inputs, outputs)
        try:
            program, estimate = compiled_by_vela(data, match.kind, self.configuration)
            exact = self._with_exact_dense(match, program)
            if exact is None:
                return "its fully connected layers are not found in what Vela made"
            program = exact
            checked(program)
        except CompileError as error:
            return str(error)
        tensors = match.graph.tensors
        ends = (*match.inputs, *match.outputs)
        wanted = [(SCRATCH, tensors[number].size_bytes) for number in ends]
        places = (*program.inputs, *program.outputs)
        if [(place.region, place.size_bytes) for place in places] != wanted:
            return "Vela gives it other inputs or outputs than the file"
        if self.configuration.cache and program.cache_bytes > self.configuration.cache_limit:
            return (
                f"its cache of {program.cache_bytes:,} bytes does not fit "
                f"{self.configuration.memory}"
            )
        return program, estimate

    def _with_exact_dense(self, match: Match, program: NpuProgram) -> NpuProgram | None:
        dense = [one for one in match.operations if one.operator.kind == _DENSE]
        found = [self._exact(one) for one in dense]
        known = [one for one in found if one is not None]
        if not known:
            return program
        channels = sum(one.input(1).shape[0] for one in dense)
        return with_exact_dense(program, checked(program), known, channels)

    def _sources(self, match: Match, numbers: Sequence[int]) -> list[int] | str:
        """Positions in the file of a region's inputs or outputs."""
        found = []
        for number in numbers:
            tensor: Tensor = match.graph.tensors[number]
            if tensor.source is None or tensor.channels or tensor.rows or tensor.dtype != "int8":
                return f"its end {tensor.name!r} is not a tensor of int8 as the file has it"
            found.append(tensor.source)
        return found

    def _call(self, match: Match, program: NpuProgram, estimate: Estimate) -> KernelCall:
        made = call(
            match,
            FUNCTION,
            _body(program),
            header=self.header,
            tables={
                "commands": np.frombuffer(program.payload, np.uint8),
                # Even a region without weights has an address of some.
                "weights": np.frombuffer(program.weights or bytes(_ALIGNMENT), np.uint8),
            },
            scratch_bytes=_cache_offset(program)
            + (0 if self.configuration.cache else program.cache_bytes)
            + _ALIGNMENT,
        )
        aligned = (
            replace(one, alignment=_ALIGNMENT) if isinstance(one, ConstantArgument) else one
            for one in made.arguments
        )
        cache = self.configuration.memory or "the arena"
        why = (
            f"Vela's estimate: {estimate.cycles:,} cycles of the NPU (at "
            f"{estimate.clock_hz / 1e6:g} MHz, {estimate.system}); nobody measured them"
        )
        if program.cache_bytes:
            why += f"; its cache of {program.cache_bytes:,} bytes is in {cache}"
        return replace(made, arguments=tuple(aligned), why_not=why, npu_cycles=estimate.cycles)


def _has_batch(operation: Operation) -> bool:
    """Whether it has windows on several images.

    For U85, Vela 5.2.0 reads other bytes than the second image of some pools.
    """
    return operation.operator.kind in _WINDOWED and operation.result.shape[0] > 1


def _stays_in_32_bits(operation: Operation) -> bool:
    """Whether LiteRT's numbers do: it shifts them left for large scales, and those of an NPU stay.

    Sums of products may have 32 bits before that, and products of two bytes have 16.
    """
    kind, graph = operation.operator.kind, operation.graph
    if kind in _SUMMING:
        return all(one < 1 for one in operation.scales(operation.result.shape[-1]))
    given, made = (
        [
            max(one.scales)
            for one in (graph.tensors[i].quantization for i in ends if i is not None)
            if one
        ]
        for ends in (operation.operator.inputs, operation.operator.outputs)
    )
    largest = math.prod(given) if kind in _MULTIPLYING else max(given, default=0.0)
    return largest < _MOST_SCALE * min(made, default=math.inf)


def _between(graph: Graph, inputs: Sequence[int], outputs: Sequence[int]) -> frozenset[int] | str:
    """The file's operators that make these outputs of these inputs; both are file positions."""
    number_of = {one.source: number for number, one in enumerate(graph.tensors)}
    makers = {number: one for one in graph.operators for number in one.outputs}
    ends = {number_of[source] for source in inputs}
    waiting, found = [number_of[source] for source in outputs], set[int]()
    while waiting:
        number = waiting.pop()
        if number in ends or graph.tensors[number].data is not None:
            continue
        if number not in makers:
            return f"it also reads {graph.tensors[number].name!r}"
        maker = makers[number]
        if not found.issuperset(maker.sources):
            found.update(maker.sources)
            waiting += [one for one in maker.inputs if one is not None]
    return frozenset(found)


def _cache_offset(program: NpuProgram) -> int:
    """Where a cache in the arena begins, after the scratch."""
    return program.scratch_bytes + (
        -program.scratch_bytes % _ALIGNMENT if program.cache_bytes else 0
    )


def _body(program: NpuProgram) -> str:
    """The statements: inputs into the scratch, the driver, and the outputs out of it."""
    bases, cache = ["(uintptr_t)weights", "(uintptr_t)memory"], program.configuration.cache
    if program.cache_bytes:
        bases.append(
            f"{cache[0]:#x}u" if cache else f"(uintptr_t)memory + {_cache_offset(program)}"
        )
    sizes = ", ".join(map(str, program.region_bytes.values()))
    lines = [
        f"uint8_t *memory = (uint8_t *)scratch + (-(uintptr_t)scratch & {_ALIGNMENT - 1}u);",
        f"uint64_t bases[] = {{{', '.join(bases)}}};",
        f"const size_t sizes[] = {{{sizes}}};",
        *(
            f"memcpy(memory + {one.offset}, input_{index}, {one.size_bytes});"
            for index, one in enumerate(program.inputs)
        ),
        "struct ethosu_driver *driver = ethosu_reserve_driver();",
        f"if (!driver) {{ return {_NO_DRIVER}; }}",
        f"int status = {FUNCTION}(driver, commands, {len(program.payload)}, bases, sizes, "
        f"{len(bases)}, NULL);",
        "ethosu_release_driver(driver);",
        *(
            f"memcpy(output_{index}, memory + {one.offset}, {one.size_bytes});"
            for index, one in enumerate(program.outputs)
        ),
        "return status;",
    ]
    return "\n".join(lines)


def ethos_u_backend(
    configuration: Configuration, driver: Path | None, text: str = _DECLARED
) -> Backend:
    """The backend, which covers nothing before it has a model's file.

    ``driver`` is a folder with the driver's headers and library; CompileError if it has not.
    Without it, ``text`` is the C of what is called.
    """

    def of_file(path: Path) -> Backend:
        regions = Regions(path, configuration, HEADER if driver else "")
        return replace(backend, covers=regions.covers, build=regions.build)

    digest = hashlib.sha256(f"{configuration}{text}".encode()).hexdigest()
    backend = Backend(
        name=configuration.label,
        patterns=(),
        code=CText(text) if driver is None else _library_in(driver),
        of_file=of_file,
        is_bus_master=True,
        url="https://gitlab.arm.com/artificial-intelligence/ethos-u/ethos-u-core-driver",
        digest=digest,
        built_with="Vela",
        family=PLUGIN_PREFIX + configuration.name,
        origin=OPTION + configuration.text,
        stand_in=ethos_u_backend(configuration, None, _STAND_IN)
        if driver is None and text is _DECLARED
        else None,
    )
    return backend


def _library_in(folder: Path) -> StaticLibrary:
    headers = sorted(folder.rglob(HEADER))
    libraries = sorted(folder.rglob("libethosu_core_driver.a"))
    if not headers or not libraries:
        missing = "libethosu_core_driver.a" if headers else HEADER
        raise CompileError(
            f"{folder} has no {missing}; give --ethos-u-driver the folder of ethos-u-core-driver "
            "with a build for the board's core"
        )
    return StaticLibrary(libraries[0], (headers[0].parent,))
