"""What the rest of the package asks about an architecture: one ``Target`` for each."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from utvm_deploy.targets.contract.binary import BinaryFormat
from utvm_deploy.targets.contract.core import Core
from utvm_deploy.targets.contract.costs import CostTable
from utvm_deploy.targets.contract.debugger import Debugger
from utvm_deploy.targets.contract.fault import NO_WORDS, FaultWords
from utvm_deploy.targets.contract.machine import MachineKind
from utvm_deploy.targets.contract.sequences import Sequences
from utvm_deploy.targets.contract.timing import Timing


@dataclass(frozen=True)
class Toolchain:
    """The compiler, its options, and the programs around it."""

    compiler: str
    #: The flags for a core with this floating-point unit ("none" for none), and with or without
    #: Helium and DSP instructions.
    flags: Callable[[Core, str, bool, bool], tuple[str, ...]]
    #: Machines in the headers of the ELF files that it can link.
    machines: tuple[str, ...]
    #: How the names of its other programs begin, such as that of objcopy.
    prefix: str = ""
    #: Lines of ``toolchain.cmake`` that name the system.
    system: tuple[str, ...] = ()
    #: Flags of links in addition to ``flags``.
    link_flags: Callable[[Core], tuple[str, ...]] = lambda core: ()
    #: The option of a linker script, up to its name.
    script_option: str = "-Wl,-T,"
    #: The flags of links that make one object of several.
    partial_links: tuple[str, ...] = ("-r", "-nostdlib")
    #: A core, its floating-point unit as in ``flags``, and the flags of a board file -> why they
    #: contradict each other; else empty.
    contradiction: Callable[[Core, str, Sequence[str]], str] = lambda core, fpu, own: ""
    #: Whether images link its C library. Else modules take what the image has.
    links_c_library: bool = False
    #: Whether it compiles the assembly of native kernels.
    compiles_assembly: bool = False
    #: What a program says that lacks something, as a regular expression -> what to do.
    remedies: Mapping[str, str] = field(default_factory=dict)
    #: How the names of sections begin that only serve to unwind the stack.
    unwind_sections: str = ".eh_frame"
    #: What must be done before the compiler is called; MissingTool if it cannot.
    prepare: Callable[[], None] = lambda: None
    #: Compiler flags that write the call graph and what each function takes of the stack.
    call_graph: tuple[str, ...] = ("-fcallgraph-info=su",)
    #: None: the compiler makes ELF files.
    binaries: BinaryFormat | None = None
    #: Program -> what it is for, and the command that installs it.
    programs: Mapping[str, tuple[str, str]] = field(default_factory=dict)


@dataclass(frozen=True)
class BuiltFor:
    """What an object of a static library was built for."""

    architecture: str | None = None
    rank: int = -1  # cores of larger ranks run the code of smaller ones
    is_hard_float: bool = False
    has_dsp: bool = False  # it holds SMLAD
    has_mve: bool = False  # it was built for Helium
    has_vectors: bool = False  # of RISC-V


@dataclass(frozen=True)
class Libraries:
    """What a target knows of the user's static libraries."""

    #: An ELF file of elftools -> what it was built for.
    built_for: Callable[[Any], BuiltFor]
    #: A library's build, a core, the compiler's flags and a board's name -> why they do not fit.
    why_not: Callable[[BuiltFor, Core, Sequence[str], str], str]
    #: Compiler and flags of C with vector intrinsics, where the target's own compiler has none.
    vector_build: str = ""


@dataclass(frozen=True)
class Drivers:
    """The drivers of a target's bare-metal template, each with the keys of its integers."""

    uarts: Mapping[str, tuple[str, ...]]
    timers: Mapping[str, tuple[str, ...]]
    clocks: Mapping[str, tuple[str, ...]]
    #: What boot ROMs want in an image.
    boot_blocks: tuple[str, ...] = ("none",)
    #: Driver -> keys that may be missing, with what they are then.
    defaults: Mapping[str, Mapping[str, int]] = field(default_factory=dict)


@dataclass(frozen=True)
class Selftest:
    """The self-test of a bundle on the bare core, without an operating system."""

    core: str  # what it is for, such as a family of cores
    folder: str  # of the bundle, below that of the self-test
    startup: str  # the template of its start-up code, below ``templates/``
    build: str  # how the build folder's name ends in the README
    printing: str  # how it prints, and what that needs
    emulator_options: tuple[str, ...]
    link_options: tuple[str, ...]


@dataclass(frozen=True)
class Templates:
    """What images are made from: folders below ``templates/``, and the guard of a core."""

    #: Template of a board file -> its folders; files of later ones replace those of earlier ones.
    #: Without any, others make the images.
    folders: Mapping[str, tuple[str, ...]]
    #: The sources that keep tasks from harming the runtime of a core. None: no guard is written
    #: for the core, so ``guard_none.c`` calls tasks as they are.
    guard_of: Callable[[Core], tuple[str, ...] | None]
    #: Of the bare-metal template, if the target has one.
    drivers: Drivers | None = None
    selftest: Selftest | None = None
    #: Whether images are processes on this computer.
    are_processes: bool = False
    #: Zephyr's Kconfig symbol of its cores, and settings that its unit for floating point needs.
    zephyr_symbol: str = ""
    zephyr_fpu: tuple[str, ...] = ()


@dataclass(frozen=True)
class Target:
    """An architecture: its folder below ``targets/`` has all that is its own."""

    name: str
    #: Its number in the fault records of the wire.
    tag: int
    cores: tuple[Core, ...]
    toolchain: Toolchain
    templates: Templates
    #: Families of native kernels that fit a core, the best first; all cores have portable kernels.
    families_of: Callable[[Core], tuple[str, ...]] = lambda core: ()
    libraries: Libraries | None = None
    #: A name that no core has -> which core to write instead, or why there is none; else empty.
    core_advice: Callable[[str], str] = lambda name: ""
    #: Where memory begins that a controller must set up first; None: nowhere.
    external_begin: int | None = None
    #: What runs its images within this process.
    machine: MachineKind | None = None
    #: Programs that emulate boards with its cores.
    emulators: tuple[str, ...] = ()
    #: Set in the addresses of functions, and no part of where they are.
    code_bit: int = 0
    faults: FaultWords = NO_WORDS
    #: None: no debugger can run tasks in its cores.
    debugger: Debugger | None = None
    #: Core -> what its kernels cost. For cores without a table, plans count instructions.
    costs: Mapping[str, CostTable] = field(default_factory=dict)
    #: What `utvm silicon` counts on boards.
    sequences: Sequences | None = None
    #: Core -> its timing: for what is here, there is a cycle model.
    timings: Mapping[str, Timing] = field(default_factory=dict)
