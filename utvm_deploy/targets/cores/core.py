"""The features of each core and its GCC flags: the one table, shipped as frozen data.

A board says which of a core's options its silicon has (cpu.fpu, cpu.dsp, cpu.mve). This table says
which options the core can have at all. Used by boards/board.py, project/ and kernels/.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType


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
    nvic_vectors: int = 0  # external interrupts at most
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


_ARM = "arm-none-eabi-gcc"

CORES: Mapping[str, Core] = MappingProxyType(
    {
        core.name: core
        for core in (
            Core(
                name="host",
                architecture="host",
                compiler="cc",
                fpus={"double": ""},
                cache_line_bytes=64,
                has_dwt=False,
            ),
            Core(
                name="i386",
                architecture="x86",
                compiler="gcc",
                gcc_options=("-m32", "-march=i686"),
                fpus={"double": ""},
                has_dwt=False,
            ),
            Core(
                name="cortex-m0",
                architecture="armv6-m",
                compiler=_ARM,
                gcc_cpu="cortex-m0",
                has_dwt=False,
                nvic_vectors=32,
            ),
            Core(
                name="cortex-m0plus",
                architecture="armv6-m",
                compiler=_ARM,
                gcc_cpu="cortex-m0plus",
                has_dwt=False,
                nvic_vectors=32,
            ),
            Core(
                name="cortex-m3",
                architecture="armv7-m",
                compiler=_ARM,
                gcc_cpu="cortex-m3",
                nvic_vectors=240,
            ),
            Core(
                name="cortex-m4",
                architecture="armv7e-m",
                compiler=_ARM,
                gcc_cpu="cortex-m4",
                fpus={"single": "fpv4-sp-d16"},
                dsp=True,
                nvic_vectors=240,
            ),
            Core(
                name="cortex-m7",
                architecture="armv7e-m",
                compiler=_ARM,
                gcc_cpu="cortex-m7",
                fpus={"single": "fpv5-sp-d16", "double": "fpv5-d16"},
                dsp=True,
                cache_line_bytes=32,
                nvic_vectors=240,
            ),
            Core(
                name="cortex-m33",
                architecture="armv8-m.main",
                compiler=_ARM,
                gcc_cpu="cortex-m33",
                fpus={"single": "fpv5-sp-d16"},
                dsp=True,
                nvic_vectors=480,
                gcc_without_dsp="+nodsp",
                as_without_dsp="cortex-m3",
            ),
            Core(
                name="cortex-m55",
                architecture="armv8.1-m.main",
                compiler=_ARM,
                gcc_cpu="cortex-m55",
                gcc_without_mve="+nomve",
                fpus={"double": "auto"},
                dsp=True,
                mve=True,
                cache_line_bytes=32,
                nvic_vectors=480,
                gcc_without_dsp="+nodsp",
                as_without_dsp="cortex-m3",
                as_without_mve="cortex-m33",
            ),
        )
    }
)
