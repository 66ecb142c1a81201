"""Candidate -> C -> object: many at once, before anything goes to a device.

Each candidate is a separate C file with the kernel and a function that calls it,

    void run_NAME(const uint32_t *words)

whose words are the kernel's arguments: addresses and numbers. The C compiler does not know them, as
it does not know them in a model. Scratch is on the stack if it fits.
"""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, replace

import numpy as np

from utvm_deploy.backends.choice import call_of
from utvm_deploy.backends.interface import Backend, StaticLibrary
from utvm_deploy.base.errors import CompileError, UtvmError
from utvm_deploy.boards.board import Board
from utvm_deploy.compiler.c_text import c_type
from utvm_deploy.compiler.lowering.kernel_function import candidate_function
from utvm_deploy.compiler.lowering.library_kernel import schedule_library_kernel
from utvm_deploy.compiler.options import OPTIMIZATION_FLAGS, Objective
from utvm_deploy.graph.model import Array, Graph, Operator
from utvm_deploy.kernels.contract.c_function import CFunction
from utvm_deploy.kernels.contract.call import (
    ConstantArgument,
    KernelCall,
    LibraryKernel,
    ScalarArgument,
)
from utvm_deploy.kernels.contract.external_library import HEADER_BYTES
from utvm_deploy.kernels.contract.requantization import header
from utvm_deploy.project.build import build_image_with
from utvm_deploy.project.image import Image
from utvm_deploy.project.link_module import ModuleObject, compile_module
from utvm_deploy.records.candidate import Candidate, is_of_backend

log = logging.getLogger(__name__)

_DIALECT = "-std=gnu11"
_STACK_WORD = 8
_WORDS_OF_LINE = 16
#: The least alignment of a table in flash: a cache line.
_LEAST_ALIGNMENT = 32


def flags_for(level: str) -> tuple[str, ...]:
    """The flags with which images compile kernels for this level."""
    return _DIALECT, OPTIMIZATION_FLAGS[level]


@dataclass(frozen=True, eq=False)
class Built:
    """A candidate that compiled."""

    candidate: Candidate
    call: KernelCall
    function: CFunction
    module: ModuleObject
    # Whether the wrapper declares the scratch; otherwise words after the arguments point to it.
    has_stack_scratch: bool

    @property
    def entry(self) -> str:
        """The function to call on the device."""
        return f"run_{self.function.name}"


@dataclass(frozen=True)
class BackendState:
    """What a backend's call needs before it can run: a C function, and bytes for its state."""

    initialize: str  # C that calls it, with ``backend_state``; it may name ``words``
    size_bytes: int
    declared: str


class Builder:
    """Compiles candidates for a board, several at a time; a context manager.

    ``backends`` have candidates, too.
    """

    def __init__(
        self,
        board: Board,
        stack_bytes: int,
        jobs: int,
        level: str = Objective.TIME,
        backends: Sequence[Backend] = (),
    ) -> None:
        self._board = board
        self._backends = {one.family: one for one in backends}
        self._flags = flags_for(level)
        self._stack_bytes = stack_bytes
        self._pool = ThreadPoolExecutor(jobs, thread_name_prefix="compile")

    def __enter__(self) -> Builder:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """End the compilers."""
        self._pool.shutdown(wait=True, cancel_futures=True)

    def start(self, graph: Graph, operator: Operator, candidate: Candidate) -> Future[Built]:
        """Lower now and compile in the background; the future may hold a UtvmError.

        Any failure of a generator is the error of this candidate alone: TVM's refusal of a
        schedule, or an exception of the generator.
        """
        try:
            call, function, text = self._text(graph, operator, candidate)
            fits = function.scratch_bytes <= self._stack_bytes
            text += wrapper_text(
                call, function, has_stack_scratch=fits, state=self._state(candidate, call)
            )
        except UtvmError as error:
            return _failed(error)
        except Exception as error:
            log.debug("no code for %s", candidate.label, exc_info=True)
            kind, reason = type(error).__name__, str(error).strip().partition("\n")[0]
            return _failed(CompileError(f"no code for {candidate.label!r}: {kind}: {reason}"))
        return self._pool.submit(self._compile, candidate, call, function, text, fits)

    def _text(
        self, graph: Graph, operator: Operator, candidate: Candidate
    ) -> tuple[KernelCall, CFunction, str]:
        if is_of_backend(candidate.family):
            return self._library_text(graph, operator, self._backends[candidate.family])
        core = self._board.cpu.kernel_core
        call, function = candidate_function(graph, operator, core, candidate)
        return call, function, kernel_text([function])

    def _library_text(
        self, graph: Graph, operator: Operator, backend: Backend
    ) -> tuple[KernelCall, CFunction, str]:
        call = call_of(backend, graph, operator, self._board.cpu.kernel_core)
        if isinstance(call, str):
            raise CompileError(call)
        assert isinstance(call.kernel, LibraryKernel)
        digest = hashlib.sha256(repr(call.kernel).encode()).hexdigest()[:12]
        # The device is not asked for how much scratch the library wants: outputs are compared.
        kernel = replace(call.kernel, wanted="")
        function = schedule_library_kernel(kernel, f"{kernel.name}_{digest}").function
        # Another library makes another object.
        return call, function, f"// {backend.digest}\n{kernel_text([function])}"

    def _state(self, candidate: Candidate, call: KernelCall) -> BackendState | None:
        backend = self._backends.get(candidate.family)
        if backend is None or not isinstance(call.kernel, LibraryKernel):
            return None
        if not call.kernel.has_state:
            return None
        if call.kernel.engine:
            return _state_of_region(call)
        return BackendState(
            f"{backend.initialize}(backend_state)",
            backend.state_bytes,
            f"extern int32_t {backend.initialize}(void *state);",
        )

    def _compile(
        self, candidate: Candidate, call: KernelCall, function: CFunction, text: str, fits: bool
    ) -> Built:
        name, flags = function.name, self._flags
        libraries: tuple[str, ...] = ()
        backend = self._backends.get(candidate.family)
        if backend is not None and isinstance(code := backend.code, StaticLibrary):
            flags = (*flags, *(f"-I{folder}" for folder in code.include_dirs))
            libraries = (str(code.path),)
        module = compile_module({"candidate.c": text}, self._board, name=name, flags=flags)
        module = replace(module, libraries=libraries)
        return Built(candidate, call, function, module, fits)


def _state_of_region(call: KernelCall) -> BackendState:
    """Of a serialized region: its engine finds the bytes at the address of the only table."""
    assert isinstance(call.kernel, LibraryKernel)
    tables = [(i, a) for i, a in enumerate(call.arguments) if isinstance(a, ConstantArgument)]
    ((position, table),) = tables
    name, size = f"{call.kernel.engine}_init", table.data.nbytes - HEADER_BYTES
    blob = f"(const uint8_t *)(uintptr_t)words[{position}] + {HEADER_BYTES}"
    return BackendState(
        f"{name}({blob}, {size}u, backend_state)",
        call.kernel.state_bytes,
        f"extern int32_t {name}(const uint8_t *blob, uint32_t bytes, void *state);",
    )


def _failed(error: UtvmError) -> Future[Built]:
    failed: Future[Built] = Future()
    failed.set_exception(error)
    return failed


def kernel_text(functions: Sequence[CFunction]) -> str:
    """One C file with functions that are not expanded where they are called."""
    imports = dict.fromkeys(text for function in functions for text in function.imports)
    parts = [
        "#include <stdbool.h>\n#include <stdint.h>\n#include <string.h>\n",
        header(),
        *imports,
        *(
            f"__attribute__((noinline)) {function.prototype}\n{function.text}"
            for function in functions
        ),
    ]
    return "\n".join(parts)


def wrapper_text(
    call: KernelCall,
    function: CFunction,
    *,
    has_stack_scratch: bool,
    state: BackendState | None = None,
) -> str:
    """``run_NAME``; the types come from the kernel's own parameters.

    The first call prepares the device for a backend with ``state``.
    """
    declared = function.signature.split("(", 1)[1].rstrip(")").split(",")
    types = [parameter.strip().rsplit(" ", 1)[0] for parameter in declared]
    stars = ["*" in parameter for parameter in declared]
    texts = []
    for index, argument in enumerate(call.arguments):
        if isinstance(argument, ScalarArgument):
            texts.append(f"({types[index]})words[{index}]")
        else:
            assert stars[index], f"{function.name}: argument {index} is not a pointer"
            texts.append(f"(void *)(uintptr_t)words[{index}]")
    before = ""
    for number, scratch in enumerate(function.scratch):
        if has_stack_scratch:
            size = -(-scratch.size_bytes // _STACK_WORD)
            before += f"    int64_t scratch_{number}[{size}];\n"
            place = f"scratch_{number}"
        else:
            place = f"(uintptr_t)words[{len(call.arguments) + number}]"
        texts.append(f"({c_type(scratch.dtype)} *)(void *){place}")
    declared_state = ""
    if state is not None:
        size = -(-state.size_bytes // _STACK_WORD) or 1
        declared_state = (
            f"\n{state.declared}\nstatic int64_t backend_state[{size}];\nstatic int is_prepared;\n"
        )
        before += (
            "    if (!is_prepared) {\n"
            f"        {state.initialize};\n        is_prepared = 1;\n    }}\n"
        )
        texts.append("backend_state")
    return (
        f"{declared_state}"
        f"\nvoid run_{function.name}(const uint32_t *words);\n"
        f"void run_{function.name}(const uint32_t *words) {{\n"
        f"{before}    {function.name}({', '.join(texts)});\n}}\n"
    )


def image_with_tables(
    tables: Mapping[str, Mapping[bytes, Array]], board: Board
) -> tuple[Image, Mapping[tuple[str, bytes], tuple[str, int]]]:
    """The runtime's image with tables in flash, as models have them.

    ``tables`` are by kernel and by key. Returns the symbol and the offset of each, too.
    """
    alignment = max(board.cpu.dcache_bytes, _LEAST_ALIGNMENT)
    places: dict[tuple[str, bytes], tuple[str, int]] = {}
    text = ""
    for number, (kernel, of_kernel) in enumerate(tables.items()):
        symbol, data = f"utvm_tables_{number}", b""
        for key, table in of_kernel.items():
            places[kernel, key] = symbol, len(data)
            raw = table.tobytes()
            data += raw + bytes(-len(raw) % _LEAST_ALIGNMENT)
        text += _table_text(symbol, data, alignment)
    symbols = list(dict.fromkeys(symbol for symbol, _ in places.values()))
    module = compile_module({"tables.c": text}, board, name="tables")
    return build_image_with([module.path], symbols, board), places


def _table_text(symbol: str, data: bytes, alignment: int) -> str:
    """C that defines a table; as words, because compilers take long over single bytes."""
    words = np.frombuffer(data, "<u4").tolist()
    lines = (
        words[start : start + _WORDS_OF_LINE] for start in range(0, len(words), _WORDS_OF_LINE)
    )
    values = ",\n".join(",".join(f"{word:#x}u" for word in line) for line in lines)
    return (
        f"extern const unsigned {symbol}[];\n"
        f"__attribute__((aligned({alignment}))) const unsigned {symbol}[] = {{\n{values}\n}};\n"
    )
