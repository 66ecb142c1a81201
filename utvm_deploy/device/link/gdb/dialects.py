"""The differences between GDB servers, as data.

The features that a server offers to ``qSupported`` show which one it is. Each has its text for
``qRcmd`` that restarts the core and leaves it halted.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

# Words that a packet may hold at least where a server does not say (GDB's own assumption).
DEFAULT_PACKET_BYTES = 400
# The most bytes of a packet that "Maddress,length:" and similar packets need.
_HEAD_BYTES = 24

# The beginning of pyOCD's answers to commands that failed: it has no error numbers for them.
SPOKEN_ERRORS = (b"Error: ", b"Transfer failed: ", b"Unexpected error: ")


@dataclass(frozen=True)
class Dialect:
    """One server's ways."""

    name: str
    # Features, as qSupported's answer has them, that this server offers and the others do not.
    features: tuple[str, ...]
    # Commands that restart the core and leave it halted; none: the core's own register is written.
    reset: tuple[str, ...]
    # Whether it offers these features and no other.
    is_all: bool = False


# The first one whose features are all there. What each of them answers to qSupported:
DIALECTS = (
    # gdbserver.py of pyOCD, from 0.36 to 0.46
    Dialect("pyOCD", ("QNonStop+",), ("reset halt",)),
    # gdbstub.c, since 2.12
    Dialect("QEMU", ("multiprocess+", "vContSupported+"), ("system_reset",)),
    # gdb_server.c of OpenOCD 0.12
    Dialect("OpenOCD", ("qXfer:threads:read+", "vContSupported+"), ("reset halt",)),
    # as LLDB's tests imitate it; "reset" of its command line halts after the reset
    Dialect("J-Link", ("hwbreak+", "QStartNoAckMode+"), ("reset", "halt")),
    # gdb-server.c of stlink 1.7, which offers nothing that others do not
    Dialect("st-util", ("qXfer:memory-map:read+", "qXfer:features:read+"), ("reset",), True),
)
UNKNOWN = Dialect("a debug server", (), ())


@dataclass(frozen=True)
class Offer:
    """What a server's answer to qSupported says."""

    packet_bytes: int
    features: frozenset[str]

    @property
    def dialect(self) -> Dialect:
        for dialect in DIALECTS:
            extra = self.features.difference(dialect.features)
            if self.features.issuperset(dialect.features) and not (extra and dialect.is_all):
                return dialect
        return UNKNOWN

    @property
    def payload_bytes(self) -> int:
        """The bytes that a packet may have after its head."""
        return self.packet_bytes - _HEAD_BYTES

    def has(self, name: str) -> bool:
        """Whether the server offers a feature; ``?`` and ``-`` are not offers."""
        return f"{name}+" in self.features


def parse_offer(answer: str) -> Offer:
    """``PacketSize=1000;vContSupported+`` as facts; what makes no sense is ignored."""
    items = [item for item in answer.split(";") if item]
    values: Mapping[str, str] = dict(item.split("=", 1) for item in items if "=" in item)
    try:
        packet_bytes = int(values.get("PacketSize", ""), 16)
    except ValueError:
        packet_bytes = DEFAULT_PACKET_BYTES
    return Offer(max(packet_bytes, 64), frozenset(item for item in items if "=" not in item))
