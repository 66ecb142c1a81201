"""Cores that no image is made for: the words that people use for them, why, and what to do."""

from __future__ import annotations

import re
from dataclasses import dataclass

#: The page that lists cores and boards.
PAGE = "reference/chips"
_BUNDLE = "a bundle's portable C compiles for it: utvm bundle MODEL --board host"
_OF_CORE = "take a bundle for a board with that core"


@dataclass(frozen=True)
class Unsupported:
    """A kind of core, and the beginnings of names of chips that have it."""

    name: str
    chips: tuple[str, ...]
    why: str
    instead: str
    verdict: str = "not supported"
    #: Core and template of the boards whose bundles run there.
    bundles: tuple[str, str] | None = None

    @property
    def sentence(self) -> str:
        """What it is, why it is missing, what to do."""
        verb = "are" if " and " in self.name else "is"
        return f"{self.name} {verb} {self.verdict}: {self.why}; {self.instead} (utvm docs {PAGE})"


#: Earlier rows win: the names of chips with RISC-V begin as those of their relatives do.
UNSUPPORTED = (
    Unsupported(
        "RV32IC and RV32E",
        ("rv32ic", "rv32iac", "rv32e", "ch32v00"),
        "without the extension M, each multiplication calls a library",
        "take a core with the extension M",
    ),
    Unsupported(
        "RV64",
        ("rv64", "riscv64", "k210"),
        "addresses here have 32 bits",
        "take a 32-bit core",
    ),
    Unsupported(
        "ESP32-C, ESP32-H and ESP32-P",
        ("esp32c", "esp32h", "esp32p"),
        "their cores have the instructions of rv32imc, and ESP-IDF builds their firmware",
        f"{_OF_CORE}, or edit a copy of its file",
        "in no board file",
        ("rv32imc", "esp-idf"),
    ),
    Unsupported(
        "GD32V, CH32V and Hazard3",
        ("gd32v", "ch32v", "hazard3"),
        "their cores have the instructions of rv32imc, and no board file describes them",
        _OF_CORE,
        "supported by bundles only",
        ("rv32imc", "baremetal"),
    ),
    Unsupported(
        "RISC-V",
        ("riscv",),
        "it is the name of many instruction sets",
        "write the core, such as rv32imc, rv32imafc or ibex",
        "not one core",
    ),
    Unsupported(
        "Xtensa",
        ("xtensa", "esp32", "esp8266", "lx6", "lx7", "hifi"),
        "there are no kernels, no runtime and no board for it here",
        _BUNDLE,
    ),
    Unsupported(
        "AVR",
        ("avr", "atmega", "attiny", "arduinouno"),
        "it has 8 bits, and flash that C reads by other instructions than RAM",
        "take a Cortex-M board",
    ),
    Unsupported(
        "Cortex-A",
        ("cortexa", "aarch64", "arm64", "bcm27", "stm32mp", "imx8", "raspberrypi4"),
        "it runs an operating system",
        "LiteRT runs the model there",
    ),
    Unsupported("Cortex-R", ("cortexr",), "there is no runtime for it here", _BUNDLE),
    Unsupported(
        "Cortex-M23",
        ("cortexm23", "saml11", "saml10", "m2351"),
        "nobody has built for it or run it here",
        "a bundle for cortex-m0plus has instructions that it knows",
    ),
    Unsupported(
        "Cortex-M85",
        ("cortexm85", "cortexm52", "ra8"),
        "the compilers and emulators here do not know it",
        "a bundle for cortex-m55 has instructions that it knows",
    ),
)


def unsupported(name: str) -> Unsupported | None:
    """The kind of core that a core's or chip's name means, if images are not made for it."""
    plain = re.sub(r"[^a-z0-9]", "", name.lower())
    return next((one for one in UNSUPPORTED if plain.startswith(one.chips)), None)
