"""The user's copy of CMSIS-NN, as facts; ``project.find_cmsis_nn`` finds and checks it.

muRISCV-NN is a port of CMSIS-NN to RISC-V. Its headers give its functions the names of CMSIS-NN's,
so the generated C calls both.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Product:
    """A library with CMSIS-NN's interface, and what is in the user's folder of it."""

    name: str
    option: str  # of the command line, such as "cmsis-nn"
    url: str
    include: tuple[str, ...]  # folders of headers; the first one has that of all functions
    library: str  # the file
    prefix: str  # how the names of functions begin where CMSIS-NN's begin with PREFIX

    @property
    def variable(self) -> str:
        """Of the environment; it names the user's copy for every verb."""
        return f"UTVM_{self.option.upper().replace('-', '_')}"


PREFIX = "arm_"
CMSIS_NN = Product(
    "CMSIS-NN",
    "cmsis-nn",
    "https://github.com/ARM-software/CMSIS-NN",
    ("Include",),
    "libcmsis-nn.a",
    PREFIX,
)
MURISCV_NN = Product(
    "muRISCV-NN",
    "muriscv-nn",
    "https://github.com/tum-ei-eda/muriscv-nn",
    ("Include/CMSIS/NN/Include", "Include"),
    "libmuriscvnn.a",
    "muriscv_nn_",
)

#: What functions begin with -> Zephyr's option for the part of the library that has them
#: (modules/cmsis-nn/Kconfig of 3.7; it has none for arm_pad_s8 and arm_transpose_s8, which are
#: younger).
_ZEPHYR_CONFIG = {
    "arm_avgpool": "CMSIS_NN_POOLING",
    "arm_batch_matmul": "CMSIS_NN_FULLYCONNECTED",
    "arm_concatenation": "CMSIS_NN_CONCATENATION",
    "arm_convolve": "CMSIS_NN_CONVOLUTION",
    "arm_depthwise": "CMSIS_NN_CONVOLUTION",
    "arm_elementwise": "CMSIS_NN_BASICMATH",
    "arm_fully_connected": "CMSIS_NN_FULLYCONNECTED",
    "arm_max_pool": "CMSIS_NN_POOLING",
    "arm_maximum": "CMSIS_NN_BASICMATH",
    "arm_minimum": "CMSIS_NN_BASICMATH",
    "arm_softmax": "CMSIS_NN_SOFTMAX",
    "arm_svdf": "CMSIS_NN_SVD",
    "arm_transpose_conv": "CMSIS_NN_CONVOLUTION",
}


def is_in_zephyr(function: str) -> bool:
    """Whether Zephyr builds it where the library's module has it."""
    return any(function.startswith(start) for start in _ZEPHYR_CONFIG)


def zephyr_options(functions: Sequence[str]) -> tuple[str, ...]:
    """The options of Zephyr that build the library's parts with these functions."""
    parts = {
        option
        for start, option in _ZEPHYR_CONFIG.items()
        if any(name.startswith(start) for name in functions)
    }
    # The functions that all parts call are a separate part.
    return ("CMSIS_NN", "CMSIS_NN_NNSUPPORT", *sorted(parts))


@dataclass(frozen=True)
class CmsisNn:
    """Headers and a static library that was built for one core."""

    include_dirs: tuple[str, ...]
    library: str
    digest: str  # SHA-256 over headers and library
    built_with: str  # compiler, version and instruction set, for reports
    # What the build chose among its variants, which need different scratch memory.
    has_mve: bool = False
    has_vectors: bool = False
    is_armclang: bool = False
    # What this revision defines, by the names of CMSIS-NN; None: not known.
    functions: frozenset[str] | None = field(default=None, repr=False)
    # Which of the user's builds it is; empty where there is one alone.
    label: str = ""
    product: Product = CMSIS_NN

    def has(self, function: str) -> bool:
        """Whether a call of it can be linked, as far as known."""
        return self.functions is None or function in self.functions
