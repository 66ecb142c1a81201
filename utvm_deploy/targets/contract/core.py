"""The facts of a core: which options it can have at all, and its GCC flags.

A board says which of these options its silicon has (cpu.fpu, cpu.dsp, cpu.mve).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Core:
    """One processor core as its maker sells it."""

    name: str
    architecture: str  # Arm's name of the instruction set, "x86" (32 bit), or "host"
    compiler: str  # the GCC driver's command
    # -mcpu=, or empty where the compiler's own default is right.
    gcc_cpu: str = ""
    # Precision of the floating-point unit ("single", "double") -> GCC's -mfpu name.
    fpus: Mapping[str, str] = field(default_factory=dict)
    dsp: bool = False  # SMLAD, SXTB16, SSAT16 and similar
    mve: bool = False  # Helium vector instructions
    cache_line_bytes: int = 0  # 0: the core has no caches
    has_dwt: bool = True  # the DWT cycle counter exists in silicon
    # The GCC flags of cores that have no -mcpu.
    gcc_options: tuple[str, ...] = ()
    # -mcpu= suffixes that switch off an extension which the core may lack; the DSP extension's
    # takes the vector extension with it.
    gcc_without_mve: str = ""
    gcc_without_dsp: str = ""
    # The core whose kernels run where the silicon lacks the extension.
    as_without_dsp: str = ""
    as_without_mve: str = ""

    @property
    def is_arm(self) -> bool:
        """Whether images for it are cross-compiled for bare Arm."""
        return self.architecture.startswith("arm")

    @property
    def has_fpu(self) -> bool:
        """Whether it is an Arm core that can have a floating-point unit."""
        return self.is_arm and bool(self.fpus)

    @property
    def is_armv8m(self) -> bool:
        """Whether it has Arm's eighth architecture, whose MPU has windows of any size."""
        return self.architecture.startswith("armv8")

    @property
    def is_armv6m(self) -> bool:
        """Whether it lacks Thumb-2, and loads and stores words at multiples of four only."""
        return self.architecture == "armv6-m"

    def gcc_flags(self, fpu: str, mve: bool, dsp: bool = True) -> tuple[str, ...]:
        """Flags for a chip with this floating-point unit (``none`` for none) and extensions."""
        if not self.gcc_cpu:
            return self.gcc_options
        suffix = "" if mve or not self.mve else self.gcc_without_mve
        if not dsp and self.gcc_without_dsp:
            suffix = self.gcc_without_dsp
        flags = [f"-mcpu={self.gcc_cpu}{suffix}", "-mthumb"]
        if fpu == "none":
            return (*flags, "-mfloat-abi=soft")
        return (*flags, f"-mfpu={self.fpus[fpu]}", "-mfloat-abi=hard")
