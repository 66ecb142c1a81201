"""Firmware that speaks the serial protocol of MLPerf Tiny, with samples for the runner.

It is a project of a bare board whose ``main`` serves the consortium's runner instead of our
host. What a benchmark's runner loads, and which result it wants, is what the reference
implementations of mlcommons/tiny do (``benchmark/reference_submissions``).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from string import Template
from types import MappingProxyType

import numpy as np

from utvm_deploy.base.errors import BundleError
from utvm_deploy.base.paths import data_dir
from utvm_deploy.boards.board import Board
from utvm_deploy.compiler.c_text import c_type, float_literal
from utvm_deploy.compiler.compiled.model import Buffer, CompiledModel
from utvm_deploy.graph.model import Array
from utvm_deploy.project.fit import arena_room
from utvm_deploy.project.pools import placed_pools
from utvm_deploy.project.tree import PROJECT_FILE, project_files

MLPERF_TINY = "mlperf-tiny"
_BAUD_ENERGY = 9600  # what the consortium's interface board speaks
_TEMPLATES, _BARE = "mlperf_tiny", "baremetal"


@dataclass(frozen=True)
class Benchmark:
    """What the runner loads for a benchmark, and what it reads back."""

    form: str  # INPUT_BYTES: as the tensor has them; INPUT_PIXELS: uint8; INPUT_REAL: float32
    dtypes: tuple[str, ...]  # of the input tensors that this form can become
    is_error: bool = False  # the result is the mean squared error; else a score of each class


#: The benchmarks whose inputs come over the serial line. The streaming one has its audio by I2S.
BENCHMARKS: Mapping[str, Benchmark] = MappingProxyType(
    {
        "ad01": Benchmark("INPUT_REAL", ("int8", "float32"), is_error=True),
        "ic01": Benchmark("INPUT_PIXELS", ("int8", "uint8")),
        "kws01": Benchmark("INPUT_BYTES", ("int8", "uint8", "int16", "float32")),
        "vww01": Benchmark("INPUT_PIXELS", ("int8", "uint8")),
    }
)


def check_benchmark(name: str | None, board: Board) -> None:
    """BundleError for an unknown benchmark, and for a board that has no bare-metal image."""
    if name not in BENCHMARKS:
        said = "no benchmark is given" if name is None else f"no benchmark {name!r}"
        raise BundleError(f"{said}; give --benchmark {', '.join(BENCHMARKS)}")
    if board.template != _BARE:
        raise BundleError(
            f"firmware for MLPerf Tiny starts a bare chip, and {board.name} has the template "
            f"{board.template!r}; choose a board with the template {_BARE!r} (utvm boards)"
        )


def mlperf_files(
    compiled: CompiledModel,
    board: Board,
    benchmark: str,
    inputs: Sequence[Sequence[Array]],
    expected: Sequence[Sequence[Array]],
) -> dict[str, bytes]:
    """Path in the bundle -> bytes: the project, what the runner needs, and a dataset.

    The dataset has ``inputs[sample][0]``; its classes are those of ``expected``, so that the
    runner's accuracy is 100 %. Raises BundleError for a model that the benchmark cannot feed.
    """
    wanted = BENCHMARKS[benchmark]
    _check(compiled, benchmark, wanted)
    loaded = _loaded_bytes(compiled.inputs[0], wanted)
    taken = compiled.arena_bytes + loaded + compiled.inputs[0].size_bytes
    if taken > arena_room(board):
        raise BundleError(
            f"{compiled.name} with the input that the runner loads needs {taken:,} bytes of RAM, "
            f"and {board.name} has {arena_room(board):,} for them; use a board with more RAM"
        )
    files = project_files(compiled, board)
    # Our host would find another program behind the line.
    del files[PROJECT_FILE]
    for path in sorted((data_dir("templates") / _TEMPLATES).iterdir()):
        text = path.read_text(encoding="utf-8")
        if path.suffix == ".c":
            files[f"template/{path.name}"] = text
        else:
            files[path.name] = Template(text).substitute(_words(compiled, board, benchmark))
    files["template/benchmark.h"] = _header(compiled, board, benchmark, wanted)
    files["template/board_config.h"] = _with_energy(files["template/board_config.h"], board)
    files["CMakeLists.txt"] = _with_pin(files["CMakeLists.txt"])
    made = {path: text.encode() for path, text in files.items()}
    return made | _dataset(benchmark, wanted, compiled, inputs, expected)


def _check(compiled: CompiledModel, benchmark: str, wanted: Benchmark) -> None:
    name = compiled.name
    if compiled.external is not None:
        raise BundleError(
            f"{name} calls {compiled.external.name}, which the format {MLPERF_TINY!r} does not "
            "link; compile with our kernels"
        )
    if len(compiled.inputs) != 1 or len(compiled.outputs) != 1 or compiled.input_rows is not None:
        raise BundleError(
            f"MLPerf Tiny loads one whole input and reads one output, and {name} has "
            f"{len(compiled.taken)} and {len(compiled.outputs)}; compile it without --input-rows, "
            "or choose another format"
        )
    source, output = compiled.inputs[0], compiled.outputs[0]
    if source.dtype not in wanted.dtypes:
        raise BundleError(
            f"the benchmark {benchmark} cannot feed an input of {source.dtype}; it feeds "
            f"{' or '.join(wanted.dtypes)}"
        )
    if output.dtype not in ("int8", "uint8", "int16", "float32"):
        raise BundleError(f"the benchmark {benchmark} has no way to print {output.dtype}")
    if wanted.is_error and _elements(source) != _elements(output):
        raise BundleError(
            f"the benchmark {benchmark} compares outputs with inputs, and {name} has "
            f"{_elements(output)} and {_elements(source)}; give the benchmark of your model"
        )


def _elements(buffer: Buffer) -> int:
    return math.prod(buffer.shape)


def _loaded_bytes(source: Buffer, wanted: Benchmark) -> int:
    return 4 * _elements(source) if wanted.form == "INPUT_REAL" else source.size_bytes


def _words(compiled: CompiledModel, board: Board, benchmark: str) -> dict[str, str]:
    """What the texts for the user say, by placeholder."""
    return {
        "name": compiled.name,
        "board": board.name,
        "benchmark": benchmark,
        "baud": str(board.link.baud),
        "baud_energy": str(_BAUD_ENERGY),
        "time": "modelled cycles, never measured on silicon"
        if board.has_cycle_model
        else "instructions of the emulator"
        if board.emulator is not None
        else "ticks of its timer",
        "usb": "\n".join(f"    0x{one.vendor:04x}: 0x{one.product:04x}" for one in board.probe.usb)
        or "    # the identifiers of the board's serial port, as VENDOR: PRODUCT",
    }


def _header(compiled: CompiledModel, board: Board, benchmark: str, wanted: Benchmark) -> str:
    """``benchmark.h``: the model and the benchmark, for main.c."""
    source, output = compiled.inputs[0], compiled.outputs[0]
    pools = placed_pools(compiled, board)
    places = ", ".join(f"(uint8_t *)0x{pool.address:08x}u" for pool in pools)
    start = [f"{compiled.load_function}({places})"] if compiled.load_function else []
    if compiled.states:
        start.append(f"{compiled.name}_reset(arena)")
    is_real, is_float = wanted.form == "INPUT_REAL", source.dtype == "float32"
    # A tensor that needs no change is copied.
    form = "INPUT_BYTES" if source.dtype == "uint8" or (is_real and is_float) else wanted.form
    time = ", modelled time" if board.has_cycle_model else ""
    output_at = f"(const void *){_place(compiled, board, output)}"
    lines = [
        f"// {compiled.name} as MLPerf Tiny's benchmark {benchmark}.",
        "//",
        "// SPDX-License-Identifier: Apache-2.0",
        "",
        "#ifndef BENCHMARK_H",
        "#define BENCHMARK_H",
        "",
        f'#include "{compiled.name}.h"',
        "",
        f'#define MLPERF_BENCHMARK "{benchmark}"',
        f'#define MLPERF_NAME "{board.name}{time}"',
        "",
        "#define INPUT_BYTES 0",
        "#define INPUT_PIXELS 1",
        "#define INPUT_REAL 2",
        f"#define INPUT_FORM {form}",
        f"#define INPUT_ELEMENTS {_elements(source)}u",
        f"#define LOADED_BYTES {_loaded_bytes(source, wanted)}u",
        f"#define RESULT_IS_ERROR {int(wanted.is_error)}",
        "",
        f"#define MODEL_RUN {compiled.run_function}",
        f"#define MODEL_ARENA_BYTES {compiled.arena_bytes}u",
        f"#define MODEL_ARENA_ALIGNMENT {compiled.arena_alignment}u",
        f"#define MODEL_POOLS {''.join(f', 0x{pool.address:08x}u' for pool in pools)}".rstrip(),
        f"#define MODEL_START(arena) {', '.join(start) or '(void)(arena)'}",
        f"#define MODEL_INPUT(arena) {_place(compiled, board, source)}",
        f"#define MODEL_INPUT_BYTES {source.size_bytes}u",
        f"#define MODEL_OUTPUT(arena) ((const {c_type(output.dtype)} *){output_at})",
        f"#define MODEL_OUTPUT_ELEMENTS {_elements(output)}u",
        f"#define MODEL_OUTPUT_IS_FLOAT {int(output.dtype == 'float32')}",
        *_quantization("INPUT", source),
        *_quantization("OUTPUT", output),
        "",
        "#endif",
        "",
    ]
    return "\n".join(lines)


def _place(compiled: CompiledModel, board: Board, buffer: Buffer) -> str:
    """The C expression of a tensor's first byte."""
    if not buffer.pool:
        return f"((arena) + {buffer.offset}u)"
    names = [pool.name for pool in compiled.pools]
    placed = placed_pools(compiled, board)[names.index(buffer.pool)]
    return f"((uint8_t *)0x{placed.address + buffer.offset:08x}u)"


def _quantization(which: str, buffer: Buffer) -> list[str]:
    if buffer.scale is None:
        return []
    return [
        f"#define MODEL_{which}_SCALE {float_literal(buffer.scale)}",
        f"#define MODEL_{which}_ZERO_POINT ({buffer.zero_point})",
    ]


def _with_energy(config: str, board: Board) -> str:
    """``board_config.h`` with the baud rate of an energy measurement, too."""
    line = f"#define BOARD_UART_BAUD {board.link.baud}u\n"
    assert config.count(line) == 1
    return config.replace(
        line, f"#if MLPERF_ENERGY\n#define BOARD_UART_BAUD {_BAUD_ENERGY}u\n#else\n{line}#endif\n"
    )


def _with_pin(cmake: str) -> str:
    """``CMakeLists.txt`` with the pin's source and the option ENERGY."""
    main, include = "  template/main.c\n", "target_include_directories(image PRIVATE"
    assert cmake.count(main) == 1 and cmake.count(include) == 1
    option = 'option(ENERGY "mark times by a pin for an energy monitor" OFF)\n'
    define = "target_compile_definitions(image PRIVATE MLPERF_ENERGY=$<BOOL:${ENERGY}>)\n"
    with_source = cmake.replace(main, f"{main}  template/pin.c\n")
    return with_source.replace(include, f"{option}{define}{include}")


def _dataset(
    benchmark: str,
    wanted: Benchmark,
    compiled: CompiledModel,
    inputs: Sequence[Sequence[Array]],
    expected: Sequence[Sequence[Array]],
) -> dict[str, bytes]:
    """The samples as the runner reads them: a file each, and their classes in ``y_labels.csv``."""
    outputs = [_real(sample[0], compiled.outputs[0]) for sample in expected]
    raw = [_loaded(sample[0], wanted, compiled.inputs[0]) for sample in inputs]
    if wanted.is_error:
        # Two classes: which half has the larger errors.
        errors = [_error(one, output) for one, output in zip(raw, outputs, strict=True)]
        classes = [int(error > np.median(errors)) for error in errors]
    else:
        classes = [int(np.argmax(one)) for one in outputs]
    count = 2 if wanted.is_error else outputs[0].size
    files, rows = {}, []
    for number, (data, of_class) in enumerate(zip(raw, classes, strict=True)):
        name = f"{number:04d}.bin"
        files[f"dataset/{benchmark}/{name}"] = data.tobytes()
        rows.append(f"{name},{count},{of_class},{data.nbytes},{data.nbytes}\n")
    return {**files, f"dataset/{benchmark}/y_labels.csv": "".join(rows).encode()}


def _loaded(data: Array, wanted: Benchmark, source: Buffer) -> Array:
    """What the runner loads for an input."""
    if wanted.form == "INPUT_REAL":
        return _real(data, source)
    if wanted.form == "INPUT_PIXELS":
        return np.bitwise_xor(data.view(np.uint8), 0x80 if data.dtype == np.int8 else 0)
    return data


def _error(wanted: Array, output: Array) -> float:
    """The mean squared error."""
    return float(np.mean(np.square(np.subtract(output.ravel(), wanted.ravel(), dtype=np.float32))))


def _real(data: Array, buffer: Buffer) -> Array:
    if buffer.scale is None:
        return data
    steps = data.astype(np.float32) - np.float32(buffer.zero_point or 0)
    real: Array = (steps * np.float32(buffer.scale)).astype(np.float32)
    return real
