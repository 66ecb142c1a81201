"""The RISC-V cores, and the GNU toolchain with picolibc for them."""

from __future__ import annotations

import re
from collections.abc import Sequence

from utvm_deploy.targets.contract.core import Core
from utvm_deploy.targets.contract.target import Toolchain

#: The vector instructions that the kernels use, as an instruction set's name has them.
_VECTORS = "_zve32x"


def _core(name: str, isa: str, *fpus: str) -> Core:
    return Core(
        name=name,
        architecture=isa,
        fpus=fpus,
        vectors=name.endswith(_VECTORS),
        needs_aligned_words=True,
        has_any_windows=True,
    )


#: Cores, and the instruction set of each as GCC's -march takes it. Those of its name are any core
#: that has it. The timing of the others is published (``timings.py``).
CORES = (
    _core("rv32imc", "rv32imc"),
    _core("rv32imafc", "rv32imafc", "single"),
    _core(f"rv32imc{_VECTORS}", "rv32imc"),
    _core("cv32e40p", "rv32imc"),
    _core("ibex", "rv32imc"),
    _core("ibex-single-cycle", "rv32imc"),
)
#: RV32I and its extensions: letters, then longer names.
_ISA = re.compile(r"rv32([ig])([a-z]*)((?:_[a-z][a-z0-9]*)*)")
#: Extensions that the images need and that the names of cores do not have.
_UNNAMED = ("Zicsr", "Zifencei")
#: Flags that follow from a core.
_OF_CORE = ("-march=", "-mabi=", "-mcpu=", "--specs=", "-misa-spec=")


def flags(core: Core, fpu: str, mve: bool, dsp: bool) -> tuple[str, ...]:
    """The instruction set, how floating-point values are passed, and the C library.

    GCC finds no C library for an instruction set with vectors. So only the assembly of kernels has
    vector instructions, where the macro ``UTVM_VECTORS`` allows it.
    """
    abi = "ilp32f" if fpu == "single" else "ilp32"
    macros = ("-DUTVM_VECTORS",) if core.vectors else ()
    isa = f"-march={core.architecture}"
    return isa, f"-mabi={abi}", "--specs=picolibc.specs", *macros


def _link_flags(core: Core) -> tuple[str, ...]:
    """GCC finds no C library for extensions with long names, but one for the letters alone."""
    letters, *longer = core.architecture.split("_")
    return "-Wl,--no-gc-sections", *((f"-march={letters}",) if longer else ())


def core_advice(name: str) -> str:
    """Which core's instructions an instruction set has, and which of its extensions are not used.

    Empty for the name of a core, and for names of another form.
    """
    found = _ISA.fullmatch(name.lower())
    if found is None or any(name == one.name for one in CORES):
        return ""
    letters = set(found[2].upper()) | (set("MAFD") if found[1] == "g" else set())
    longer = {one.capitalize() for one in found[3].split("_") if one}
    lacking = [letter for letter in "MC" if letter not in letters]
    if lacking:
        return f"take a core that has the extension {' and '.join(lacking)}, too"
    # The kernels need vectors of 128 bits, which V means.
    if "V" in letters or {"Zve32x", "Zvl128b"} <= longer:
        core, used = f"rv32imc{_VECTORS}", {"M", "C", "V", "Zve32x", "Zvl128b"}
    elif {"A", "F"} <= letters:
        core, used = "rv32imafc", set("MAFC")
    else:
        core, used = "rv32imc", set("MC")
    unused = [*sorted(letters - used), *sorted(longer - used - {*_UNNAMED})]
    *first, last = unused or [""]
    told = f"{', '.join(first)} and {last} are" if first else f"the extension {last} is"
    return f"write {core}" + (f"; {told} not used" if unused else "")


def contradiction(core: Core, fpu: str, own: Sequence[str]) -> str:
    """A core with a floating-point unit always has it, and no flag changes what a core has."""
    if core.fpus and fpu == "none":
        return f"{core.name} has a floating-point unit; write fpu = {core.fpus[0]!r}"
    known = flags(core, fpu, False, False)
    for flag in own:
        if flag.startswith(_OF_CORE) and flag not in known:
            advice = core_advice(flag.removeprefix("-march="))
            return (
                f"compiler_flags has {flag!r}, but the core {core.name!r} means {known[0]} and "
                f"{known[1]}; {advice or 'name the core that the board has'}, and remove the flag"
            )
    return ""


TOOLCHAIN = Toolchain(
    compiler="riscv64-unknown-elf-gcc",
    flags=flags,
    contradiction=contradiction,
    machines=("EM_RISCV",),
    prefix="riscv64-unknown-elf-",
    system=("set(CMAKE_SYSTEM_NAME Generic)", "set(CMAKE_SYSTEM_PROCESSOR riscv)"),
    # The specs of picolibc let the linker remove sections, and name a linker script unless GCC
    # itself gets one.
    link_flags=_link_flags,
    script_option="-T",
    partial_links=("-r", "-nostdlib", "-T/dev/null"),
    links_c_library=True,
    remedies={
        r"[Uu]n(?:recogni[sz]ed|known)[^\n]*\.option": "its assembler is too old: install binutils "
        "2.38 or newer for RISC-V",
        "spec file 'picolibc": "sudo apt install picolibc-riscv64-unknown-elf",
    },
    programs={
        "riscv64-unknown-elf-gcc": (
            "compile for RISC-V boards",
            "sudo apt install gcc-riscv64-unknown-elf picolibc-riscv64-unknown-elf",
        ),
        "riscv64-unknown-elf-objcopy": (
            "convert images for RISC-V",
            "sudo apt install binutils-riscv64-unknown-elf",
        ),
        "qemu-system-riscv32": ("run emulated RISC-V boards", "sudo apt install qemu-system-misc"),
    },
)
