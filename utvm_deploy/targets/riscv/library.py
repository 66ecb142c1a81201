"""What an object of a static library was built for, by the attributes of RISC-V.

The attribute of the instruction set is a text such as rv32i2p1_m2p0_c2p0: each extension with its
version (RISC-V ELF psABI, "Attributes").
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from utvm_deploy.targets.contract.core import Core
from utvm_deploy.targets.contract.target import BuiltFor

# Of e_flags: where floating-point values are passed; 0: in integer registers (psABI, "ELF Header").
_FLOAT_ABI = 0x6
# What all cores have, though their names do not say it.
_ALWAYS = frozenset({"zicsr", "zifencei", "zmmul", "zca"})


def built_for(elf: Any) -> BuiltFor:
    """The instruction set of ``elf``, of elftools, as a core's name: rv32imc_zve32x."""
    found = ""
    for section in elf.iter_sections():
        if section.name == ".riscv.attributes":
            for part in section.iter_subsections():
                for scope in part.iter_subsubsections():
                    values = {str(one.tag): one.value for one in scope.iter_attributes()}
                    found = str(values.get("TAG_ARCH", found))
    if not found:
        return BuiltFor()
    base, *others = re.sub(r"\d+p\d+", "", found.strip("\0")).split("_")
    letters = base + "".join(name for name in others if len(name) == 1)
    names = [name for name in others if len(name) > 1 and name not in _ALWAYS]
    return BuiltFor(
        architecture="_".join((letters, *names)),
        # Of several objects, the one with the most extensions counts.
        rank=len(letters) + len(names),
        is_hard_float=bool(elf["e_flags"] & _FLOAT_ABI),
        has_vectors="zve32x" in names,
    )


def why_not(built: BuiltFor, core: Core, flags: Sequence[str], board: str) -> str:
    """Why a core cannot run it, or why it passes float values elsewhere; else empty."""
    if built.architecture is None:
        return ""
    isa = next(flag for flag in flags if flag.startswith("-march=")).removeprefix("-march=")
    has = _extensions(f"{isa}_zve32x" if core.vectors else isa)
    if _extensions(built.architecture) - has:
        return (
            f"was built for {built.architecture}, and {board}'s core is {core.name}, which cannot "
            "run it"
        )
    if built.is_hard_float == ("-mabi=ilp32f" in flags):
        return ""
    needs = next(flag for flag in flags if flag.startswith("-mabi="))
    return f"passes floating-point values in other registers than {board}, which needs {needs}"


def _extensions(name: str) -> set[str]:
    base, *others = name.split("_")
    # Vectors of one kind have those that they are made of.
    vectors = {"zve32x", "zvl32b", "zvl64b", "zvl128b"} if "zve32x" in others else set()
    return {base[:4], *base[4:], *others, *vectors}
