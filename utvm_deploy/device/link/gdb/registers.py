"""A server's register numbers, from its target description (``qXfer:features:read``). Pure.

The description is XML of which only two kinds of elements matter; they are read as text, so that a
server's broken or hostile XML can do no harm.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterator

from utvm_deploy.targets.contract.debugger import Register

_REGISTER = re.compile(r"<reg\s([^>]*)>")
_INCLUDE = re.compile(r"<xi:include\s([^>]*)>")
_ATTRIBUTE = re.compile(r"""([\w:-]+)\s*=\s*["']([^"']*)["']""")


# Files of a description beyond which a server is not believed.
_MAX_FILES = 16


def read_registers(read_file: Callable[[str], str], wanted: Collection[str]) -> dict[str, Register]:
    """The registers, from as few files as name the wanted ones."""
    text, files = "", ["target.xml"]
    for position in range(_MAX_FILES):
        registers = parse_registers(text)
        if position == len(files) or registers.keys() >= set(wanted):
            return registers
        part = read_file(files[position])
        files += includes(part)
        text += part
    return parse_registers(text)


def includes(xml: str) -> tuple[str, ...]:
    """Further files that a description names."""
    found = (dict(_ATTRIBUTE.findall(match)).get("href") for match in _INCLUDE.findall(xml))
    return tuple(name for name in found if name)


def parse_registers(xml: str) -> dict[str, Register]:
    """Lower-case name -> register, of all files of a description put together."""
    numbered: list[tuple[int, str, int]] = []
    number = 0
    for match in _REGISTER.findall(xml):
        facts = dict(_ATTRIBUTE.findall(match))
        try:
            number = int(facts.get("regnum", number))
            bits = int(facts["bitsize"])
        except (KeyError, ValueError):
            continue
        numbered.append((number, facts.get("name", "").lower(), (bits + 7) // 8))
        number += 1
    return dict(_placed(sorted(numbered)))


def _placed(numbered: list[tuple[int, str, int]]) -> Iterator[tuple[str, Register]]:
    offset = 0
    for number, name, size in numbered:
        yield name, Register(number, size, offset)
        offset += size
