"""The Ethos-U configurations that ``--ethos-u`` may name, as facts of Vela 5.2.0."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from utvm_deploy.base.errors import UsageError

#: Product -> its number in a configuration word, the MACs in each cycle that it comes with, and
#: systems. Vela assumes these for its estimates (``Arm/vela.ini``): one of a microcontroller, and
#: one with DRAM, which U55 does not have.
_PRODUCTS = {
    "u55": (0, (32, 64, 128, 256), ("Ethos_U55_High_End_Embedded",)),
    "u65": (1, (256, 512), ("Ethos_U65_Embedded", "Ethos_U65_High_End")),
    "u85": (2, (128, 256, 512, 1024, 2048), ("Ethos_U85_SYS_Flash_High", "Ethos_U85_SYS_DRAM_Mid")),
}
#: What is before a configuration on the command line, and in ``Backend.origin``.
OPTION = "--ethos-u "
#: How an NPU shares memory with the core -> Vela's name. The first one is the default. Those that
#: begin with DEDICATED have a cache of the NPU's own in SRAM, and the arena in other memory.
DEDICATED = "dedicated-sram"
MEMORY_MODES = {
    one.lower().replace("_", "-"): one
    for one in (
        *("Shared_Sram", "Sram_Only", "Dedicated_Sram", "Dedicated_Sram_256KB"),
        *("Dedicated_Sram_384KB", "Dedicated_Sram_512KB"),
    )
}
NAMES = tuple(
    f"ethos-{product}-{macs}" for product, (_, sizes, _) in _PRODUCTS.items() for macs in sizes
)


@dataclass(frozen=True)
class Configuration:
    """An Ethos-U, and how it shares memory with the core."""

    name: str  # as Vela takes it, such as "ethos-u55-128"
    memory_mode: str  # a key of MEMORY_MODES
    # The board's memory that holds the cache, its address and bytes; empty: it is in the arena.
    memory: str = ""
    cache: tuple[int, int] | None = None

    @property
    def text(self) -> str:
        """As ``--ethos-u`` takes it."""
        return ",".join(filter(None, (self.name, self.memory_mode, self.memory)))

    @property
    def label(self) -> str:
        """For reports, such as "Ethos-U55-128"."""
        return self.name.replace("ethos-u", "Ethos-U")

    @property
    def product(self) -> str:
        """Such as "u55"."""
        return self.name.split("-")[1]

    @property
    def product_number(self) -> int:
        """As the words of a stream have it."""
        return _PRODUCTS[self.product][0]

    @property
    def macs(self) -> int:
        """Multiply-accumulate operations of 8 bits in each cycle."""
        return int(self.name.split("-")[2])

    @property
    def has_cache(self) -> bool:
        """Whether the stream has a region for a cache."""
        return self.memory_mode.startswith(DEDICATED)

    @property
    def cache_limit(self) -> int:
        """The bytes that a cache in a memory of the board may have; 0: it is in the arena."""
        sizes = [int(one) << 10 for one in re.findall(r"(\d+)kb", self.memory_mode)]
        return 0 if self.cache is None else min(self.cache[1], *sizes, self.cache[1])

    @property
    def system(self) -> str:
        """The system that Vela assumes for estimates."""
        return _PRODUCTS[self.product][2][self.has_cache]


def configuration(
    text: str, memories: Mapping[str, tuple[int, int]] | None = None
) -> Configuration:
    """Reads what ``--ethos-u`` takes: a name, a memory mode and the cache's memory, with commas.

    ``memories`` are those of the board that an NPU may have alone: name -> address and bytes.
    Raises UsageError.
    """
    name, mode, memory = (*text.split(",", 2), "", "")[:3]
    mode = mode or next(iter(MEMORY_MODES))
    if name not in NAMES:
        raise UsageError(f"--ethos-u does not know {name!r}; give one of {', '.join(NAMES)}")
    found = Configuration(name, mode, memory, (memories or {}).get(memory))
    has_dram = len(_PRODUCTS[found.product][2]) > 1
    modes = [one for one in MEMORY_MODES if has_dram or not one.startswith(DEDICATED)]
    if mode not in modes:
        raise UsageError(
            f"--ethos-u does not know the memory mode {mode!r} of {name}; give one of "
            f"{', '.join(modes)}"
        )
    if memory and (found.cache is None or not found.has_cache):
        names = ", ".join(memories or ()) or "none"
        raise UsageError(
            f"--ethos-u has no memory {memory!r} for a cache: {DEDICATED} takes a RAM of the board "
            f"that has no data of images and is not tightly coupled; there is {names}"
        )
    return found
