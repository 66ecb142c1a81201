"""Decodes a command stream: the words that a driver gives to an Ethos-U become operations.

The payload of the driver, "COP1", has actions: the configuration that the stream was made for, and
the stream itself (``ethosu/vela/driver_actions.py`` of ethos-u-vela 5.2.0).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from utvm_deploy.backends.ethos_u.configurations import Configuration
from utvm_deploy.backends.ethos_u.opcodes import COMMANDS_OF_U55, COMMANDS_OF_U85, HAS_PAYLOAD
from utvm_deploy.base.errors import CompileError

_FOURCC = 0x31504F43  # "COP1"
_CONFIG, _STREAM, _NOP = 1, 2, 5
_WORD = 4
_ALIGNMENT = 16  # of the stream: the NPU loads it over a bus of 128 bits
_OPCODE, _CONTROL_SHIFT, _RESERVED = 0x3FF, 14, 0x3C00
_PARAMETER_SHIFT, _PARAMETER = 16, 0xFFFF
_WHOLE_STOP = 0xFFFF

#: Operations, without OP_, that compute or copy.
WORKING = ("CONV", "DEPTHWISE", "POOL", "ELEMENTWISE", "RESIZE", "DMA_START")


def defect(what: str) -> CompileError:
    """The error for a stream that must not reach an NPU; ``what`` is a phrase."""
    return CompileError(
        f"Vela's command stream {what}; it is not used, so leave --ethos-u out, or give this model "
        "to another version of Vela"
    )


@dataclass(frozen=True)
class Operation:
    """An operation, and all registers as they are when it starts."""

    place: int  # byte in the stream
    name: str  # such as "CONV"
    parameter: int
    registers: Mapping[str, int]

    def __getitem__(self, register: str) -> int:
        """A register's value without a sign; of two words, payload and parameter are one number."""
        if register not in self.registers:
            raise defect(f"starts {self.shown} before it sets {register}")
        return self.registers[register]

    def signed(self, register: str) -> int:
        """A register of 16 bits with a sign."""
        value = self[register]
        return value - (1 << 16) if value >> 15 & 1 else value

    @property
    def shown(self) -> str:
        """Its name and place, for messages."""
        return f"{self.name} at byte {self.place}"


@dataclass(frozen=True)
class Stream:
    """The operations of a stream that compute or copy, in their order."""

    configuration: Configuration
    operations: tuple[Operation, ...]

    @cached_property
    def is_u85(self) -> bool:
        """Whether it is of the second architecture."""
        return self.configuration.product == "u85"


def decoded(payload: bytes, configuration: Configuration) -> Stream:
    """The stream of a payload; CompileError for one that this NPU does not understand."""
    if len(payload) % _WORD:
        raise defect(f"has {len(payload)} bytes, which is not a number of whole words")
    words = np.frombuffer(payload, "<u4").tolist()
    begin, end = _stream_of(words, configuration)
    names = COMMANDS_OF_U85 if configuration.product == "u85" else COMMANDS_OF_U55
    return Stream(configuration, tuple(_operations(words[begin:end], names)))


def with_words(payload: bytes, around: Mapping[int, tuple[int, int]]) -> bytes:
    """The payload with a word before and one behind operations, by their places in the stream."""
    words = np.frombuffer(payload, "<u4").tolist()
    tag = words.index(next(one for one in words[4:] if one & 0xFF == _STREAM), 4)
    stream = list[int]()
    for index, word in enumerate(words[tag + 1 :]):
        before, behind = around.get(_WORD * index, (None, None))
        stream += [one for one in (before, word, behind) if one is not None]
    words[tag] = _STREAM | len(stream) >> 16 << 8 | (len(stream) & 0xFFFF) << _PARAMETER_SHIFT
    return np.array([*words[: tag + 1], *stream], "<u4").tobytes()


def _stream_of(words: list[int], configuration: Configuration) -> tuple[int, int]:
    """From where to where the words of the stream are."""
    if not words or words[0] != _FOURCC:
        raise defect("does not begin with COP1")
    place, found = 1, (0, 0)
    while place < len(words):
        action, parameter = words[place] & 0xFF, words[place] >> _PARAMETER_SHIFT
        if action == _CONFIG and place + 2 < len(words):
            _check_configuration(words[place + 1], configuration)
            place += 3
        elif action == _NOP:
            place += 1
        elif action == _STREAM and not found[1]:
            length = (words[place] >> 8 & 0xFF) << 16 | parameter
            found = place + 1, place + 1 + length
            place += 1 + length
        else:
            raise defect(f"has the driver action {action} at byte {_WORD * place}")
    if not found[1] or place != len(words):
        raise defect(f"should end at byte {_WORD * place}, and has {_WORD * len(words)} bytes")
    if found[0] * _WORD % _ALIGNMENT:
        raise defect(f"begins at byte {found[0] * _WORD}, which is not a multiple of {_ALIGNMENT}")
    return found


def _check_configuration(word: int, configuration: Configuration) -> None:
    made = word >> 28, 1 << (word & 0xF)
    if made != (configuration.product_number, configuration.macs):
        raise defect(f"is for product {made[0]} with {made[1]} MACs, not for {configuration.name}")


def _operations(words: list[int], names: Mapping[int, str]) -> Iterator[Operation]:
    registers = dict[str, int]()
    place = 0
    while place < len(words):
        word, begin = words[place], place * _WORD
        number = word & _OPCODE | (word >> _CONTROL_SHIFT & 3) << _CONTROL_SHIFT
        if number not in names or word & _RESERVED:
            raise defect(f"has the unknown command {word & 0xFFFF:#06x} at byte {begin}")
        name, value = names[number], word >> _PARAMETER_SHIFT & _PARAMETER
        place += 1
        if number >= HAS_PAYLOAD:
            if place == len(words):
                raise defect(f"ends within {name} at byte {begin}")
            value, place = value << 32 | words[place], place + 1
        if not name.startswith("OP_"):
            registers[name] = value
            continue
        name = name.removeprefix("OP_")
        if name == "STOP":
            if value != _WHOLE_STOP or place != len(words):
                raise defect(f"stops at byte {begin}, and has {_WORD * len(words)} bytes")
            return
        if name == "BRANCH":
            raise defect(f"branches at byte {begin}, which the decoder does not follow")
        if name in WORKING:
            yield Operation(begin, name, value, dict(registers))
    raise defect("has no STOP at its end")
