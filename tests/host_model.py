"""A compiled model as a shared object in this process: what its C computes, and how it is built."""

from __future__ import annotations

import ctypes
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from utvm_deploy.compiler.compiled.model import Buffer, CompiledModel
from utvm_deploy.graph.model import Array

COMPILE_TIMEOUT_S = 120
STRICT = ("-std=c99", "-Wall", "-Wextra", "-pedantic", "-Werror", "-Wmissing-prototypes")
#: Every compiler here that the C must be clean with, and what it needs besides.
COMPILERS = {
    "gcc": (),
    "clang": (),
    "arm-none-eabi-gcc": ("-mcpu=cortex-m7", "-mthumb"),
}
#: Bytes on either side of the arena that nothing may touch.
GUARD_BYTES = 64
GUARD = 0x5A


def write_sources(compiled: CompiledModel, folder: Path) -> list[Path]:
    """Write all files; returns the C files."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in compiled.sources.items():
        (folder / name).write_text(text)
    return sorted(folder.glob("*.c"))


def build_objects(compiled: CompiledModel, folder: Path, compiler: str, *flags: str) -> list[Path]:
    """Object files, compiled with every warning as an error."""
    made = []
    for source in write_sources(compiled, folder):
        target = source.with_suffix(f".{compiler}.o")
        command = [compiler, *COMPILERS[compiler], *STRICT, "-O1", *flags, "-c", str(source)]
        subprocess.run([*command, "-o", str(target)], check=True, timeout=COMPILE_TIMEOUT_S)
        made.append(target)
    return made


def has(program: str) -> bool:
    return shutil.which(program) is not None


class HostModel:
    """The model built by gcc and loaded; each run gets an arena of its own between guards."""

    def __init__(self, compiled: CompiledModel, folder: Path) -> None:
        self.compiled = compiled
        library = folder / f"{compiled.name}.so"
        sources = [str(path) for path in write_sources(compiled, folder)]
        subprocess.run(
            ["gcc", *STRICT, "-O1", "-shared", "-fPIC", "-o", str(library), *sources],
            check=True,
            timeout=COMPILE_TIMEOUT_S,
        )
        self._library = ctypes.CDLL(str(library))

    def outside(self, inputs: Sequence[Array], part: str = "") -> int:
        """The first input of a part that says no place, or -1."""
        _, address, _ = self._arena(inputs)
        found = ctypes.c_int32()
        getattr(self._library, f"{self.compiled.name}_check_{part}places")(
            ctypes.c_void_p(address), ctypes.byref(found)
        )
        return found.value

    def run(self, inputs: Sequence[Array]) -> list[Array]:
        """Outputs of the whole model."""
        arena, address, guards = self._arena(inputs)
        getattr(self._library, f"{self.compiled.name}_run")(
            ctypes.c_void_p(address), *self._pools()
        )
        assert (guards == GUARD).all(), "wrote outside the arena"
        return [self._read(arena, buffer) for buffer in self.compiled.outputs]

    def run_layers(self, inputs: Sequence[Array]) -> dict[int, Array]:
        """Every layer's outputs right after that layer, by tensor number in the file."""
        arena, address, guards = self._arena(inputs)
        made: dict[int, Array] = {}
        run_layer = getattr(self._library, f"{self.compiled.name}_run_layer")
        pools = self._pools()
        for layer in self.compiled.layers:
            run_layer(ctypes.c_uint32(layer.index), ctypes.c_void_p(address), *pools)
            for buffer in layer.outputs:
                if buffer.source is not None:
                    made[buffer.source] = self._read(arena, buffer)
        # An index that does not exist must do nothing.
        before = arena.copy()
        run_layer(ctypes.c_uint32(len(self.compiled.layers)), ctypes.c_void_p(address), *pools)
        assert (arena == before).all()
        assert (guards == GUARD).all(), "wrote outside the arena"
        return made

    def _pools(self) -> list[ctypes.c_void_p]:
        """Memory for each pool that layers have scratch in; others need copies of weights."""
        assert self.compiled.load_function is None
        self._held = [
            np.full(pool.size_bytes + 15, GUARD, np.uint8) for pool in self.compiled.pools
        ]
        starts = [held.ctypes.data for held in self._held]
        return [ctypes.c_void_p(start + -start % 16) for start in starts]

    def _arena(self, inputs: Sequence[Array]) -> tuple[Array, int, Array]:
        size = self.compiled.arena_bytes
        memory = np.full(size + 2 * GUARD_BYTES + 16, GUARD, np.uint8)
        start = GUARD_BYTES + -(memory.ctypes.data + GUARD_BYTES) % self.compiled.arena_alignment
        arena = memory[start : start + size]
        # What the arena holds before the run must not matter.
        arena[:] = np.random.default_rng(size).integers(0, 256, size, dtype=np.uint8)
        self._memory = memory
        for buffer, array in zip(self.compiled.inputs, inputs, strict=True):
            data = np.ascontiguousarray(array).view(np.uint8).ravel()
            assert data.size == buffer.size_bytes
            arena[buffer.offset : buffer.offset + data.size] = data
        guards = np.lib.stride_tricks.as_strided(
            memory[start - GUARD_BYTES :], (2, GUARD_BYTES), (GUARD_BYTES + size, 1)
        )
        return arena, arena.ctypes.data, guards

    def _read(self, arena: Array, buffer: Buffer) -> Array:
        data = arena[buffer.offset : buffer.offset + buffer.size_bytes].copy()
        return data.view(buffer.dtype).reshape(buffer.shape)
