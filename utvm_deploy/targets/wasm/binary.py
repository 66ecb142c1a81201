"""Reads WebAssembly files: the binary format of its specification, and of its tool conventions.

A function's address is where its body begins in the file, behind ``CODE_BASE`` for an image. So a
place in a trap is an address, too. A module that is loaded at run time is in memory as a file,
behind its data.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from utvm_deploy.base.errors import BuildError
from utvm_deploy.targets.contract.binary import Binary, Placed

MAGIC = b"\0asm\x01\0\0\0"
#: Where the code of images begins: no memory is so large.
CODE_BASE = 0x8000_0000
_FILE_ALIGNMENT = 16
_DIGEST_BYTES, _SIZE_BYTES = 16, 4
#: The linker's function that runs constructors; where it is exported, no other export calls it.
CONSTRUCTORS = "__wasm_call_ctors"

# Sections, and the kinds of imports, exports and symbols.
_CUSTOM, _IMPORT, _GLOBAL, _EXPORT, _CODE, _DATA = 0, 2, 6, 7, 10, 11
_FUNCTION_KIND, _TABLE_KIND, _MEMORY_KIND, _GLOBAL_KIND = range(4)
_SYMBOL_FUNCTION, _SYMBOL_DATA, _SYMBOL_SECTION = 0, 1, 3
_LOCAL, _UNDEFINED, _EXPLICIT_NAME = 0x2, 0x10, 0x40
_SYMBOL_TABLE, _INIT_FUNCTIONS, _FUNCTION_NAMES = 8, 6, 1
_I32_CONST = 0x41
#: What the linker exports about the image itself.
_LINKERS_OWN = ("__stack_pointer", "__data_end", "memory", CONSTRUCTORS)


class _Reader:
    """Reads on from a place in the bytes."""

    def __init__(self, data: bytes, at: int = 0, end: int | None = None) -> None:
        self.data = data
        self.at = at
        self.end = len(data) if end is None else end

    def byte(self) -> int:
        self.at += 1
        return self.data[self.at - 1]

    def number(self, is_signed: bool = False) -> int:
        """A LEB128; the specification's integers, of any width."""
        value = shift = 0
        byte = 0x80
        while byte & 0x80:
            byte = self.byte()
            value |= (byte & 0x7F) << shift
            shift += 7
        return value - (1 << shift) if is_signed and byte & 0x40 else value

    def take(self, size: int) -> bytes:
        self.at += size
        return self.data[self.at - size : self.at]

    def text(self) -> str:
        return self.take(self.number()).decode("utf-8", "replace")

    def limits(self) -> None:
        for _ in range(2 if self.byte() & 1 else 1):
            self.number()


@dataclass
class WasmFile:
    """What is read of a file; functions and globals count from the imported ones on."""

    imports: list[tuple[str, int]] = field(default_factory=list)  # name, kind
    globals: list[int] = field(default_factory=list)  # initial values of the file's own
    exports: dict[str, tuple[int, int]] = field(default_factory=dict)  # name -> kind, index
    bodies: list[int] = field(default_factory=list)  # where the file's own functions begin
    code_bytes: int = 0
    segments: list[tuple[int, bytes]] = field(default_factory=list)  # address, bytes
    names: dict[int, str] = field(default_factory=dict)  # of functions
    #: Name -> kind, flags; of an object.
    symbols: dict[str, tuple[int, int]] = field(default_factory=dict)
    has_constructors: bool = False

    def imported(self, kind: int) -> int:
        """How many imports are of a kind."""
        return sum(one == kind for _, one in self.imports)

    def body(self, function: int) -> int:
        """Where a function begins in the file."""
        return self.bodies[function - self.imported(_FUNCTION_KIND)]

    def data_address(self, index: int) -> int:
        """What the global of that index says."""
        return self.globals[index - self.imported(_GLOBAL_KIND)]

    def functions(self, base: int) -> dict[str, int]:
        """Exported function -> address, where the file begins at ``base``."""
        return {
            name: base + self.body(index)
            for name, (kind, index) in self.exports.items()
            if kind == _FUNCTION_KIND and name not in _LINKERS_OWN
        }

    def objects(self) -> dict[str, int]:
        """Exported variable -> address."""
        return {
            name: self.data_address(index)
            for name, (kind, index) in self.exports.items()
            if kind == _GLOBAL_KIND and name not in _LINKERS_OWN
        }

    @property
    def data_end(self) -> int:
        """The first address behind the data; 0 for an object."""
        return self._exported("__data_end")

    @property
    def stack_bytes(self) -> int:
        """Of the stack, which is at the bottom of memory; 0 for an object."""
        return self._exported("__stack_pointer")

    def _exported(self, name: str) -> int:
        found = self.exports.get(name)
        return 0 if found is None else self.data_address(found[1])


def parse(data: bytes, path: Path | str) -> WasmFile:
    """What is in a file; BuildError if it is none, or is cut."""
    if not data.startswith(MAGIC):
        raise BuildError(f"{path} is not a WebAssembly file; build it again")
    found = WasmFile()
    reader = _Reader(data, len(MAGIC))
    try:
        while reader.at < len(data):
            kind, size = reader.byte(), reader.number()
            if reader.at + size > len(data):
                raise IndexError
            _read_section(found, kind, _Reader(data, reader.at, reader.at + size))
            reader.at += size
    except (IndexError, KeyError) as exc:
        raise BuildError(f"{path} is cut short as a WebAssembly file; build it again") from exc
    return found


def _read_section(found: WasmFile, kind: int, reader: _Reader) -> None:
    if kind == _CUSTOM:
        name = reader.text()
        if name == "linking":
            reader.number()
            _read_linking(found, reader)
        elif name == "name":
            _read_names(found, reader)
    elif kind == _IMPORT:
        found.imports = [_import(reader) for _ in range(reader.number())]
    elif kind == _GLOBAL:
        found.globals = [_global(reader) for _ in range(reader.number())]
    elif kind == _EXPORT:
        for _ in range(reader.number()):
            name = reader.text()
            found.exports[name] = (reader.byte(), reader.number())
    elif kind == _CODE:
        found.code_bytes = reader.end - reader.at
        for _ in range(reader.number()):
            size = reader.number()
            found.bodies.append(reader.at)
            reader.at += size
    elif kind == _DATA:
        for _ in range(reader.number()):
            flags = reader.number()
            if flags == 2:
                reader.number()
            address = 0 if flags == 1 else _constant(reader)
            found.segments.append((address, reader.take(reader.number())))


def _import(reader: _Reader) -> tuple[str, int]:
    reader.text()
    name, kind = reader.text(), reader.byte()
    if kind == _FUNCTION_KIND:
        reader.number()
    elif kind == _GLOBAL_KIND:
        reader.take(2)
    else:
        if kind == _TABLE_KIND:
            reader.byte()
        reader.limits()
    return name, kind


def _global(reader: _Reader) -> int:
    reader.take(2)
    return _constant(reader)


def _constant(reader: _Reader) -> int:
    """The value of an initializer, as far as addresses need it."""
    value = reader.number(is_signed=True) & 0xFFFFFFFF if reader.byte() == _I32_CONST else 0
    while reader.byte() != 0x0B:
        pass
    return value


def _subsections(reader: _Reader) -> Iterator[tuple[int, _Reader]]:
    while reader.at < reader.end:
        kind, size = reader.byte(), reader.number()
        yield kind, _Reader(reader.data, reader.at, reader.at + size)
        reader.at += size


def _read_names(found: WasmFile, reader: _Reader) -> None:
    for kind, part in _subsections(reader):
        if kind == _FUNCTION_NAMES:
            for _ in range(part.number()):
                index = part.number()
                found.names[index] = part.text()


def _read_linking(found: WasmFile, reader: _Reader) -> None:
    imported: dict[int, list[str]] = {}
    for name, kind in found.imports:
        imported.setdefault(kind, []).append(name)
    for subsection, part in _subsections(reader):
        if subsection == _INIT_FUNCTIONS:
            found.has_constructors = part.number() > 0
        if subsection != _SYMBOL_TABLE:
            continue
        for _ in range(part.number()):
            kind, flags, name = part.byte(), part.number(), ""
            if kind == _SYMBOL_DATA:
                name = part.text()
                if not flags & _UNDEFINED:
                    _ = part.number(), part.number(), part.number()
            else:
                index = part.number()
                if kind != _SYMBOL_SECTION:
                    is_named = not flags & _UNDEFINED or flags & _EXPLICIT_NAME
                    name = part.text() if is_named else ""
                if kind == _SYMBOL_FUNCTION and not name:
                    name = imported[_FUNCTION_KIND][index]
            if kind in (_SYMBOL_FUNCTION, _SYMBOL_DATA) and not flags & _LOCAL:
                found.symbols[name] = kind, flags


def read_binary(path: Path) -> Binary:
    """An image, or an object of the compiler; BuildError if the file is neither."""
    try:
        data = path.read_bytes()
    except OSError as exc:
        raise BuildError(f"{path} cannot be read: {exc.strerror}") from exc
    found = parse(data, path)
    stored = sum(len(content) for _, content in found.segments)
    sections = {"code": (found.code_bytes, True, False), "data": (stored, True, False)}
    if not found.symbols:
        end = max((address + len(content) for address, content in found.segments), default=0)
        sections["bss"] = (found.data_end - end, False, True)
        sections["stack"] = (found.stack_bytes, False, True)
        return Binary(found.functions(CODE_BASE), found.objects(), sections=sections)
    own = {name: kind for name, (kind, flags) in found.symbols.items() if not flags & _UNDEFINED}
    return Binary(
        {name: 0 for name, kind in own.items() if kind == _SYMBOL_FUNCTION},
        {name: 0 for name, kind in own.items() if kind == _SYMBOL_DATA},
        frozenset(name for name in found.symbols if name not in own),
        sections,
        "a constructor" if found.has_constructors else "",
    )


def module_in(data: bytes) -> tuple[int, int] | None:
    """Where the module is of which ``placed`` made the data: begin and end; None for other data.

    Its size and its digest are behind it: other data may begin like a module, too.
    """
    end = len(data) - _DIGEST_BYTES - _SIZE_BYTES
    begin = end - int.from_bytes(data[-_SIZE_BYTES:], "little")
    if not 0 <= begin < end or not data.startswith(MAGIC, begin):
        return None
    return (begin, end) if data[end:-_SIZE_BYTES] == _digest(data[begin:end]) else None


def _digest(content: bytes) -> bytes:
    return hashlib.sha256(content).digest()[:_DIGEST_BYTES]


def placed(path: Path, module: Path, address: int) -> Placed:
    """A module that was linked for an address: its data, and behind them the file itself."""
    content = path.read_bytes()
    found, own = parse(content, path), read_binary(module)
    file_at = -(-max(found.data_end, address) // _FILE_ALIGNMENT) * _FILE_ALIGNMENT
    data = bytearray(file_at - address)
    for at, part in found.segments:
        data[at - address : at - address + len(part)] = part
    data += content + _digest(content) + len(content).to_bytes(_SIZE_BYTES, "little")
    return Placed(
        bytes(data),
        len(data),
        {name: at for name, at in found.functions(file_at).items() if name in own.functions},
        {name: at for name, at in found.objects().items() if name in own.objects},
    )
