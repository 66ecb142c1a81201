"""The Ethos-U configurations that ``--ethos-u`` may name, as facts of Vela 5.2.0."""

from __future__ import annotations

from dataclasses import dataclass

from utvm_deploy.base.errors import UsageError

#: Product -> its number in a configuration word, the MACs in each cycle that it comes with, and
#: the system that Vela assumes for its estimates (``Arm/vela.ini``): that of a microcontroller.
_PRODUCTS = {
    "u55": (0, (32, 64, 128, 256), "Ethos_U55_High_End_Embedded"),
    "u65": (1, (256, 512), "Ethos_U65_Embedded"),
    "u85": (2, (128, 256, 512, 1024, 2048), "Ethos_U85_SYS_Flash_High"),
}
#: How an NPU shares memory with the core -> Vela's name. The first one is the default.
MEMORY_MODES = {"shared-sram": "Shared_Sram", "sram-only": "Sram_Only"}
NAMES = tuple(
    f"ethos-{product}-{macs}" for product, (_, sizes, _) in _PRODUCTS.items() for macs in sizes
)


@dataclass(frozen=True)
class Configuration:
    """An Ethos-U, and how it shares memory with the core."""

    name: str  # as Vela takes it, such as "ethos-u55-128"
    memory_mode: str  # a key of MEMORY_MODES

    @property
    def text(self) -> str:
        """As ``--ethos-u`` takes it."""
        return f"{self.name},{self.memory_mode}"

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
    def system(self) -> str:
        """The system that Vela assumes for estimates."""
        return _PRODUCTS[self.product][2]


def configuration(text: str) -> Configuration:
    """Reads what ``--ethos-u`` takes: a name, and after a comma a memory mode."""
    name, _, mode = text.partition(",")
    mode = mode or next(iter(MEMORY_MODES))
    if name not in NAMES:
        raise UsageError(f"--ethos-u does not know {name!r}; give one of {', '.join(NAMES)}")
    if mode not in MEMORY_MODES:
        raise UsageError(
            f"--ethos-u does not know the memory mode {mode!r}; give one of "
            f"{', '.join(MEMORY_MODES)}"
        )
    return Configuration(name, mode)
