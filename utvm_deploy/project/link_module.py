"""C sources -> bytes that run at one address of one running image.

    sources ──compile (cached)──▶ module.o ──link at an address, against the image──▶ LinkedModule

Symbols that a module does not define come from the image's ELF. So Thumb functions stay Thumb
functions, and the linker inserts veneers where a call is too far. Symbols that are in neither come
from the C library, as far as it is linked statically. No device is needed here.
"""

from __future__ import annotations

import contextlib
import hashlib
import logging
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from elftools.elf.elffile import ELFFile
from elftools.elf.sections import SymbolTableSection

from utvm_deploy.base import cache, process
from utvm_deploy.base.build_failure import build_error
from utvm_deploy.base.errors import BuildError
from utvm_deploy.base.paths import cache_dir
from utvm_deploy.base.temporary import TemporaryFolder
from utvm_deploy.boards.board import Board
from utvm_deploy.project.build import compiler_version
from utvm_deploy.project.image import Image

log = logging.getLogger("utvm_deploy.project")

Sources = str | Path | Sequence[str | Path] | Mapping[str, str]

# One module is a few kernels; GCC takes a second for each of the largest.
COMPILE_TIMEOUT_S = 300.0
LINK_TIMEOUT_S = 60.0

#: Every module starts at a multiple of this: a cache line, and what vector tables ask for.
MODULE_ALIGNMENT = 32

OPTIMIZATION = "-O2"
_COMMON_FLAGS = (
    "-std=gnu11",
    # Images are compiled as ISO C, which never fuses a multiplication and an addition.
    "-ffp-contract=off",
    "-ffunction-sections",
    "-fno-asynchronous-unwind-tables",
    "-fno-stack-protector",
    "-fno-common",
    "-Werror=implicit-function-declaration",
)
# Code for one fixed address: nobody on a device relocates anything.
_FIXED_FLAGS = ("-fno-pic", "-fno-pie")

# Functions of the host's C library: see templates/host/libc.c.
_HOST_LIBRARY_PREFIX = "utvm_libc_"

_SCRIPT = """\
SECTIONS
{{
    . = {address:#x} + {code_offset:#x};
    .text : {{ *(.text .text.*) }}
    . = . - {code_offset:#x};
    .rodata : {{ *(.rodata .rodata.*) }}
    .data : {{ *(.data .data.* .sdata .sdata.* .got .got.*) }}
    .bss : {{ *(.bss .bss.* .sbss .sbss.* COMMON) }}
    /DISCARD/ : {{ *(.eh_frame* .comment .note* .ARM.exidx* .ARM.extab* .debug*) }}
}}
"""

# Sections that need somebody to act before the first call, and what to do instead.
_REFUSED_SECTIONS = {
    ".preinit_array": "a constructor",
    ".init_array": "a constructor",
    ".ctors": "a constructor",
    ".fini_array": "a destructor",
    ".dtors": "a destructor",
    ".tdata": "a thread-local variable",
    ".tbss": "a thread-local variable",
}

_UNDEFINED = re.compile(r"undefined (?:reference to [`']|symbol: )([^`'\s]+)")
_QUOTED_INCLUDE = re.compile(r'^\s*#\s*include\s*"', re.MULTILINE)
_C_SUFFIXES = (".c", ".S", ".s")

_SHF_ALLOC, _SHF_EXECINSTR = 2, 4


@dataclass(frozen=True)
class ModuleObject:
    """A module compiled for a board, not yet bound to an address."""

    name: str
    board: Board
    path: Path
    #: Bytes of code, constants and variables, without what the linker adds.
    size_bytes: int
    undefined: frozenset[str]
    #: Static libraries that have what it calls; their code comes in when modules are merged.
    libraries: tuple[str, ...] = ()


@dataclass(frozen=True)
class LinkedModule:
    """A module at its address."""

    name: str
    address: int
    #: Code, constants and initialized variables, from ``address`` on.
    data: bytes
    #: With the zeroed variables behind them.
    size_bytes: int
    #: Global functions that the sources define, where they are executed; on Arm with bit 0 set.
    functions: Mapping[str, int]
    #: Global variables and tables.
    objects: Mapping[str, int]


def compile_module(
    sources: Sources, board: Board, *, name: str = "module", flags: Sequence[str] = ()
) -> ModuleObject:
    """Compile C text, files, or a mapping of file names to texts; equal input is compiled once."""
    files, folders = _source_files(sources, name)
    arguments = [
        *board.cpu.compiler_flags,
        *board.project.compiler_flags,
        OPTIMIZATION,
        *_COMMON_FLAGS,
        *_FIXED_FLAGS,
        *(f"-iquote{folder}" for folder in folders),
        *flags,
    ]
    modules = cache_dir() / "modules"
    with _work_folder(modules) as work:
        for file, text in files.items():
            (work / file).parent.mkdir(parents=True, exist_ok=True)
            (work / file).write_text(text, encoding="utf-8")
        compiled = [file for file in files if file.endswith(_C_SUFFIXES)]
        command = [board.cpu.toolchain.compiler, *arguments]
        texts = dict(files)
        if folders and any(_QUOTED_INCLUDE.search(text) for text in files.values()):
            # What the files include from their own folder is part of the input, too.
            preprocess = [*command, "-E", "-P", *compiled]
            texts["preprocessed"] = _run(preprocess, work, name, board, COMPILE_TIMEOUT_S)
        key = _digest([*command, compiler_version(board)], texts)
        entry = modules / key
        in_use = cache.User()
        if not cache.take(entry, in_use):
            fresh = work / "entry"
            fresh.mkdir()
            target = [*_partial_link(board), "-o", "entry/module.o"]
            _run([*command, *target, *compiled], work, name, board, COMPILE_TIMEOUT_S)
            cache.seal(fresh, [fresh / "module.o"])
            cache.keep_held(fresh, entry, in_use)
        module = _read_object(entry / "module.o", name, board)
        cache.hold(entry, module)
    return module


def merge_modules(modules: Sequence[ModuleObject], name: str, folder: Path) -> ModuleObject:
    """One module of several for the same board, in ``folder``, which must outlive it.

    What they define for others must have different names.
    """
    board = modules[0].board
    merged = folder / f"{name}.o"
    inputs = [str(module.path) for module in modules]
    # Behind what calls them.
    inputs += dict.fromkeys(library for module in modules for library in module.libraries)
    target = [*_partial_link(board), "-o", str(merged)]
    command = [board.cpu.toolchain.compiler, *board.cpu.compiler_flags, *target, *inputs]
    _run(command, folder, name, board, LINK_TIMEOUT_S)
    return _read_object(merged, name, board)


def link_module(module: ModuleObject, image: Image, address: int) -> LinkedModule:
    """The module's bytes for ``address`` in the memory of a device that runs ``image``.

    Raises BuildError with the names if something is defined neither in the module nor in the image.
    """
    board = module.board
    with _work_folder(cache_dir() / "modules") as work:
        toolchain = board.cpu.toolchain
        command = [toolchain.compiler, *board.cpu.compiler_flags]
        if toolchain.binaries is not None:
            known = module.undefined & image.symbols.keys()
            own = toolchain.binaries.link_arguments(work, sorted(known), address)
            command += [str(module.path), *own, "-o", "module"]
            _run(command, work, module.name, board, LINK_TIMEOUT_S)
            placed = toolchain.binaries.placed(work / "module", module.path, address)
            facts = placed.size_bytes, placed.functions, placed.objects
            return LinkedModule(module.name, address, placed.data, *facts)
        (work / "module.ld").write_text(
            _SCRIPT.format(address=address, code_offset=board.code_offset), encoding="ascii"
        )
        command += [
            *toolchain.link_flags(board.cpu.facts),
            "-nostdlib",
            "-nostartfiles",
            "-static",
            str(module.path),
            "-Wl,--build-id=none,--entry=0",
            # A name that both define means the module's own.
            "-Wl,-z,muldefs",
            f"{toolchain.script_option}{work / 'module.ld'}",
            f"-Wl,--just-symbols={image.elf}",
            *_library_arguments(module, image),
            "-o",
            "module.elf",
        ]
        _run(command, work, module.name, board, LINK_TIMEOUT_S)
        return _read_linked(work / "module.elf", module, address)


def _partial_link(board: Board) -> tuple[str, ...]:
    toolchain = board.cpu.toolchain
    # Those of other formats are about images alone.
    flags = toolchain.link_flags(board.cpu.facts) if toolchain.binaries is None else ()
    return *flags, *toolchain.partial_links


def _library_arguments(module: ModuleObject, image: Image) -> list[str]:
    if module.board.cpu.toolchain.links_c_library:
        return ["-Wl,--start-group", "-lc", "-lm", "-lgcc", "-Wl,--end-group"]
    exported = {
        symbol.removeprefix(_HOST_LIBRARY_PREFIX): address
        for symbol, address in image.symbols.items()
        if symbol.startswith(_HOST_LIBRARY_PREFIX)
    }
    wanted = sorted(module.undefined & set(exported))
    return ["-lgcc", *(f"-Wl,--defsym={symbol}={exported[symbol]:#x}" for symbol in wanted)]


def _source_files(sources: Sources, name: str) -> tuple[dict[str, str], list[Path]]:
    """File name -> text, and the folders that files came from."""
    if isinstance(sources, Mapping):
        files = dict(sources)
        folders: list[Path] = []
    else:
        files, folders = {}, []
        items = [sources] if isinstance(sources, str | Path) else list(sources)
        for number, item in enumerate(items):
            if isinstance(item, str) and _is_text(item):
                files[f"{name}_{number}.c" if number else f"{name}.c"] = item
                continue
            path = Path(item)
            try:
                text = path.read_text(encoding="utf-8")
            except OSError as exc:
                raise BuildError(
                    f"source file {str(item)!r} of module {name!r} cannot be read "
                    f"({exc.strerror}); give a path, or C text"
                ) from exc
            if path.name in files:
                raise BuildError(f"module {name!r} has two files named {path.name}; rename one")
            files[path.name] = text
            folders.append(path.resolve().parent)
    if not any(file.endswith(_C_SUFFIXES) for file in files):
        raise BuildError(
            f"module {name!r} has nothing to compile; give C text, or files that end in .c or .S"
        )
    for file in files:
        if Path(file).is_absolute() or ".." in Path(file).parts:
            raise BuildError(f"module {name!r}: {file!r} is not a file name within the module")
    return files, list(dict.fromkeys(folders))


def _is_text(item: str) -> bool:
    """C text, as opposed to a path: no path has a line break, a brace or a semicolon."""
    return any(character in item for character in "\n{;")


@contextlib.contextmanager
def _work_folder(parent: Path) -> Iterator[Path]:
    try:
        parent.mkdir(parents=True, exist_ok=True)
        work = TemporaryFolder("new", parent)
    except OSError as exc:
        raise BuildError(
            f"modules cannot be built in {parent}: {exc.strerror}; set UTVM_CACHE to another folder"
        ) from exc
    with work as folder:
        yield folder


def _run(argv: list[str], work: Path, name: str, board: Board, timeout_s: float) -> str:
    # A compiler that is killed leaves its temporary files: let them go with the folder.
    env = {"TMPDIR": str(work.absolute())}
    done = process.run(argv, timeout_s=timeout_s, cwd=work, env=env)
    if done.is_ok:
        return done.stdout
    if done.timed_out:
        raise BuildError(f"building module {name!r} took longer than {timeout_s:g} s")
    undefined = sorted(set(_UNDEFINED.findall(done.output)))
    if undefined:
        names = ", ".join(undefined)
        raise BuildError(
            f"module {name!r} uses {names}, which neither it nor the image on {board.name} "
            f"defines; add the source that does, or load an image that has it"
        )
    raise build_error(f"module {name!r} does not compile for {board.name}", done, work)


def _digest(command: Sequence[str], files: Mapping[str, str]) -> str:
    digest = hashlib.sha256()
    for part in (*command, *(part for name in sorted(files) for part in (name, files[name]))):
        data = part.encode()
        digest.update(len(data).to_bytes(8, "little") + data)
    return digest.hexdigest()


def _read_object(path: Path, name: str, board: Board) -> ModuleObject:
    binaries = board.cpu.toolchain.binaries
    if binaries is not None:
        found = binaries.read(path)
        if found.needs_start:
            raise _needs_start(name, found.needs_start)
        size = sum(size for size, _, _ in found.sections.values())
        return ModuleObject(name, board, path, size, found.undefined)
    size = 0
    undefined = set()
    with path.open("rb") as file:
        for section in ELFFile(file).iter_sections():
            if isinstance(section, SymbolTableSection):
                named = (one for one in section.iter_symbols() if one.name)
                undefined |= {one.name for one in named if one["st_shndx"] == "SHN_UNDEF"}
            if not section["sh_flags"] & _SHF_ALLOC or not section["sh_size"]:
                continue
            for prefix, what in _REFUSED_SECTIONS.items():
                if section.name == prefix or section.name.startswith(f"{prefix}."):
                    raise _needs_start(name, f"{what} (section {section.name})")
            size += section["sh_size"] + section["sh_addralign"]
    return ModuleObject(name, board, path, size, frozenset(undefined))


def _needs_start(name: str, what: str) -> BuildError:
    return BuildError(
        f"module {name!r} has {what}, and nothing on the device would run or set it up; write a "
        "function and call it"
    )


def _read_linked(path: Path, module: ModuleObject, address: int) -> LinkedModule:
    data = bytearray()
    end = address
    functions: dict[str, int] = {}
    objects: dict[str, int] = {}
    own = _defined_names(module.path)
    with path.open("rb") as file:
        for section in ELFFile(file).iter_sections():
            if section["sh_flags"] & _SHF_ALLOC and section["sh_size"]:
                start = section["sh_addr"]
                if section["sh_flags"] & _SHF_EXECINSTR:
                    start -= module.board.code_offset
                end = max(end, start + section["sh_size"])
                if section["sh_type"] != "SHT_NOBITS":
                    data.extend(bytes(start + section["sh_size"] - address - len(data)))
                    data[start - address : start - address + section["sh_size"]] = section.data()
            if isinstance(section, SymbolTableSection):
                for symbol in section.iter_symbols():
                    if symbol.name in own and symbol["st_info"]["bind"] != "STB_LOCAL":
                        kind = own[symbol.name]
                        table = functions if kind == "STT_FUNC" else objects
                        table[symbol.name] = symbol["st_value"]
    return LinkedModule(module.name, address, bytes(data), end - address, functions, objects)


def _defined_names(path: Path) -> dict[str, str]:
    """Global name -> type of what the sources themselves define."""
    with path.open("rb") as file:
        return {
            symbol.name: symbol["st_info"]["type"]
            for section in ELFFile(file).iter_sections()
            if isinstance(section, SymbolTableSection)
            for symbol in section.iter_symbols()
            if symbol["st_info"]["bind"] != "STB_LOCAL"
            and symbol["st_shndx"] != "SHN_UNDEF"
            and symbol["st_info"]["type"] in ("STT_FUNC", "STT_OBJECT")
        }
