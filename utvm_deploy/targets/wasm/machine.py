"""Runs images in wasmtime. Its fuel counts instructions: one for each, but none for nop, drop and
the marks of blocks (wasmtime's documentation of ``Config::consume_fuel``).
"""

from __future__ import annotations

import ctypes
import re
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from utvm_deploy.base.errors import BuildError
from utvm_deploy.targets.contract.machine import Stopped
from utvm_deploy.targets.wasm.binary import CODE_BASE, CONSTRUCTORS, WasmFile, module_in, parse
from utvm_deploy.targets.wasm.fault import TRAPS
from utvm_deploy.targets.wasm.interrupts import Interrupts
from utvm_deploy.targets.wasm.toolchain import MODULE_BAND_BYTES, STACK_BYTES

_ADDRESS = re.compile(r"wasm address 0x([0-9a-f]+)")
#: Of the calls of wasmtime itself; the functions' own stack is in memory.
_CALL_STACK_BYTES = 1 << 20
#: Of the functions that set an instance up.
_START_FUEL = 1 << 32
#: Between the stack of a module and that of the image, which its calls of the image have. What
#: writes there has outgrown the upper one: only an overflow of the lower one is a trap.
_BAND = STACK_BYTES // 2 - MODULE_BAND_BYTES, bytes([0xA5]) * MODULE_BAND_BYTES
#: Modules that a machine loads in its life; wasmtime would refuse the 10,001st.
_MOST_LOADED = 1 << 30


@dataclass(frozen=True)
class _Loaded:
    """An instance: where its file begins, its size, its functions and its stack pointer."""

    base: int
    size: int
    file: WasmFile
    functions: dict[int, Any]
    stack: Any
    stack_top: int

    def place(self, frame: Any) -> int:
        """Where a frame is; where its function begins if no more is known."""
        offset = int(frame.module_offset)
        if offset < self.size:
            return self.base + offset
        return self.base + self.file.body(frame.func_index)


class WasmtimeMachine:
    """A ``Machine``. An image is instantiated, and so is each module that is written."""

    def __init__(self, image: Path) -> None:
        import wasmtime

        self._api = wasmtime
        config = wasmtime.Config()
        config.consume_fuel = True
        config.epoch_interruption = True
        config.max_wasm_stack = _CALL_STACK_BYTES
        self._engine = wasmtime.Engine(config)
        self._interrupts = Interrupts(self._engine.increment_epoch)
        self._store = wasmtime.Store(self._engine)
        self._store.set_limits(**dict.fromkeys(("instances", "tables"), _MOST_LOADED))
        self._content = image.read_bytes()
        self.code = CODE_BASE, len(self._content)
        self._modules: list[_Loaded] = []
        #: Of the image, which modules import.
        self._exports: Any = {}
        self._image = self._load(self._content, CODE_BASE, STACK_BYTES)
        self._memory = self._exports["memory"]

    def _load(self, content: bytes, base: int, stack_top: int) -> _Loaded:
        found, api = parse(content, f"what is at {base:#x}"), self._api
        try:
            module = api.Module(self._engine, content)
            self._store.set_fuel(_START_FUEL)
            self._store.set_epoch_deadline(1)
            given = [self._exports[one.name] for one in module.imports]
            exports = api.Instance(self._store, module, given).exports(self._store)
            exports[CONSTRUCTORS](self._store)
            stack = exports["__stack_pointer"]
            self._exports = self._exports or exports
            _ = self._exports["memory"]
        except (api.WasmtimeError, api.Trap, KeyError) as exc:
            raise BuildError(f"wasmtime refuses the module at {base:#x}: {exc}") from exc
        functions = {at: exports[name] for name, at in found.functions(base).items()}
        return _Loaded(base, len(content), found, functions, stack, stack_top)

    def read(self, address: int, size: int) -> bytes:
        """Bytes of memory, or of the image's file behind ``CODE_BASE``."""
        if address >= CODE_BASE:
            return self._content[address - CODE_BASE :][:size]
        self._check(address, size)
        return bytes(self._memory.read(self._store, address, address + size))

    def write(self, address: int, data: bytes) -> None:
        """Change memory. What is written over a module ends it."""
        self._check(address, len(data))
        ctypes.memmove(self._start() + address, data, len(data))
        behind = address + len(data)
        self._modules = [
            one for one in self._modules if behind <= one.base or one.base + one.size <= address
        ]
        if found := module_in(data):
            begin, end = found
            self._modules.append(self._load(data[begin:end], address + begin, _BAND[0]))

    def _check(self, address: int, size: int) -> None:
        """BuildError outside of memory: an image can say anything of where its workspace is."""
        if address + size > self._memory.data_len(self._store):
            raise BuildError(
                f"the image has no memory for {size} bytes at {address:#010x}; build it again"
            )

    def _start(self) -> int:
        return ctypes.addressof(self._memory.data_ptr(self._store).contents)

    def _owner(self, address: int) -> _Loaded | None:
        for one in (self._image, *self._modules):
            if address in one.functions:
                return one
        return None

    def can_call(self, address: int) -> bool:
        """Whether an export of the image or of a module begins there."""
        return self._owner(address) is not None

    def call(self, address: int, words: Sequence[int], most: int) -> int:
        """Call with as many words as the function has parameters."""
        owner = self._owner(address)
        assert owner is not None
        function = owner.functions[address]
        kinds = [str(one) for one in function.type(self._store).params]
        given = (*words, *[0] * len(kinds))
        arguments = [_value(word, kind) for word, kind in zip(given, kinds, strict=False)]
        self._store.set_fuel(most)
        self._store.set_epoch_deadline(1)
        at, band = _BAND
        if owner is not self._image:
            ctypes.memmove(self._start() + at, band, len(band))
        try:
            with self._interrupts.watching():
                function(self._store, *arguments)
        except self._api.Trap as trap:
            raise self._stopped(trap, owner) from trap
        except KeyboardInterrupt:
            self._rewind(owner)
            raise
        except self._api.WasmtimeError as error:
            raise Stopped((0, 0, 0), is_late="fuel" in str(error)) from error
        if owner is not self._image and self.read(at, len(band)) != band:
            raise Stopped((TRAPS["STACK_OVERFLOW"][0], address, 0), is_late=False)
        return int(most - self._store.get_fuel())

    def _stopped(self, trap: Any, owner: _Loaded) -> Stopped:
        name = trap.trap_code.name if trap.trap_code is not None else ""
        number, _ = TRAPS.get(name, (0, ""))
        frame = next(iter(trap.frames), None)
        pc = 0
        if frame is not None:
            # A frame says its function, and not which module that is of.
            is_owners = owner.file.names.get(frame.func_index) == frame.func_name
            pc = (owner if is_owners else self._image).place(frame)
        found = _ADDRESS.search(trap.message)
        if any(one.stack.value(self._store) < 0 for one in (self._image, owner)):
            number = TRAPS["STACK_OVERFLOW"][0]
        self._rewind(owner)
        if name == "INTERRUPT":
            raise KeyboardInterrupt from trap
        return Stopped(
            (number, pc, int(found[1], 16) if found else 0), is_late=name == "OUT_OF_FUEL"
        )

    def _rewind(self, owner: _Loaded) -> None:
        """Empty the stacks that a call has left behind."""
        for one in (self._image, owner):
            one.stack.set_value(self._store, one.stack_top)


def _value(word: int, kind: str) -> int | float:
    """A word as a parameter of that type; floats have their bits in words."""
    if kind == "f32":
        return float(struct.unpack("<f", struct.pack("<I", word & 0xFFFFFFFF))[0])
    word &= 0xFFFFFFFF
    return word - (1 << 32) if word >> 31 and kind == "i32" else word
